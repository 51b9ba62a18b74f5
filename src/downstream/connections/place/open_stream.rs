//! A stream, which counts for as long as it exists.

use std::sync::Arc;

use super::ConnectionPlace;
use crate::downstream::connections::groups::{GroupStream, TooManyStreams};
use crate::downstream::shards::StreamOnShard;
use crate::memory::Charge;

/// Counts a stream for as long as it exists.
pub(in crate::downstream) struct OpenStream {
    /// Its part in the streams of the client's identity, if that counts them.
    pub(super) of_identity: Result<Option<GroupStream>, TooManyStreams>,
    pub(super) _charge: Option<Charge>,
    /// Its part in what the shard of its connection has.
    pub(super) _shard: Option<StreamOnShard>,
    /// The last field: with the last stream, the connection counts as closed.
    pub(super) place: Arc<ConnectionPlace>,
}

impl OpenStream {
    /// Whether the client's identity has too many streams. This one is not counted among them.
    pub(in crate::downstream) fn is_beyond_identity(&self) -> bool {
        self.of_identity.is_err()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let place = &self.place;
        place.connections.count_stream_closed();
        let mut streams = place.lock();
        streams.open -= 1;
        if streams.open == 0 {
            place.note_unused(&mut streams);
        }
    }
}

//! What a subscription needs to make a request: its stream, its server and the time.

use xxhash_rust::xxh3::xxh3_64;

use super::opening::Epoch;
use super::quirks::ServerQuirks;
use super::request_room::field_bytes;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::xds::{END_OF_SET, Name, Type};

/// What a subscription needs to make a request.
pub(super) struct RequestContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) variant: Variant,
    /// The encoded node. `has_node` is set if the next request of the stream has it.
    pub(crate) node: &'a [u8],
    pub(crate) has_node: bool,
    pub(crate) epoch: Epoch,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) options: &'a UpstreamOptions,
    pub(crate) now: Moment,
}

impl RequestContext<'_> {
    pub(crate) fn type_url(&self) -> String {
        self.kind.url().into_owned()
    }

    /// Returns a name that no other opening has asked with. The time keeps other processes from asking with it too, as far as their clocks differ.
    pub(crate) fn made_up_name(&self) -> Name {
        let time = (self.now - Moment::START).as_nanos().to_le_bytes();
        let opening = [self.node, self.kind.name().as_bytes(), &self.epoch.number().to_le_bytes(), &time].concat();
        format!("{END_OF_SET}{:016x}", xxh3_64(&opening)).as_str().into()
    }

    /// Returns how many bytes a request has for names, besides a nonce, a version and an error text.
    pub(crate) fn room_for_names(&self) -> usize {
        let limit = self.quirks.max_request_bytes;
        let others = field_bytes(self.node.len()) + field_bytes(self.type_url().len()) + (limit / 8).min(OTHER_FIELDS);
        limit.saturating_sub(others)
    }
}

/// An error text has at most 4 KiB, and servers keep nonces and versions short.
const OTHER_FIELDS: usize = 8 << 10;

//! How many streams of load reports are passed on, in total and for each connection, and which stream makes room when there are too many.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::SetOnce;

use super::shares::Shares;
use crate::limit::Limit;

/// How many client streams are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadStreamLimits {
    pub(crate) streams: usize,
    /// The limit for one connection; 0: no limit.
    pub(crate) per_connection: usize,
}

/// The streams that are passed on by all configurations.
#[derive(Debug, Default)]
pub(super) struct LoadStreams {
    /// Locked while one stream is added or removed. Each place has the switch that ends its stream.
    open: Mutex<Shares<Arc<SetOnce<usize>>>>,
}

/// Counts a stream until it is dropped.
#[derive(Debug)]
pub(super) struct OpenLoadStream {
    streams: Arc<LoadStreams>,
    connection: u64,
    number: u64,
    /// Set to the limit when the stream has made room.
    ends: Arc<SetOnce<usize>>,
}

/// Why a stream is not passed on, or is no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamRefusal {
    #[error("too many load report streams: the limit is {0} ({key}); retry later", key = Limit::LoadReportStreams.key())]
    InAll(usize),
    #[error("too many load report streams of one connection: the limit is {0} ({key}); close some",
        key = Limit::LoadReportStreamsPerConnection.key())]
    OfConnection(usize),
    /// Its connection had the most streams, and another connection needed a place.
    #[error("too many load report streams: the limit is {0} ({key}), and this connection has most; retry later",
        key = Limit::LoadReportStreams.key())]
    MadeRoom(usize),
}

impl StreamRefusal {
    pub(super) fn limit(self) -> Limit {
        match self {
            Self::InAll(_) | Self::MadeRoom(_) => Limit::LoadReportStreams,
            Self::OfConnection(_) => Limit::LoadReportStreamsPerConnection,
        }
    }
}

impl LoadStreams {
    /// Counts a stream of a connection. When all places are taken, a stream of another connection may be ended for it.
    pub(super) fn open(
        self: &Arc<Self>,
        connection: u64,
        limits: LoadStreamLimits,
    ) -> Result<OpenLoadStream, StreamRefusal> {
        let mut open = self.lock();
        if limits.per_connection > 0 && open.count(connection) >= limits.per_connection {
            return Err(StreamRefusal::OfConnection(limits.per_connection));
        }
        if open.taken() >= limits.streams {
            let other = open.make_room_for(connection).ok_or(StreamRefusal::InAll(limits.streams))?;
            let _ = other.set(limits.streams); // it is not in the books any more, so this is the first time
        }
        let ends = Arc::<SetOnce<usize>>::default();
        let number = open.add(connection, ends.clone());
        Ok(OpenLoadStream { streams: self.clone(), connection, number, ends })
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.lock().taken()
    }

    fn lock(&self) -> MutexGuard<'_, Shares<Arc<SetOnce<usize>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenLoadStream {
    /// Waits until the stream has to make room for another connection, if it ever has to.
    pub(super) async fn has_made_room(&self) -> StreamRefusal {
        StreamRefusal::MadeRoom(*self.ends.wait().await)
    }

    #[cfg(test)]
    pub(super) fn is_ended(&self) -> bool {
        self.ends.get().is_some()
    }
}

impl Drop for OpenLoadStream {
    fn drop(&mut self) {
        self.streams.lock().remove(self.connection, self.number);
    }
}

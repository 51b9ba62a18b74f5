//! Limits log lines about events that a server may repeat without limit, over all views together. Metrics and reports count all of them.

use std::time::Instant;

use crate::log_pace::LogPace;

/// An event that a server may repeat.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServerEvent {
    Rejected,
    MoreRejected,
    OtherNames,
    CollectionError,
    RemovedInUse,
    MissingClusters,
    TooLarge,
    LoadsEnded,
    LoadsMoved,
    LoadsLost,
    UnreadableOrder,
    TypeRefused,
    ViewRefused,
}

/// A pace for each event.
#[derive(Debug)]
pub(crate) struct ServerPaces([LogPace; ServerEvent::ViewRefused as usize + 1]);

impl Default for ServerPaces {
    fn default() -> Self {
        Self(std::array::from_fn(|_| LogPace::of_process()))
    }
}

impl ServerPaces {
    /// Returns `Some` if the event is to be logged, with the number of events before it that were not.
    pub(super) fn line(&self, event: ServerEvent) -> Option<u64> {
        self.0[event as usize].line(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_pace_of_its_own() {
        let paces = ServerPaces::default();
        let lines = |event| (0..1000).filter(|_| paces.line(event).is_some()).count();
        let began = Instant::now();
        let counts = [ServerEvent::Rejected, ServerEvent::UnreadableOrder, ServerEvent::Rejected].map(lines);
        let most = 20 * (1 + began.elapsed().as_secs() as usize);
        assert!(counts[0] >= 20 && counts[1] >= 20 && counts[0] + counts[2] <= most && counts[1] <= most, "{counts:?}");
    }
}

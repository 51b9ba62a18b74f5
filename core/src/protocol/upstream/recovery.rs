//! Whether a server was away until a moment ago. If so, it may still be reading its state, and its first responses may lack half of what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::protocol::view::Recovering;

/// The last outage of a server, as one stream has seen it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recovery {
    /// The stream was lost, or could not be opened, and no request was made since.
    is_lost: bool,
    /// When the first request after that was made.
    back_since: Option<Moment>,
    /// Until when an earlier view of the key would have held what the server sent first after an outage.
    held_until: Option<Moment>,
    /// The server is a relay, which waits for its own servers by itself.
    is_relay: bool,
}

impl Recovery {
    pub(super) fn note_lost(&mut self) {
        *self = Self { is_lost: true, ..Self::default() };
    }

    /// Records a request. The first one after an outage starts the time; a request on a later opening does not.
    pub(super) fn on_request(&mut self, now: Moment) {
        if self.is_lost {
            *self = Self { back_since: Some(now), ..Self::default() };
        }
    }

    /// Returns until when the server counts as one that is reading its state.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.back_since.map(|since| since + TIME)
    }

    /// Returns the servers that may still be reading their state. If several streams of a server know of that, the latest time counts.
    pub(crate) fn doubts(mut seen: Vec<(u16, Self)>) -> Recovering {
        // Other streams to a relay may not know yet that it is one.
        let relays: BTreeSet<u16> = seen.iter().filter(|(_, of)| of.is_relay).map(|(server, _)| *server).collect();
        seen.retain(|(server, _)| !relays.contains(server));
        let latest = |end: fn(&Self) -> Option<Moment>| -> BTreeMap<u16, Moment> {
            let ends: BTreeSet<_> = seen.iter().filter_map(|(server, of)| Some((*server, end(of)?))).collect();
            ends.into_iter().collect()
        };
        Recovering { until: latest(Self::until), held_until: latest(|of| of.held_until), is_unattended: false }
    }

    /// Records that the server is a relay.
    pub(super) fn note_relay(&mut self) {
        *self = Self { is_relay: true, ..Self::default() };
    }

    /// Records until when a view holds what the server said first after an outage. A later view of the key has to hold it for as long.
    pub(crate) fn note_held(&mut self, until: Moment) {
        self.held_until = self.held_until.max(Some(until));
    }

    /// Whether the server is away, or may still be reading its state, or something of it is held.
    pub(crate) fn lasts(&self, now: Moment) -> bool {
        self.is_lost || self.until().max(self.held_until).is_some_and(|until| now < until)
    }
}

/// How long a server may take to read its state after an outage. Consul takes four seconds after a restart.
const TIME: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    #[test]
    fn the_time_begins_with_the_first_request_after_an_outage_and_with_no_other() {
        let mut recovery = Recovery::default();
        recovery.on_request(at(1));
        assert_eq!(recovery.until(), None, "it was never away");
        recovery.note_lost();
        assert_eq!(recovery.until(), None, "it is away");
        recovery.note_lost();
        recovery.on_request(at(100));
        recovery.on_request(at(110));
        assert_eq!(recovery.until(), Some(at(115)));
        recovery.note_lost();
        recovery.on_request(at(112));
        assert_eq!(recovery.until(), Some(at(127)), "it was away once more");
    }

    #[test]
    fn it_lasts_while_the_server_is_away_and_for_its_time_after_that() {
        let mut recovery = Recovery::default();
        assert!(!recovery.lasts(at(1)));
        recovery.note_lost();
        assert!(recovery.lasts(at(1)) && recovery.lasts(at(3600)));
        recovery.on_request(at(100));
        assert!(recovery.lasts(at(114)) && !recovery.lasts(at(115)));
        recovery.note_held(at(120));
        recovery.note_held(at(118));
        assert!(recovery.lasts(at(119)) && !recovery.lasts(at(120)));
    }
}

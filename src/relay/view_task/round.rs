//! How much a view task applies together before it publishes the result.

use crate::relay::command::PART;

/// What was applied since the last publication.
#[derive(Debug, Default)]
pub(super) struct Round {
    events: usize,
    /// Changes of interest.
    changes: usize,
    /// Names of responses.
    names: usize,
}

impl Round {
    /// Counts a command, with its changes of interest.
    pub(super) fn note_command(&mut self, changes: usize) {
        self.events += 1;
        self.changes += changes;
    }

    /// Counts an event of a link, with its names.
    pub(super) fn note_event(&mut self, names: usize) {
        self.events += 1;
        self.names += names;
    }

    /// Whether another event of a link may be applied. A response is applied as a whole, however many names it has.
    pub(super) fn has_room(&self) -> bool {
        self.events < MAX_EVENTS && self.names < MAX_NAMES
    }

    pub(super) fn has_room_for_commands(&self) -> bool {
        self.events < MAX_EVENTS && self.changes < MAX_CHANGES
    }

    /// Returns how many names it concerned.
    pub(super) fn names(&self) -> usize {
        self.names + self.changes
    }
}

const MAX_EVENTS: usize = 256;
/// It takes some milliseconds to apply and publish so many.
const MAX_NAMES: usize = 4096;
/// They take about a millisecond. Without this limit, a client that changes its interest as fast as it can would keep all others waiting.
const MAX_CHANGES: usize = PART;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_after_so_many_events_and_names_and_commands_go_along_with_long_responses() {
        let mut round = Round::default();
        round.note_event(MAX_NAMES - 1);
        assert!(round.has_room() && round.has_room_for_commands());
        round.note_event(1);
        assert!(!round.has_room() && round.has_room_for_commands());
        round.note_command(MAX_CHANGES);
        assert!(!round.has_room_for_commands());
        assert_eq!(round.names(), MAX_NAMES + MAX_CHANGES);
        let mut round = Round::default();
        (0..MAX_EVENTS).for_each(|_| {
            assert!(round.has_room() && round.has_room_for_commands());
            round.note_event(0);
        });
        assert!(!round.has_room() && !round.has_room_for_commands());
    }
}

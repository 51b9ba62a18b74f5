//! How much a view task applies together before it publishes the result, and how often it lets other tasks run.

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

/// What was published since the task let others run. As long as events have queued up, nothing else interrupts it.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    names: usize,
    rounds: usize,
}

impl Stretch {
    /// Counts a round, and lets other tasks run before the next one if it is their turn.
    pub(super) async fn rest_after(&mut self, round: &Round) {
        if self.ends_with(round) {
            tokio::task::yield_now().await;
        }
    }

    fn ends_with(&mut self, round: &Round) -> bool {
        self.rounds += 1;
        self.names += round.names();
        let ends = self.names >= LONG_NAMES || self.rounds >= LONG_ROUNDS;
        if ends {
            *self = Self::default();
        }
        ends
    }
}

/// It takes some milliseconds to count the interest in so many, and to publish.
const LONG_NAMES: usize = 2 * MAX_CHANGES;
/// Each costs something, however little it concerns.
const LONG_ROUNDS: usize = 16;
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

    #[test]
    fn others_run_after_so_many_names_or_rounds() {
        let round_of = |names| {
            let mut round = Round::default();
            round.note_command(names);
            round
        };
        let (mut stretch, half) = (Stretch::default(), round_of(LONG_NAMES / 2));
        for _ in 0..3 {
            assert!(!stretch.ends_with(&half) && stretch.ends_with(&half));
        }
        assert!(stretch.ends_with(&round_of(100 * LONG_NAMES)));
        for _ in 0..3 {
            assert!((1..LONG_ROUNDS).all(|_| !stretch.ends_with(&round_of(0))) && stretch.ends_with(&round_of(0)));
        }
    }
}

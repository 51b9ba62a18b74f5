//! When the streams to one server may be opened again because another client is shown: one in each step, for all views together.

use std::time::Duration;

use crate::protocol::moment::Moment;

/// The turns at one server.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemberPace {
    /// The first moment that is free.
    free: Moment,
}

impl MemberPace {
    /// Returns the next turn. The turn is taken, whether it is used or not. Each caller has at most one turn in the future.
    pub fn turn(&mut self, now: Moment) -> Moment {
        let turn = self.free.max(now);
        self.free = turn + STEP;
        turn
    }
}

/// The time between two turns.
const STEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    #[test]
    fn turns_are_a_step_apart_however_many_ask_at_once_and_none_is_saved_up() {
        let mut pace = MemberPace::default();
        let turns: Vec<_> = (0..3).map(|_| pace.turn(at(1_000))).collect();
        assert_eq!(turns, [at(1_000), at(1_100), at(1_200)]);
        assert_eq!(pace.turn(at(1_250)), at(1_300));
        assert_eq!(pace.turn(at(9_000)), at(9_000), "nobody has asked for long");
        assert_eq!(pace.turn(at(9_000)), at(9_100));
    }

    /// A rolling restart of 1,000 gateways, each with a view of its own: no second has more than twelve openings.
    #[test]
    fn no_second_has_more_than_twelve_turns() {
        let mut pace = MemberPace::default();
        let turns: Vec<_> = (0..1_000).map(|asked: u64| pace.turn(at(asked * 7 % 3_000 + asked))).collect();
        for turn in &turns {
            let within = turns.iter().filter(|other| **other >= *turn && **other < *turn + Duration::from_secs(1));
            assert!(within.count() <= 12);
        }
    }
}

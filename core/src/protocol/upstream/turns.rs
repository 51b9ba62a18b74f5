//! Which types are on the next opening of a stream, if the server has ended the last ones, and the reason may be a type or the view itself.
//!
//! Types of the table have nearly all openings, because a client that makes up types must not delay those of others. Invariant: however many
//! types are made up meanwhile, all types of the table are together on one of every `1 + n` openings that are theirs, where `n` is their number.

/// The turns since the server last took a type.
#[derive(Debug, Default)]
pub(super) struct Turns {
    has_begun: bool,
    /// How many types had an opening of their own since all were on one.
    alone: usize,
    /// How many openings have ended since one was for a type outside of the table.
    since_outside: usize,
}

/// Which types are on the next opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// All types of the table, since the server may refuse the view and not a type. If there are none, the type outside of it that has waited longest.
    All,
    /// The type of the table that has waited longest, or one outside of it if the table has none here.
    One,
    /// The type outside of the table that has waited longest.
    Outside,
}

impl Turns {
    /// Records that an opening was ended. Returns what is on the next one, from the number of types inside and outside of the table.
    pub(super) fn next(&mut self, of_table: usize, outside: usize) -> Turn {
        self.since_outside += 1;
        // The first end may have been one bad moment of the server.
        if !std::mem::replace(&mut self.has_begun, true) {
            return Turn::All;
        }
        if of_table > 0 && outside > 0 && self.alone == 0 && self.since_outside >= BETWEEN {
            self.since_outside = 0;
            return Turn::Outside;
        }
        let singles = if of_table > 0 { of_table } else { outside.min(SINGLES) };
        if singles > 1 && self.alone < singles {
            self.alone += 1;
            return Turn::One;
        }
        self.alone = 0;
        Turn::All
    }
}

/// One of this many openings, at most, is for a type outside of the table.
const BETWEEN: usize = 8;
/// If there are only types outside of the table: how many of them have a turn, before a turn is for the case that the server refuses the view.
const SINGLES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(count: usize, of_table: usize, outside: impl Fn(usize) -> usize) -> Vec<Turn> {
        let mut turns = Turns::default();
        (0..count).map(|at| turns.next(of_table, outside(at))).collect()
    }

    #[test]
    fn types_that_are_made_up_take_at_most_one_opening_of_eight_whatever_their_number() {
        for of_table in 1..6 {
            let without = turns(90, of_table, |_| 0);
            let with = turns(100, of_table, |at| 1 + at * at);
            let outside = with.iter().filter(|turn| **turn == Turn::Outside).count();
            assert!((5..=12).contains(&outside), "{of_table}: {outside}");
            let others: Vec<_> = with.into_iter().filter(|turn| *turn != Turn::Outside).collect();
            let common = others.len().min(without.len());
            assert_eq!(others[..common], without[..common], "{of_table}");
        }
    }

    #[test]
    fn where_there_are_no_others_each_has_its_turn_and_now_and_then_it_may_be_the_view() {
        let all = turns(100, 0, |at| 1 + at);
        let between: Vec<_> = all.split(|turn| *turn == Turn::All).map(<[Turn]>::len).collect();
        assert!(between.iter().all(|singles| *singles <= SINGLES), "{between:?}");
        assert!(all.iter().filter(|turn| **turn == Turn::One).count() > 80 && !all.contains(&Turn::Outside));
    }
}

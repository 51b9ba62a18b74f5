//! How far a client of `*` has been told, and so what it may hold, without keeping a name.

use crate::protocol::unit::{Entry, Seq};

/// Removals up to one number, and the states whose additions were told since.
#[derive(Debug)]
pub(super) struct Progress {
    removals: Seq,
    /// First and last mark of each; where bursts were cut short again and again, neighbours are put together.
    additions: Vec<(Seq, Seq)>,
}

impl Progress {
    /// The first answer tells of this state.
    pub fn starting(mark: Seq) -> Self {
        Self { removals: mark, additions: vec![(mark, mark)] }
    }

    pub fn removals(&self) -> Seq {
        self.removals
    }

    pub fn told_additions(&mut self, mark: Seq) {
        if self.additions.last().is_some_and(|(_, last)| *last == mark) {
            return;
        }
        self.additions.push((mark, mark));
        if self.additions.len() > REMEMBERED {
            let (_, last) = self.additions.remove(REMEMBERED);
            self.additions[REMEMBERED - 1].1 = last;
        }
    }

    /// Some removals are told, and more of this state will follow.
    pub fn told_removals_to(&mut self, seq: Seq) {
        self.removals = self.removals.max(seq);
    }

    /// All is told: the client holds what this state has.
    pub fn told_everything(&mut self, mark: Seq) {
        *self = Self::starting(mark);
    }

    /// Whether the client may hold something that is gone now.
    pub fn may_hold(&self, gone: &Entry) -> bool {
        self.additions.iter().any(|(from, to)| gone.lives.touch(*from, *to, gone.changed))
    }
}

const REMEMBERED: usize = 6;

//! How often types are tried. Clients can make up any number of types, so the types of the table have a pace of their own.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::moment::Moment;

/// The pace of types outside of the table, and the pace of the others, which wait for nothing that clients make up.
#[derive(Debug, Default)]
pub(super) struct TrialPaces {
    pub(super) outside: TrialPace,
    table: TrialPace,
}

impl TrialPaces {
    pub(super) fn note(&mut self, is_outside: bool, now: Moment) {
        let pace = if is_outside { &mut self.outside } else { &mut self.table };
        pace.note(now);
    }

    /// Returns when a trial may begin.
    pub(super) fn next(&self, is_outside: bool) -> Option<Moment> {
        if is_outside { self.outside.next() } else { self.table.next() }
    }
}

/// When the next trial of types of the table, or of other types, may begin.
#[derive(Debug, Default)]
pub(super) struct TrialPace {
    /// When the last trials began.
    begun: VecDeque<Moment>,
    /// How many times in a row a type was put back on the view's stream and not taken, and when the next one may be.
    put_back: u32,
    put_back_at: Option<Moment>,
}

/// How many trials may begin within a time.
const TRIALS: usize = 8;
const WITHIN: Duration = Duration::from_secs(30);

impl TrialPace {
    fn note(&mut self, now: Moment) {
        self.begun.push_back(now);
        if self.begun.len() > TRIALS {
            self.begun.pop_front();
        }
    }

    fn next(&self) -> Option<Moment> {
        self.begun.front().filter(|_| self.begun.len() >= TRIALS).map(|first| *first + WITHIN)
    }

    /// Records that a type is put back on the view's stream, which the server may end for it.
    pub(super) fn on_put_back(&mut self, now: Moment) {
        self.put_back_at = Some(now + pause_after(self.put_back));
        self.put_back += 1;
    }

    /// Records that the server takes a type that was put back.
    pub(super) fn on_taken(&mut self) {
        (self.put_back, self.put_back_at) = (0, None);
    }

    pub(super) fn put_back_at(&self) -> Option<Moment> {
        self.put_back_at
    }

    pub(super) fn may_put_back(&self, now: Moment) -> bool {
        self.put_back_at.is_none_or(|at| at <= now)
    }
}

/// Returns how long a type is kept off after this many failures.
pub(super) fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

const FIRST_PAUSE: Duration = Duration::from_secs(30);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

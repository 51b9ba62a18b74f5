//! How much an audit may make a server send, compared with what it sends the views.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::moment::Moment;

/// What the views and the audits of one relay have received from one server over a day.
#[derive(Debug, Default)]
pub struct AuditPace {
    of_views: BytesOfDay,
    of_audits: BytesOfDay,
    /// How many bytes the views had received at the last call of `note_views`.
    known: Option<u64>,
}

/// Bytes by the hour in which they came.
#[derive(Debug, Default)]
struct BytesOfDay(VecDeque<(Moment, u64)>);

impl AuditPace {
    /// Notes how much the views have received since the process began. The first note only sets the start: bytes before it do not count.
    pub fn note_views(&mut self, total: u64, now: Moment) {
        let before = self.known.replace(total).unwrap_or(total);
        self.of_views.add(total.saturating_sub(before), now);
    }

    /// Notes what an audit has received.
    pub fn note_audit(&mut self, bytes: u64, now: Moment) {
        self.of_audits.add(bytes, now);
    }

    /// Whether an audit may begin that is expected to receive `expected` bytes. All audits of a day may receive a hundredth of what views
    /// received, or 16 MiB if that is more. The first audit of a day may be larger.
    pub fn may_begin(&mut self, expected: u64, now: Moment) -> bool {
        let (views, audits) = (self.of_views.sum(now), self.of_audits.sum(now));
        audits == 0 || audits.saturating_add(expected) <= (views / 100).max(LEAST)
    }
}

impl BytesOfDay {
    fn add(&mut self, bytes: u64, now: Moment) {
        match self.0.back_mut().filter(|(began, _)| now - *began < HOUR) {
            _ if bytes == 0 => {}
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.0.push_back((now, bytes)),
        }
        self.forget(now);
    }

    fn sum(&mut self, now: Moment) -> u64 {
        self.forget(now);
        self.0.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn forget(&mut self, now: Moment) {
        while self.0.front().is_some_and(|(began, _)| now - *began >= DAY) {
            self.0.pop_front();
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// What audits of a day may always receive from one server, in bytes. Without it there would be no audit of a configuration that does not
/// change, since its server sends views nothing.
const LEAST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(hours: u32) -> Moment {
        Moment::START + hours * HOUR
    }

    #[test]
    fn audits_receive_a_hundredth_of_what_views_did_over_a_day() {
        let mut pace = AuditPace::default();
        pace.note_views(100_000 * MIB, at(0));
        assert!(pace.may_begin(1_000 * MIB, at(0)), "the first of a day");
        pace.note_audit(10 * MIB, at(0));
        assert!(pace.may_begin(6 * MIB, at(0)) && !pace.may_begin(7 * MIB, at(0)), "what came before does not count");
        pace.note_views(110_000 * MIB, at(1));
        assert!(pace.may_begin(90 * MIB, at(1)) && !pace.may_begin(91 * MIB, at(1)));
        assert!(pace.may_begin(100 * MIB, at(24)), "the audit is of the day before");
        pace.note_audit(20 * MIB, at(24));
        assert!(pace.may_begin(80 * MIB, at(24)) && !pace.may_begin(1, at(26)), "by then the views' bytes are, too");
    }

    #[test]
    fn what_is_kept_does_not_grow_with_what_comes() {
        let mut pace = AuditPace::default();
        for minute in 0..60 * 24 * 7 {
            let now = Moment::START + Duration::from_secs(60) * minute;
            pace.note_views(u64::from(minute) * MIB, now);
            pace.note_audit(1, now);
        }
        assert!(pace.of_views.0.len() <= 25 && pace.of_audits.0.len() <= 25);
    }
}

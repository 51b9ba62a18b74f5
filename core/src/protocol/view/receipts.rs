//! When changes were received, by revision.
//!
//! Owns a bounded record of publications, which is part of each snapshot. The older publications are, the more of them share one entry. So
//! an age that is read from the record is never too small, and too large by a share of itself at most.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::keys::Revision;
use crate::protocol::moment::Moment;

/// The publications with changes of one sort, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receipts(Arc<Vec<Receipt>>);

#[derive(Debug, Clone, Copy)]
struct Receipt {
    /// The last revision of the publications that share this entry.
    revision: Revision,
    /// When the oldest of their changes was received.
    received: Moment,
}

impl Receipts {
    /// Records a publication, by the last revision in it and the receipt of the oldest change in it.
    pub(super) fn note(&mut self, revision: Revision, received: Moment) {
        let kept = Arc::make_mut(&mut self.0);
        if kept.len() >= KEPT {
            let newest = kept.iter().map(|of| of.received).max().map_or(received, |newest| newest.max(received));
            let age = |at: usize| newest - kept[at].received + FINEST;
            let ratio = |at: &usize| age(*at).as_secs_f64() / age(*at + 1).as_secs_f64();
            let nearest = (0..kept.len() - 1).min_by(|one, other| ratio(one).total_cmp(&ratio(other)));
            if let Some(at) = nearest {
                let earlier = kept.remove(at);
                kept[at].received = kept[at].received.min(earlier.received);
            }
        }
        kept.push(Receipt { revision, received });
    }

    /// Returns when the oldest of all changes after a revision was received.
    pub(crate) fn oldest_after(&self, revision: Revision) -> Option<Moment> {
        self.0.iter().rev().take_while(|of| of.revision > revision).map(|of| of.received).min()
    }

    /// Returns when a change was received, by its revision.
    pub(crate) fn of(&self, change: Revision) -> Option<Moment> {
        let at = self.0.partition_point(|of| of.revision < change);
        self.0.get(at).map(|of| of.received)
    }
}

const KEPT: usize = 32;
/// Differences below this are of no interest.
const FINEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    fn receipts(milliseconds: impl IntoIterator<Item = u64>) -> (Receipts, Vec<Revision>) {
        let (mut receipts, mut revision, mut revisions) = (Receipts::default(), Revision::ZERO, Vec::new());
        for milliseconds in milliseconds {
            revision = revision.next().next(); // each publication has two changes
            receipts.note(revision, at(milliseconds));
            revisions.push(revision);
        }
        (receipts, revisions)
    }

    #[test]
    fn a_change_was_received_with_its_publication() {
        let (receipts, revisions) = receipts([5, 7, 9]);
        assert_eq!(receipts.oldest_after(Revision::ZERO), Some(at(5)));
        assert_eq!(receipts.oldest_after(revisions[0]), Some(at(7)));
        assert_eq!(receipts.oldest_after(revisions[2]), None);
        assert_eq!(receipts.of(revisions[0].next()), Some(at(7)));
        assert_eq!(receipts.of(revisions[1]), Some(at(7)));
        assert_eq!(receipts.of(revisions[2].next()), None);
    }

    #[test]
    fn a_change_that_waited_in_the_view_is_the_oldest_of_its_reply() {
        let (receipts, _) = receipts([5, 7, 2]);
        assert_eq!(receipts.oldest_after(Revision::ZERO.next().next()), Some(at(2)));
    }

    #[test]
    fn a_bounded_record_tells_the_age_of_a_change_within_a_factor_of_two() {
        let day = 24 * 60 * 60 * 1000;
        let (receipts, revisions) = receipts((0..day / 100).map(|tenth| tenth * 100));
        assert!(receipts.0.len() <= KEPT);
        for (place, revision) in revisions.iter().enumerate().step_by(997) {
            let (age, said) = (day - place as u64 * 100, at(day) - receipts.of(*revision).unwrap());
            let said = u64::try_from(said.as_millis()).unwrap();
            assert!(age <= said && said <= 2 * age + 200, "{said} ms for {age} ms");
        }
    }
}

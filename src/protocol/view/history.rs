//! When a name was present, as far back as a client may still need its removal.

use std::sync::Arc;

use super::revision::Revision;

/// The time since which a name is present (or was, until its tombstone), and earlier intervals that ended in a removal.
#[derive(Debug, Clone)]
pub(crate) struct PresenceHistory {
    since: Revision,
    earlier: Option<Arc<[Interval]>>,
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    since: Revision,
    removed: Revision,
}

impl PresenceHistory {
    pub(super) fn beginning(since: Revision) -> Self {
        Self { since, earlier: None }
    }

    /// The name is present again since `since`, after a removal at `removed`. Removals up to `horizon` are forgotten.
    pub(super) fn again(&self, removed: Revision, since: Revision, horizon: Revision) -> Self {
        let earlier = self.earlier.iter().flat_map(|presences| presences.iter().copied());
        let last = Interval { since: self.since, removed };
        let mut presences: Vec<_> = earlier.chain([last]).filter(|presence| presence.removed > horizon).collect();
        if presences.len() > REMEMBERED {
            // The two oldest are merged to one that covers both: a client may then be sent an unnecessary removal.
            presences[1].since = presences[0].since;
            presences.remove(0);
        }
        Self { since, earlier: (!presences.is_empty()).then(|| presences.into()) }
    }

    /// Whether the name was present at some time between two revisions, if it was last removed at `removed`.
    pub(crate) fn overlaps(&self, from: Revision, to: Revision, removed: Revision) -> bool {
        let earlier = self.earlier.iter().flat_map(|presences| presences.iter().copied());
        let last = Interval { since: self.since, removed };
        earlier.chain([last]).any(|presence| presence.since <= to && presence.removed > from)
    }
}

const REMEMBERED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: u64) -> Revision {
        (0..number).fold(Revision::ZERO, |revision, _| revision.next())
    }

    #[test]
    fn only_the_times_when_it_was_there_count() {
        let presences = PresenceHistory::beginning(revision(5)).again(revision(8), revision(20), Revision::ZERO);
        let there = |mark| presences.overlaps(revision(mark), revision(mark), revision(30));
        let marks: Vec<_> = (0..35).filter(|mark| there(*mark)).collect();
        assert_eq!(marks, [5, 6, 7, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
    }

    #[test]
    fn a_name_that_comes_and_goes_for_ever_is_remembered_in_bounded_space() {
        let mut presences = PresenceHistory::beginning(revision(1));
        for number in 1..100 {
            presences = presences.again(revision(number * 2), revision(number * 2 + 1), Revision::ZERO);
        }
        assert_eq!(presences.earlier.as_ref().map(|earlier| earlier.len()), Some(REMEMBERED));
        assert!(presences.overlaps(revision(1), revision(1), revision(300)));
    }
}

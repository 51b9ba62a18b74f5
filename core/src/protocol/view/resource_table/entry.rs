//! What is known of one name, and when it was present, as far back as a client may still need its removal.

use std::sync::Arc;

use crate::protocol::keys::Revision;
use crate::protocol::moment::Moment;
use crate::protocol::view::update::{NamedError, Origin};
use crate::xds::Resource;

/// What is known of one name.
#[derive(Debug, Clone)]
pub enum Presence {
    /// The resource that clients are sent.
    Present(Arc<Resource>),
    /// A tombstone. The body is dropped first, the name later.
    Absent(Option<Arc<Resource>>),
    /// Only an error is known.
    Unknown,
}

/// The result of applying a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    Unchanged,
    /// Another server has given the same. No client needs to know.
    Reattributed,
    /// Its TTL was extended or removed, or a server has confirmed what was loaded from disk. Only some clients need to know.
    Refreshed,
    Changed,
}

/// What a view knows of one name.
#[derive(Debug, Clone)]
pub struct TableEntry {
    /// The last change.
    pub changed: Revision,
    /// The last change of its body, which is all that a SotW client without wrappers sees.
    pub(crate) body_changed: Revision,
    pub(crate) history: PresenceHistory,
    /// Whether it is there.
    pub presence: Presence,
    /// The last reported error, with its revision (UP-46).
    pub error: Option<(Revision, Arc<NamedError>)>,
    /// When it expires unless the server extends its TTL (UP-40).
    pub expires: Option<Moment>,
    /// When its TTL was last set or removed.
    pub refreshed: Revision,
    /// The server that sent it.
    pub origin: Origin,
    /// Since when it is present from that server, absent or in error.
    pub since: Moment,
    /// Why it is absent, if it is, and when that was last reported on the present opening.
    pub absence: AbsenceEvidence,
    pub(super) reported: Revision,
}

impl TableEntry {
    /// Returns the entry of a name that changed now, with nothing else known of it.
    pub(super) fn new(presence: Presence, history: PresenceHistory, revision: Revision, now: Moment) -> Self {
        Self {
            changed: revision,
            body_changed: revision,
            history,
            presence,
            error: None,
            expires: None,
            refreshed: Revision::ZERO,
            origin: Origin::default(),
            since: now,
            absence: AbsenceEvidence::Reported,
            reported: Revision::ZERO,
        }
    }

    /// Returns the entry of a name that is absent from now on.
    pub(super) fn tombstone(
        last: Option<Arc<Resource>>,
        history: PresenceHistory,
        revision: Revision,
        now: Moment,
    ) -> Self {
        Self { reported: revision, ..Self::new(Presence::Absent(last), history, revision, now) }
    }

    /// Returns the resource, if it is present.
    pub fn resource(&self) -> Option<&Arc<Resource>> {
        match &self.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        }
    }

    /// Returns the resource, if clients of a later process may be given it.
    pub fn to_save(&self) -> Option<&Arc<Resource>> {
        self.resource().filter(|resource| !resource.do_not_cache())
    }

    /// Returns the history and the last body change that the entry has once a server gives this resource under its name.
    pub(super) fn continued_by(
        &self,
        given: &Resource,
        revision: Revision,
        horizon: Revision,
    ) -> (PresenceHistory, Revision) {
        match &self.presence {
            Presence::Present(held) if held.content() == given.content() => (self.history.clone(), self.body_changed),
            Presence::Present(_) => (self.history.clone(), revision),
            Presence::Absent(_) => (self.history.again(self.changed, revision, horizon), revision),
            Presence::Unknown => (PresenceHistory::beginning(revision), revision),
        }
    }

    /// Whether nothing changes if a member of a `*` set is sent again like this.
    pub(in crate::protocol::view) fn is_unchanged_by(&self, sent: &Arc<Resource>, origin: Origin) -> bool {
        let has_no_ttl = |held: &Resource| held.ttl.is_none() && sent.ttl.is_none();
        let is_same = |held: &Arc<Resource>| (Arc::ptr_eq(held, sent) || held.full == sent.full) && has_no_ttl(held);
        self.resource().is_some_and(is_same) && self.error.is_none() && self.origin == origin
    }
}

/// The evidence of an absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceEvidence {
    /// The server removed it, or reported that it does not exist.
    Reported,
    /// A live server was silent about it. That is not enough for clients that hold it.
    Silence,
    /// Its TTL ended, and no server has reported it absent (XLAT-15).
    Expired,
}

/// The revision since which a name is present, or was until its removal, and earlier intervals that ended in a removal.
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
    pub(crate) fn beginning(since: Revision) -> Self {
        Self { since, earlier: None }
    }

    /// The name is present again since `since`, after a removal at `removed`. Removals up to `horizon` are forgotten.
    pub(crate) fn again(&self, removed: Revision, since: Revision, horizon: Revision) -> Self {
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

//! How much is known of a set, and from when on its removals are evidence.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::{AbsenceEvidence, Presence, TableEntry};
use crate::protocol::keys::Revision;
use crate::protocol::view::update::Completeness;
use crate::xds::Name;

#[derive(Debug, Clone, Default)]
pub struct Coverage {
    completeness: Completeness,
    /// The stream or the server was lost after the last response for the set: no more of the set comes until the next opening.
    is_cut: bool,
    has_expired: bool,
    /// Removals since then were reported on the present opening: evidence also for clients that connected since.
    evidence_from: Revision,
    /// Names of resources that could not be read and have no cached value.
    unreadable: Arc<BTreeSet<Name>>,
}

impl Coverage {
    /// How much is known of the `*` set.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    pub(in crate::protocol::view) fn set_completeness(&mut self, completeness: Completeness) {
        self.completeness = completeness;
    }

    /// Whether a resource has expired since upstream last sent something of the set.
    pub fn has_expired(&self) -> bool {
        self.has_expired
    }

    pub(in crate::protocol::view) fn set_expired(&mut self, has_expired: bool) {
        self.has_expired = has_expired;
    }

    /// Whether every resource of the set could be read or has a cached value.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Whether the server has sent an unreadable resource under a name, and nothing is cached of it. The resource exists.
    pub(crate) fn is_unreadable(&self, name: &Name) -> bool {
        self.unreadable.contains(name)
    }

    /// Returns whether that is a change.
    pub(in crate::protocol::view) fn set_unreadable(&mut self, names: BTreeSet<Name>) -> bool {
        let changed = *self.unreadable != names;
        if changed {
            self.unreadable = Arc::new(names);
        }
        changed
    }

    /// Another server has become active, or the same one was opened again: earlier removals are no evidence for clients that
    /// connect later.
    pub(in crate::protocol::view) fn interrupt(&mut self, at: Revision) {
        self.evidence_from = at;
        self.is_cut = true;
    }

    /// The server has said something of the set.
    pub(in crate::protocol::view) fn resume(&mut self) {
        self.is_cut = false;
    }

    /// Whether something of the set has come, and no more will for now because its stream is lost. Then no client needs to wait for its
    /// quiet.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut && self.completeness > Completeness::Unknown
    }

    /// Returns a revision that changes with each opening.
    pub(crate) fn opening(&self) -> Revision {
        self.evidence_from
    }

    /// Whether there is evidence that a name is absent which also counts for a client that stated the name.
    pub fn is_absent_by_evidence(&self, entry: &TableEntry) -> bool {
        let said = matches!(entry.presence, Presence::Absent(_)) && entry.absence == AbsenceEvidence::Reported;
        said && entry.reported > self.evidence_from || entry.absence == AbsenceEvidence::Expired
    }
}

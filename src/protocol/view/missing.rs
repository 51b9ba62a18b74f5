//! What clients want and the cache lacks, and whether that is a reason for a fallback (FB-4 to FB-6).

use super::collections::Collection;
use super::keys::{Class, Selector};
use super::resource_table::{AbsenceEvidence, Entry};
use super::update::Completeness;
use super::{Presence, View};
use crate::xds::{Name, Type};

impl View {
    /// Returns whether a name has a value, an error or known absence, or whether a set is complete enough for clients without
    /// state. An expired resource is neither a value nor known absence, and the set that it was in is not cached.
    pub(crate) fn is_cached(&self, kind: &Type, wanted: &Selector) -> bool {
        let table = |class| self.tables.get(&(kind.clone(), class));
        match wanted {
            Selector::Wildcard => table(Class::Wildcard)
                .is_some_and(|table| table.completeness >= Completeness::FirstResponse && !table.has_expired),
            Selector::Name(name) => table(Class::Named).is_some_and(|table| {
                let known = |entry: &Entry| entry.absence != AbsenceEvidence::Expired || entry.error.is_some();
                let whole = |of: &Collection| of.completeness >= Completeness::FirstResponse && !of.lapsed;
                table.get(name).is_some_and(known) || table.collection(name).is_some_and(whole)
            }),
        }
    }

    /// Returns the completeness of a set.
    pub(crate) fn completeness_of(&self, kind: &Type, of: &Selector) -> Completeness {
        self.facts().completeness_of(kind, of)
    }

    /// Returns whether this is wanted, not cached, and a reason for a fallback. It is not a reason if no client wants it any more,
    /// or only sessions that request more absent names than the limit.
    pub(crate) fn is_missing(&self, kind: &Type, wanted: &Selector) -> bool {
        !self.is_cached(kind, wanted) && self.interest.awaits(kind, wanted)
    }

    /// Sessions that request more absent names than the limit: those names do not trigger fallback.
    pub(crate) fn over_absent_limit(&self) -> usize {
        self.interest.over_absent_limit()
    }

    /// Returns whether any matching selector is missing.
    pub(crate) fn misses_any(&self, of: impl Fn(&Selector) -> bool) -> bool {
        self.interest.all().any(|(kind, wanted)| of(&wanted) && self.is_missing(kind, &wanted))
    }

    /// Returns all missing selectors, in no order.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&Type, Selector)> {
        self.interest.all().filter(|(kind, wanted)| self.is_missing(kind, wanted))
    }

    /// Updates the absent-name counts of the sessions that want a name.
    pub(super) fn note_absence(&mut self, kind: &Type, name: &Name) {
        let entry = self.tables.get(&(kind.clone(), Class::Named)).and_then(|table| table.get(name));
        let absent = entry.is_some_and(|entry| {
            matches!(entry.presence, Presence::Absent(_)) && entry.absence != AbsenceEvidence::Expired
        });
        self.interest.note_absence(kind, name, absent && !name.is_glob());
    }
}

//! What clients want and the cache lacks, and whether that is a reason for a fallback (FB-4 to FB-6).

use std::collections::BTreeSet;

use super::claims::{Claim, Claimed};
use super::collections::Collection;
use super::interest::Interest;
use super::resource_table::{AbsenceEvidence, Presence, TableEntry};
use super::tables::Tables;
use super::update::Completeness;
use crate::protocol::keys::{Class, Selector, SessionId};
use crate::xds::{Authority, Name, Type};

/// The interest in a view beside what is cached.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    tables: &'a Tables,
    interest: &'a Interest,
}

impl<'a> Wants<'a> {
    pub(super) fn new(tables: &'a Tables, interest: &'a Interest) -> Self {
        Self { tables, interest }
    }

    /// Returns everything to request from a server that is opened now, each with whether it is cached already (FB-4).
    pub fn all(self) -> impl Iterator<Item = (&'a Type, Selector, bool)> {
        self.interest.all().map(move |(kind, selector)| {
            let cached = self.is_cached(kind, &selector);
            (kind, selector, cached)
        })
    }

    /// Returns whether there is interest, including interest that lingers.
    pub fn is_any(self) -> bool {
        self.interest.is_any()
    }

    /// Like [`Self::is_any`], for one authority.
    pub(crate) fn is_any_of(self, authority: &Authority) -> bool {
        self.interest.is_any_of(authority)
    }

    /// Returns whether a name has a value, an error or known absence, or whether a set is complete enough for clients without
    /// state. An expired resource is neither a value nor known absence, and the set that it was in is not cached.
    pub(crate) fn is_cached(self, kind: &Type, selector: &Selector) -> bool {
        match selector {
            Selector::Wildcard => self.tables.table(kind, Class::Wildcard).is_some_and(|table| {
                table.coverage().completeness() >= Completeness::FirstResponse && !table.coverage().has_expired()
            }),
            Selector::Name(name) => self.tables.table(kind, Class::Named).is_some_and(|table| {
                let known = |entry: &TableEntry| entry.absence != AbsenceEvidence::Expired || entry.error.is_some();
                let whole = |of: &Collection| of.completeness >= Completeness::FirstResponse && !of.lapsed;
                table.get(name).is_some_and(known) || table.collections().get(name).is_some_and(whole)
            }),
        }
    }

    /// Returns whether this is wanted and not cached. It does not count if no client wants it any more, or only sessions that request more
    /// absent names than the limit.
    pub(crate) fn is_missing(self, kind: &Type, selector: &Selector) -> bool {
        !self.is_cached(kind, selector) && self.interest.awaits(kind, selector)
    }

    /// Returns whether this is missing and a reason for a fallback. What the server has sent without room for it is no reason: the same from
    /// another server would have no room either.
    pub(crate) fn is_reason(self, kind: &Type, selector: &Selector) -> bool {
        self.is_missing(kind, selector) && !self.lacks_room(kind, selector)
    }

    fn lacks_room(self, kind: &Type, selector: &Selector) -> bool {
        let without_room = self.tables.without_room();
        let has = |name: &Name| without_room.has(kind, Class::Named, name);
        !without_room.has_room() && matches!(selector, Selector::Name(name) if has(name))
    }

    /// Returns how many sessions request more absent names than the limit. Names that only such sessions want do not trigger fallback.
    pub fn over_absent_limit(self) -> usize {
        self.interest.over_absent_limit()
    }

    /// Returns whether any matching selector is a reason for a fallback.
    pub(crate) fn has_reason(self, of: impl Fn(&Type, &Selector) -> bool) -> bool {
        self.interest.all().any(|(kind, selector)| of(kind, &selector) && self.is_reason(kind, &selector))
    }

    /// Returns the sessions that subscribe to anything of a type that an authority has.
    pub fn sessions(self, kind: &Type, authority: &Authority) -> BTreeSet<SessionId> {
        self.interest.sessions(kind, authority)
    }

    /// Returns all missing selectors, in no order.
    pub fn missing(self) -> impl Iterator<Item = (&'a Type, Selector)> {
        self.interest.all().filter(move |(kind, selector)| self.is_missing(kind, selector))
    }

    /// Whether what a client claims is wanted and unknown, so that a server is to be asked for it once more.
    pub(super) fn is_claim_open(self, claim: &Claim) -> bool {
        match &claim.of {
            Claimed::Set => {
                self.interest.has_wildcard(&claim.kind)
                    && self.tables.completeness_of(&claim.kind, &Selector::Wildcard) != Completeness::Complete
            }
            Claimed::Name(class, name) => {
                let wanted = match class {
                    Class::Wildcard => self.interest.has_wildcard(&claim.kind),
                    Class::Named => self.interest.covers(&claim.kind, name),
                };
                let table = self.tables.table(&claim.kind, *class);
                let known = table.and_then(|table| Some((table, table.get(name)?))).is_some_and(|(table, entry)| {
                    matches!(entry.presence, Presence::Present(_)) || table.coverage().is_absent_by_evidence(entry)
                });
                wanted && !known
            }
        }
    }

    /// Whether a name counts as absent for the sessions that want it: it is known to be absent, did not expire, and is not a glob.
    pub(super) fn is_absent(self, kind: &Type, name: &Name) -> bool {
        let entry = self.tables.entry(kind, Class::Named, name);
        let absent = entry.is_some_and(|entry| {
            matches!(entry.presence, Presence::Absent(_)) && entry.absence != AbsenceEvidence::Expired
        });
        absent && !name.is_glob()
    }
}

//! What is wanted and the cache cannot serve, and whether that is a reason to turn to another server (FB-4 to FB-6).

use super::interest::Wanted;
use super::shelf::Fill;
use super::state::Class;
use super::{Presence, Unit};
use crate::xds::{Name, Type};

impl Unit {
    /// Whether a value, absence, or trouble is known; of `*`, whether a set has come at all.
    pub fn is_cached(&self, kind: &Type, wanted: &Wanted) -> bool {
        let shelf = |class| self.shelves.get(&(kind.clone(), class));
        match wanted {
            Wanted::Star => shelf(Class::Star).is_some_and(|shelf| shelf.fill != Fill::Cold),
            Wanted::Name(name) => shelf(Class::Named).is_some_and(|shelf| {
                let begun = |fill| fill != Fill::Cold;
                shelf.get(name).is_some() || shelf.fill_of(name).is_some_and(begun)
            }),
        }
    }

    /// Whether this is wanted, not cached, and by who waits for it a reason to turn to another server. Nobody may wait for it any
    /// more, or only sessions that ask for a great many names that nobody has.
    pub fn is_missing(&self, kind: &Type, wanted: &Wanted) -> bool {
        !self.is_cached(kind, wanted) && self.interest.awaits(kind, wanted)
    }

    /// Whether any of these things is missing.
    pub fn misses_any(&self, of: impl Fn(&Wanted) -> bool) -> bool {
        self.interest.all().any(|(kind, wanted)| of(&wanted) && self.is_missing(kind, &wanted))
    }

    /// Counts a name for those who want it, by whether it is known now that there is none.
    pub(super) fn note_absence(&mut self, kind: &Type, name: &Name) {
        let entry = self.shelves.get(&(kind.clone(), Class::Named)).and_then(|shelf| shelf.get(name));
        let absent = entry.is_some_and(|entry| matches!(entry.presence, Presence::Gone(_)));
        self.interest.note_absence(kind, name, absent && !name.is_glob());
    }
}

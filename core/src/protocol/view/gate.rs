//! Keeps updates of a source from the tables while it is shut. Open by default.
//!
//! What it keeps is an overlay, the latest update of each name, and so bounded by the resources themselves.

use std::collections::BTreeMap;

use super::update::Update;
use crate::protocol::keys::{Class, Selector};
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct Gate {
    shut: BTreeMap<Type, Overlay>,
}

#[derive(Debug, Default)]
struct Overlay {
    /// The last complete set, which the updates below came after.
    whole: Option<Update>,
    latest: BTreeMap<(Class, Name), Update>,
    completeness: Option<Update>,
}

impl Gate {
    pub(super) fn is_shut(&self, kind: &Type) -> bool {
        self.shut.contains_key(kind)
    }

    pub(super) fn shut(&mut self, kind: Type) {
        self.shut.entry(kind).or_default();
    }

    /// Returns the updates that pass at once: all of them, if no type is shut.
    pub(super) fn pass(&mut self, updates: Vec<Update>) -> Vec<Update> {
        if self.shut.is_empty() {
            return updates;
        }
        updates.into_iter().filter_map(|update| self.pass_one(update)).collect()
    }

    /// Updates for an interest that has ended are dropped: they do not answer a later one.
    pub(super) fn forget(&mut self, kind: &Type, wanted: &Selector) {
        let Some(overlay) = self.shut.get_mut(kind) else { return };
        match wanted {
            Selector::Name(name) => overlay.latest.retain(|(class, key), _| {
                *class != Class::Named || (key != name && key.collection().as_ref() != Some(name))
            }),
            Selector::Wildcard => {
                (overlay.whole, overlay.completeness) = (None, None);
                overlay.latest.retain(|(class, _), _| *class != Class::Wildcard);
            }
        }
    }

    /// Opens the gate for a type, and returns what it kept.
    pub(super) fn open(&mut self, kind: &Type) -> Vec<Update> {
        let Some(Overlay { whole, latest, completeness }) = self.shut.remove(kind) else { return Vec::new() };
        whole.into_iter().chain(latest.into_values()).chain(completeness).collect()
    }

    fn pass_one(&mut self, update: Update) -> Option<Update> {
        let (kind, name) = update.subject();
        let key = name.map(|(class, name)| (class, name.clone()));
        let Some(overlay) = self.shut.get_mut(kind) else { return Some(update) };
        match &update {
            // Extended TTLs and errors change no content, and an expiry is no word of the server: they are not kept back. The progress of a
            // collection passes too, since its members are kept one by one.
            Update::Refresh { .. }
            | Update::Expired { .. }
            | Update::Error { .. }
            | Update::Unreadable { .. }
            | Update::Unchanged { .. }
            | Update::RemovalHeld { .. }
            | Update::PartHeld { .. }
            | Update::Progress { of: Selector::Name(_), .. } => return Some(update),
            Update::Interrupted { .. } => {
                overlay.completeness = None; // an interrupted set is not complete when the gate opens
                return Some(update);
            }
            Update::Upsert { .. } | Update::Absent { .. } | Update::Kept { .. } => {
                overlay.latest.extend(key.map(|key| (key, update)));
            }
            Update::FullSet { .. } => {
                overlay.latest.retain(|(class, _), _| *class != Class::Wildcard);
                overlay.whole = Some(update);
            }
            Update::Progress { of: Selector::Wildcard, .. } => overlay.completeness = Some(update),
        }
        None
    }
}

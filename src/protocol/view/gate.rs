//! The place between a source and a shelf where what has arrived can be kept from clients. Open by default.
//!
//! What is kept is an overlay, the latest fact for each name, and so bounded by the resources themselves.

use std::collections::BTreeMap;

use super::class::Class;
use super::{Selector, Type, Update};
use crate::xds::Name;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: BTreeMap<Type, Overlay>,
}

#[derive(Debug, Default)]
struct Overlay {
    /// The last whole set, which the facts below came after.
    whole: Option<Update>,
    latest: BTreeMap<(Class, Name), Update>,
    completeness: Option<Update>,
}

impl Gate {
    pub(crate) fn is_shut(&self, kind: &Type) -> bool {
        self.shut.contains_key(kind)
    }

    pub(crate) fn shut(&mut self, kind: Type) {
        self.shut.entry(kind).or_default();
    }

    /// The facts that go on at once. The common gate is open for everything and passes them as they are.
    pub(crate) fn pass(&mut self, updates: Vec<Update>) -> Vec<Update> {
        if self.shut.is_empty() {
            return updates;
        }
        updates.into_iter().filter_map(|update| self.pass_one(update)).collect()
    }

    /// What was said to an interest that has ended is no answer to a later one.
    pub(crate) fn forget(&mut self, kind: &Type, wanted: &Selector) {
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

    /// Opens the gate for a type, and lets out what it kept.
    pub(crate) fn open(&mut self, kind: &Type) -> Vec<Update> {
        let Some(Overlay { whole, latest, completeness }) = self.shut.remove(kind) else { return Vec::new() };
        whole.into_iter().chain(latest.into_values()).chain(completeness).collect()
    }

    fn pass_one(&mut self, update: Update) -> Option<Update> {
        let (kind, name) = update.subject();
        let key = name.map(|(class, name)| (class, name.clone()));
        let Some(overlay) = self.shut.get_mut(kind) else { return Some(update) };
        match (key, update) {
            // More time for what is held, and news of trouble, change no content: they are not kept back.
            (_, update @ (Update::Refresh { .. } | Update::Error { .. } | Update::Unreadable { .. })) => {
                return Some(update);
            }
            (_, update @ Update::Interrupted { .. }) => {
                overlay.completeness = None; // a set that was cut off does not become whole by being let out
                return Some(update);
            }
            // Of a collection there is no end to keep: its pieces say how much is known, and its members are kept one by one.
            (Some(_), update @ Update::Progress { .. }) => return Some(update),
            (Some(key), update) => drop(overlay.latest.insert(key, update)),
            (None, update @ Update::FullSet { .. }) => {
                overlay.latest.retain(|(class, _), _| *class != Class::Wildcard);
                overlay.whole = Some(update);
            }
            (None, update) => overlay.completeness = Some(update),
        }
        None
    }
}

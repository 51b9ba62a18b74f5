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
    fill: Option<Update>,
}

impl Gate {
    pub(crate) fn is_shut(&self, kind: &Type) -> bool {
        self.shut.contains_key(kind)
    }

    pub(crate) fn shut(&mut self, kind: Type) {
        self.shut.entry(kind).or_default();
    }

    /// The facts that go on at once. The common gate is open for everything and passes them as they are.
    pub(crate) fn pass(&mut self, facts: Vec<Update>) -> Vec<Update> {
        if self.shut.is_empty() {
            return facts;
        }
        facts.into_iter().filter_map(|fact| self.pass_one(fact)).collect()
    }

    /// What was said to an interest that has ended is no answer to a later one.
    pub(crate) fn forget(&mut self, kind: &Type, wanted: &Selector) {
        let Some(overlay) = self.shut.get_mut(kind) else { return };
        match wanted {
            Selector::Name(name) => overlay.latest.retain(|(class, key), _| {
                *class != Class::Named || (key != name && key.collection().as_ref() != Some(name))
            }),
            Selector::Wildcard => {
                (overlay.whole, overlay.fill) = (None, None);
                overlay.latest.retain(|(class, _), _| *class != Class::Wildcard);
            }
        }
    }

    /// Opens the gate for a type, and lets out what it kept.
    pub(crate) fn open(&mut self, kind: &Type) -> Vec<Update> {
        let Some(Overlay { whole, latest, fill }) = self.shut.remove(kind) else { return Vec::new() };
        whole.into_iter().chain(latest.into_values()).chain(fill).collect()
    }

    fn pass_one(&mut self, fact: Update) -> Option<Update> {
        let (kind, name) = fact.subject();
        let key = name.map(|(class, name)| (class, name.clone()));
        let Some(overlay) = self.shut.get_mut(kind) else { return Some(fact) };
        match (key, fact) {
            // More time for what is held, and news of trouble, change no content: they are not kept back.
            (_, fact @ (Update::Refresh { .. } | Update::Error { .. } | Update::Unreadable { .. })) => {
                return Some(fact);
            }
            (_, fact @ Update::Interrupted { .. }) => {
                overlay.fill = None; // a set that was cut off does not become whole by being let out
                return Some(fact);
            }
            // Of a collection there is no end to keep: its pieces say how much is known, and its members are kept one by one.
            (Some(_), fact @ Update::Progress { .. }) => return Some(fact),
            (Some(key), fact) => drop(overlay.latest.insert(key, fact)),
            (None, fact @ Update::FullSet { .. }) => {
                overlay.latest.retain(|(class, _), _| *class != Class::Wildcard);
                overlay.whole = Some(fact);
            }
            (None, fact) => overlay.fill = Some(fact),
        }
        None
    }
}

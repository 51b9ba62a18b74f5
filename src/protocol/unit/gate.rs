//! The place between a source and a shelf where what has arrived can be kept from clients. Open by default.
//!
//! What is kept is an overlay, the latest fact for each name, and so bounded by the resources themselves.

use std::collections::BTreeMap;

use super::state::Class;
use super::{Fact, Type, Wanted};
use crate::xds::Name;

#[derive(Debug, Default)]
pub struct Gate {
    shut: BTreeMap<Type, Overlay>,
}

#[derive(Debug, Default)]
struct Overlay {
    /// The last whole set, which the facts below came after.
    whole: Option<Fact>,
    latest: BTreeMap<(Class, Name), Fact>,
    fill: Option<Fact>,
}

impl Gate {
    pub fn is_shut(&self, kind: &Type) -> bool {
        self.shut.contains_key(kind)
    }

    pub fn shut(&mut self, kind: Type) {
        self.shut.entry(kind).or_default();
    }

    /// The facts that go on at once. The common gate is open for everything and passes them as they are.
    pub fn pass(&mut self, facts: Vec<Fact>) -> Vec<Fact> {
        if self.shut.is_empty() {
            return facts;
        }
        facts.into_iter().filter_map(|fact| self.pass_one(fact)).collect()
    }

    /// What was said to an interest that has ended is no answer to a later one.
    pub fn forget(&mut self, kind: &Type, wanted: &Wanted) {
        let Some(overlay) = self.shut.get_mut(kind) else { return };
        match wanted {
            Wanted::Name(name) => overlay.latest.retain(|(class, key), _| {
                *class != Class::Named || (key != name && key.collection().as_ref() != Some(name))
            }),
            Wanted::Star => {
                (overlay.whole, overlay.fill) = (None, None);
                overlay.latest.retain(|(class, _), _| *class != Class::Star);
            }
        }
    }

    /// Opens the gate for a type, and lets out what it kept.
    pub fn open(&mut self, kind: &Type) -> Vec<Fact> {
        let Some(Overlay { whole, latest, fill }) = self.shut.remove(kind) else { return Vec::new() };
        whole.into_iter().chain(latest.into_values()).chain(fill).collect()
    }

    fn pass_one(&mut self, fact: Fact) -> Option<Fact> {
        let (kind, name) = fact.subject();
        let key = name.map(|(class, name)| (class, name.clone()));
        let Some(overlay) = self.shut.get_mut(kind) else { return Some(fact) };
        match (key, fact) {
            // More time for what is held, and news of trouble, change no content: they are not kept back.
            (_, fact @ (Fact::Refresh { .. } | Fact::Error { .. } | Fact::Unread { .. })) => return Some(fact),
            (_, fact @ Fact::Interrupted { .. }) => {
                overlay.fill = None; // a set that was cut off does not become whole by being let out
                return Some(fact);
            }
            // Of a collection there is no end to keep: its pieces say how much is known, and its members are kept one by one.
            (Some(_), fact @ Fact::Filled { .. }) => return Some(fact),
            (Some(key), fact) => drop(overlay.latest.insert(key, fact)),
            (None, fact @ Fact::Whole { .. }) => {
                overlay.latest.retain(|(class, _), _| *class != Class::Star);
                overlay.whole = Some(fact);
            }
            (None, fact) => overlay.fill = Some(fact),
        }
        None
    }
}

//! What differs in a set that a server sends again, or in a collection that it removes, as single updates.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec;

use super::stage::StageFacts;
use super::update::{Completeness, Evidence, Origin, Retain, Update};
use crate::protocol::keys::{Class, Selector};
use crate::xds::{Name, Resource, Type};

/// The updates, one by one: what has changed, what has vanished, and that all of the set has come.
#[derive(Debug)]
pub(super) struct Differences {
    kind: Type,
    class: Class,
    changed: vec::IntoIter<Arc<Resource>>,
    vanished: vec::IntoIter<Name>,
    is_complete: bool,
}

impl Differences {
    /// Finds what a `*` set changes and removes. In a large set these are few. Only they are applied, unless `all` is set.
    pub(super) fn of_set(
        kind: Type,
        sent: &[Arc<Resource>],
        retain: &Retain,
        origin: Origin,
        facts: &StageFacts,
        all: bool,
    ) -> Self {
        let class = Class::Wildcard;
        let table = facts.tables().table(&kind, class);
        // A set of hundreds of thousands is looked up once.
        let (mut present, mut changed) = (0, Vec::new());
        for resource in sent {
            let entry = table.and_then(|table| table.get(&resource.name));
            present += usize::from(entry.is_some_and(|entry| entry.resource().is_some()));
            if all || !entry.is_some_and(|entry| entry.is_unchanged_by(resource, origin)) {
                changed.push(resource.clone());
            }
        }
        let vanished: Vec<Name> = match retain {
            Retain::These(names) if table.is_some_and(|table| table.journal().present() != present) => {
                let here: BTreeSet<&Name> = sent.iter().map(|resource| &resource.name).chain(names).collect();
                let names = table.into_iter().flat_map(|table| table.present_names());
                names.filter(|name| !here.contains(name)).cloned().collect()
            }
            Retain::These(_) | Retain::Everything => Vec::new(),
        };
        Self { kind, class, changed: changed.into_iter(), vanished: vanished.into_iter(), is_complete: true }
    }

    /// A collection is removed with its members.
    pub(super) fn of_removed_collection(kind: Type, glob: Name, facts: &StageFacts) -> Self {
        let members = facts.tables().collection(&kind, &glob).into_iter().flat_map(|of| of.members().cloned());
        let vanished = members.chain([glob]).collect::<Vec<_>>().into_iter();
        Self { kind, class: Class::Named, changed: Vec::new().into_iter(), vanished, is_complete: false }
    }
}

impl Iterator for Differences {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        let (kind, class) = (&self.kind, self.class);
        if let Some(resource) = self.changed.next() {
            return Some(Update::Upsert { kind: kind.clone(), class, key: resource.name.clone(), resource });
        }
        if let Some(key) = self.vanished.next() {
            return Some(Update::Absent { kind: kind.clone(), class, key, evidence: Evidence::Reported });
        }
        let (of, completeness) = (Selector::Wildcard, Completeness::Complete);
        std::mem::take(&mut self.is_complete).then(|| Update::Progress { kind: kind.clone(), of, completeness })
    }
}

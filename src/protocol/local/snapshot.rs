//! The resources of a source at one moment: never changed, shared by everybody who serves out of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::xds::{ContentHash, Name, Type};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Made from the content, so that it is the same after a restart and on every replica (I5).
    pub version: Arc<str>,
    pub body: Bytes,
    pub ttl: Option<Duration>,
}

pub type Items = BTreeMap<Name, Item>;

/// The resources of one type.
#[derive(Debug, Default)]
pub struct Set {
    items: Items,
    /// The snapshot that this was new in, and the set before it.
    number: u64,
    follows: Option<u64>,
    /// What differs from that set.
    changed: Vec<Name>,
}

#[derive(Debug, Default)]
pub struct Snapshot {
    number: u64,
    sets: BTreeMap<Type, Arc<Set>>,
    /// Everything that the source should hold has been read once. Until then what is missing is not absent (I3).
    complete: bool,
}

impl Item {
    pub fn new(kind: &Type, body: Bytes, ttl: Option<Duration>) -> Self {
        let content = ContentHash::of_body(kind.name(), &body);
        let version = match ttl {
            None => content,
            Some(ttl) => content.with([ttl.as_nanos().to_le_bytes().as_slice()]),
        };
        Self { version: version.to_string().into(), body, ttl }
    }
}

impl Set {
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// What differs from another set, if that is the one before this.
    pub(super) fn changed_since(&self, other: &Self) -> Option<&[Name]> {
        (self.follows == Some(other.number)).then_some(&self.changed)
    }
}

impl Snapshot {
    /// What the source holds now. What is complete once stays so: what comes to be unreadable later was there or is new.
    pub fn next(&self, items: BTreeMap<Type, Items>, complete: bool) -> Self {
        let number = self.number + 1;
        let mut sets = BTreeMap::new();
        for (kind, items) in items {
            let set = match self.sets.get(&kind) {
                None => Arc::new(Set { items, number, follows: None, changed: Vec::new() }),
                Some(before) => {
                    let changed = differences(&before.items, &items);
                    match changed.is_empty() {
                        true => before.clone(),
                        false => Arc::new(Set { items, number, follows: Some(before.number), changed }),
                    }
                }
            };
            sets.insert(kind, set);
        }
        Self { number, sets, complete: complete || self.complete }
    }

    pub fn set(&self, kind: &Type) -> Arc<Set> {
        self.sets.get(kind).cloned().unwrap_or_default()
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub fn resources(&self) -> usize {
        self.sets.values().map(|set| set.items.len()).sum()
    }
}

/// Names whose resource came, went, or has another version.
fn differences(before: &Items, after: &Items) -> Vec<Name> {
    let new = after.iter().filter(|(name, item)| before.get(*name).is_none_or(|old| old.version != item.version));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    new.map(|(name, _)| name).chain(gone).cloned().collect()
}

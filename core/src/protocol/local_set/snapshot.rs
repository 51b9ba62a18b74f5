//! The resources of a local set at one moment: immutable, and shared by all views that use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::xds::{Name, Resource, Type};

/// The resources of one type, by name.
pub type Items = BTreeMap<Name, Arc<Resource>>;

/// Names for whose resources there was no room.
pub type NamesWithoutRoom = BTreeMap<Name, ()>;

/// The resources of one type.
#[derive(Debug, Default)]
pub struct Set {
    items: Items,
    /// The same resources by their aliases.
    aliases: Items,
    /// Names of the set without a resource, because there was no room for it.
    without_room: NamesWithoutRoom,
    /// The number of the snapshot in which this set was new, and that of the set before it.
    number: u64,
    follows: Option<u64>,
    /// Names that differ from the set before.
    changed: Vec<Name>,
    /// How many resources have another name in the body than in the wrapper.
    misnamed: u64,
}

/// What it means that the set lacks a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// Nothing: other sources may have the name.
    Never,
    /// Nothing yet: parts of the set were never read.
    NotYet,
    /// The name is absent.
    Counts,
}

/// All resources of a source.
#[derive(Debug, Default)]
pub struct SourceSnapshot {
    number: u64,
    sets: BTreeMap<Type, Arc<Set>>,
    /// The whole set was read once. Until then, a name that it lacks is not absent (I3).
    complete: bool,
}

impl Set {
    fn of(items: Items, without_room: NamesWithoutRoom, number: u64) -> Self {
        let of_one = |resource: &Arc<Resource>| {
            let aliases = resource.aliases().iter();
            aliases.map(|alias| (alias.clone(), resource.clone())).collect::<Vec<_>>()
        };
        let aliases = items.values().flat_map(of_one).collect();
        let misnamed = items.values().filter(|resource| resource.name_mismatch).count() as u64;
        Self { items, aliases, without_room, number, follows: None, changed: Vec::new(), misnamed }
    }

    /// Returns the resources by their own names, without aliases.
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Returns the names without a resource, because there was no room for it.
    pub(super) fn without_room(&self) -> &NamesWithoutRoom {
        &self.without_room
    }

    /// Whether there is no resource of this name because there was no room for it. The name is not absent.
    pub fn lacks_room(&self, name: &Name) -> bool {
        self.without_room.contains_key(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.without_room.is_empty()
    }

    pub(super) fn misnamed(&self) -> u64 {
        self.misnamed
    }

    /// Looks up a resource by its name or an alias.
    pub(super) fn get(&self, name: &Name) -> Option<&Arc<Resource>> {
        self.items.get(name).or_else(|| self.aliases.get(name))
    }

    /// Returns the names that differ from another set, if that is the set before this one.
    pub(super) fn changed_since(&self, other: &Self) -> Option<&[Name]> {
        (self.follows == Some(other.number)).then_some(&self.changed)
    }
}

impl SourceSnapshot {
    /// Returns the snapshot that follows this one. The successors of a complete snapshot are complete: a resource that becomes unreadable later
    /// was present before, or is new.
    pub fn next(&self, items: BTreeMap<Type, Items>, complete: bool) -> Self {
        self.next_lacking(items, BTreeMap::new(), complete)
    }

    /// Like [`Self::next`], with names whose resources had no room. These names are not absent, and no set is complete without them.
    pub fn next_lacking(
        &self,
        mut items: BTreeMap<Type, Items>,
        mut without_room: BTreeMap<Type, NamesWithoutRoom>,
        complete: bool,
    ) -> Self {
        let number = self.number + 1;
        let mut sets = BTreeMap::new();
        for kind in without_room.keys() {
            items.entry(kind.clone()).or_default();
        }
        for (kind, items) in items {
            let new = Set::of(items, without_room.remove(&kind).unwrap_or_default(), number);
            let set = match self.sets.get(&kind) {
                None => new.into(),
                Some(before) => {
                    let mut changed =
                        [differences(&before.items, &new.items), differences(&before.aliases, &new.aliases)].concat();
                    let (lacked, lacks) = (&before.without_room, &new.without_room);
                    let either = lacked.keys().chain(lacks.keys());
                    changed
                        .extend(either.filter(|name| lacked.contains_key(*name) != lacks.contains_key(*name)).cloned());
                    match changed.is_empty() {
                        true => before.clone(),
                        false => Set { follows: Some(before.number), changed, ..new }.into(),
                    }
                }
            };
            sets.insert(kind, set);
        }
        Self { number, sets, complete: complete || self.complete }
    }

    /// Returns the resources of one type.
    pub fn set(&self, kind: &Type) -> Arc<Set> {
        self.sets.get(kind).cloned().unwrap_or_default()
    }

    /// Whether the whole set was read once.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns how many resources there are of all types.
    pub fn resources(&self) -> usize {
        self.sets.values().map(|set| set.items.len()).sum()
    }
}

/// Returns names whose resource is new, removed or changed.
fn differences(before: &Items, after: &Items) -> Vec<Name> {
    let new = after.iter().filter(|(name, resource)| before.get(*name).is_none_or(|old| !old.is_same(resource)));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    new.map(|(name, _)| name).chain(gone).cloned().collect()
}

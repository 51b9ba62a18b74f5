//! The resources of a source at one moment: immutable, and shared by all streams that serve them.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use crate::proto::discovery::Resource;
use crate::xds::{ContentHash, Name, Type};

/// A resource as it is sent.
#[derive(Debug, Clone)]
pub struct Item {
    /// The resource in its wrapper.
    pub wrapper: Arc<Resource>,
    pub(crate) version: Arc<str>,
}

/// The resources of one type, by name.
pub type Items = BTreeMap<Name, Item>;

/// The resources of one type.
#[derive(Debug, Default)]
pub struct Set {
    items: Items,
    /// The same resources by their aliases.
    aliases: Items,
    /// The number of the snapshot that this set was new in, and the number of the set before it.
    number: u64,
    follows: Option<u64>,
    /// Names that differ from that set.
    changed: Vec<Name>,
}

/// All resources of a source.
#[derive(Debug, Default)]
pub struct SourceSnapshot {
    number: u64,
    sets: BTreeMap<Type, Arc<Set>>,
    /// Everything that the source should hold has been read once. Until then a missing name is not absent (I3).
    complete: bool,
}

impl Item {
    /// The version is computed from the content and replaces the version of the wrapper. It is the same after a restart and on every
    /// replica, and changes if and only if the content does (I5).
    pub fn new(kind: &Type, name: &Name, mut wrapper: Resource) -> Self {
        let resource = wrapper.resource.take();
        let body = resource.as_ref().map_or(&[][..], |any| &any.value);
        (wrapper.name, wrapper.version) = (String::new(), String::new());
        let beside = wrapper.encode_to_vec();
        let content = ContentHash::of_body(kind.name(), body);
        let version = if beside.is_empty() { content } else { content.with([beside.as_slice()]) }.to_string();
        let wrapper = Resource { name: name.to_string(), version: version.clone(), resource, ..wrapper };
        Self { wrapper: wrapper.into(), version: version.into() }
    }
}

impl Set {
    fn of(items: Items, number: u64) -> Self {
        let of_item = |item: &Item| {
            let aliases = item.wrapper.aliases.iter().map(|alias| Name::canonical(alias));
            aliases.map(|alias| (alias, item.clone())).collect::<Vec<_>>()
        };
        let aliases = items.values().flat_map(of_item).collect();
        Self { items, aliases, number, follows: None, changed: Vec::new() }
    }

    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Looks up a resource by its name or an alias.
    pub(crate) fn get(&self, name: &Name) -> Option<&Item> {
        self.items.get(name).or_else(|| self.aliases.get(name))
    }

    /// Returns the names that differ from another set, if that is the one before this.
    pub(super) fn changed_since(&self, other: &Self) -> Option<&[Name]> {
        (self.follows == Some(other.number)).then_some(&self.changed)
    }
}

impl SourceSnapshot {
    /// Returns the snapshot that follows this one. A complete snapshot is followed by complete ones: what becomes unreadable later was
    /// present before, or is new.
    pub fn next(&self, items: BTreeMap<Type, Items>, complete: bool) -> Self {
        let number = self.number + 1;
        let mut sets = BTreeMap::new();
        for (kind, items) in items {
            let new = Set::of(items, number);
            let set = match self.sets.get(&kind) {
                None => new.into(),
                Some(before) => {
                    let changed =
                        [differences(&before.items, &new.items), differences(&before.aliases, &new.aliases)].concat();
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

    /// Whether everything that the source should hold has been read once.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many resources there are of all types.
    pub fn resources(&self) -> usize {
        self.sets.values().map(|set| set.items.len()).sum()
    }
}

/// Names whose resource is new, removed, or has another version.
fn differences(before: &Items, after: &Items) -> Vec<Name> {
    let new = after.iter().filter(|(name, item)| before.get(*name).is_none_or(|old| old.version != item.version));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    new.map(|(name, _)| name).chain(gone).cloned().collect()
}

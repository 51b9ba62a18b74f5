//! What was loaded from disk and is kept back from one client.

use std::collections::BTreeSet;

use crate::protocol::view::ResourceTable;
use crate::xds::Name;

/// Members of `*` that a client is not sent before a server has confirmed them. It is sent all others.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    names: BTreeSet<Name>,
    /// How many resources of the set were from disk when these were last looked at. None after some of them could not be sent.
    looked: Option<usize>,
}

impl Withheld {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        !self.names.is_empty() && self.names.contains(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    /// Withholds a resource, or one that was confirmed and cannot be sent now.
    pub(super) fn add(&mut self, name: Name) {
        self.names.insert(name);
        self.looked = None;
    }

    /// Returns those that a server has confirmed since the last call. What is not present any more is forgotten.
    pub(super) fn take_confirmed(&mut self, table: &ResourceTable) -> Vec<Name> {
        if self.names.is_empty() || self.looked == Some(table.loaded_from_disk()) {
            return Vec::new();
        }
        self.looked = Some(table.loaded_from_disk());
        let present = |name: &Name| table.get(name).is_some_and(|entry| entry.resource().is_some());
        let from_disk = |name: &Name| table.get(name).is_some_and(|entry| entry.origin.from_disk);
        let confirmed: Vec<Name> = self.names.extract_if(.., |name| !present(name) || !from_disk(name)).collect();
        confirmed.into_iter().filter(present).collect()
    }
}

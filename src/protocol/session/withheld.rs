//! What was loaded from disk and is kept back from one client.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::view::{Entry, ResourceTable};
use crate::protocol::visits::visit;
use crate::xds::Name;

/// Members of `*` that a client is not sent before a server has confirmed them. It is sent all others.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// With each whether the client may hold something under the name.
    names: BTreeMap<Name, bool>,
    /// How many resources of the set were from disk when these were last looked at, and how many of them a server had removed. None after
    /// some of them could not be sent.
    looked: Option<(usize, usize)>,
}

impl Withheld {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        !self.names.is_empty() && self.names.contains_key(name)
    }

    /// Whether the client may hold something under a name, if that is withheld.
    pub(super) fn may_hold(&self, name: &Name) -> Option<bool> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys().inspect(|_| visit())
    }

    /// Withholds a resource, or one that need not be kept back any more and cannot be sent now.
    pub(super) fn add(&mut self, name: Name, may_hold: bool) {
        self.names.insert(name, may_hold);
        self.looked = None;
    }

    /// Returns those that need not be kept back any more, by what has become of them since the last call: a server has confirmed them, or it
    /// has removed what the client does not hold. What is not present is forgotten.
    pub(super) fn take_free(&mut self, table: &ResourceTable) -> BTreeSet<Name> {
        let looked = Some((table.loaded_from_disk(), table.removed_since()));
        if self.names.is_empty() || self.looked == looked {
            return BTreeSet::new();
        }
        self.looked = looked;
        let present = |name: &Name| table.get(name).filter(|entry| entry.resource().is_some());
        let is_kept = |of: &Entry, may_hold: bool| of.origin.is_kept_back(|| may_hold);
        let is_free = |name: &Name, may_hold| present(name).is_none_or(|entry| !is_kept(entry, may_hold));
        let free = self.names.extract_if(.., |name, may_hold| is_free(name, *may_hold)).map(|(name, _)| name);
        free.filter(|name| present(name).is_some()).collect()
    }
}

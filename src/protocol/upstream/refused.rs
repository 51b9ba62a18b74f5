//! What came from a server and could not be used: it is there, and nobody knows what it is (UP-25).

use std::collections::BTreeSet;

use crate::protocol::unit::Wanted;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Refused {
    names: BTreeSet<Name>,
    /// Something of the last response had no name.
    pub unnamed: bool,
    /// There were more than are remembered, and which is not known.
    more: bool,
}

impl Refused {
    pub fn insert(&mut self, name: &Name, limit: usize) {
        if self.names.len() < limit {
            self.names.insert(name.clone());
        } else {
            self.more |= !self.names.contains(name);
        }
    }

    pub fn remove(&mut self, name: &Name) {
        self.names.remove(name);
    }

    pub fn retain(&mut self, keep: impl FnMut(&Name) -> bool) {
        self.names.retain(keep);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the server may have something under this name that is not known.
    pub fn may_be(&self, name: &Name) -> bool {
        self.more || self.names.contains(name)
    }

    /// Whether something of a set is not known.
    pub fn any_of(&self, set: &Wanted) -> bool {
        let within = |name: &Name| match set {
            Wanted::Star => true,
            Wanted::Name(glob) => name.collection().as_ref() == Some(glob),
        };
        self.unnamed || self.more || self.names.iter().any(within)
    }
}

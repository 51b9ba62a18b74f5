//! The collections that are requested of one server.

use std::collections::BTreeMap;

use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Globs(BTreeMap<Name, GlobState>);

#[derive(Debug, Default)]
struct GlobState {
    /// It was reported that this server cannot serve it.
    rejected: bool,
    /// The server has spoken of it, on this opening.
    begun: bool,
}

impl Globs {
    pub(crate) fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.0.insert(name.clone(), GlobState::default());
        }
    }

    /// Whether it was one.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.0.remove(name).is_some()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.0.keys()
    }

    /// The collection that a name is in.
    pub(crate) fn of(&self, name: &Name) -> Option<&Name> {
        if self.0.is_empty() {
            return None; // as nearly always; and to look for one is work
        }
        self.0.get_key_value(&name.collection()?).map(|(glob, _)| glob)
    }

    /// The server speaks of it. Whether for the first time.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        self.0.get_mut(glob).is_some_and(|standing| !std::mem::replace(&mut standing.begun, true))
    }

    /// Those that the server has spoken of.
    pub(crate) fn begun(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, standing)| standing.begun).map(|(name, _)| name)
    }

    /// Those of which that was reported.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, standing)| standing.rejected).map(|(name, _)| name)
    }

    pub(crate) fn any_unasked(&self) -> bool {
        self.0.values().any(|standing| !standing.rejected)
    }

    pub(crate) fn take_unasked(&mut self) -> Vec<Name> {
        let unasked = self.0.iter_mut().filter(|(_, standing)| !standing.rejected);
        let refuse = |(name, standing): (&Name, &mut GlobState)| {
            standing.rejected = true;
            name.clone()
        };
        unasked.map(refuse).collect()
    }

    /// Another server may answer next, or the same in another variant.
    pub(crate) fn disconnect(&mut self) {
        self.0.values_mut().for_each(|standing| *standing = GlobState::default());
    }
}

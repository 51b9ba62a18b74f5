//! The collections that are requested of one server.

use std::collections::BTreeMap;

use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Globs(BTreeMap<Name, GlobState>);

#[derive(Debug, Default)]
struct GlobState {
    /// An error was reported: this server cannot serve it.
    rejected: bool,
    /// The server has sent something of it on this opening.
    begun: bool,
}

impl Globs {
    pub(crate) fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.0.insert(name.clone(), GlobState::default());
        }
    }

    /// Returns whether it was there.
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
            return None; // the usual case; a look-up costs time
        }
        self.0.get_key_value(&name.collection()?).map(|(glob, _)| glob)
    }

    /// Notes that the server has sent something of it. Returns whether that is the first time.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        self.0.get_mut(glob).is_some_and(|standing| !std::mem::replace(&mut standing.begun, true))
    }

    /// Returns those that the server has sent something of.
    pub(crate) fn begun(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, standing)| standing.begun).map(|(name, _)| name)
    }

    /// Returns those for which an error was reported.
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

    /// Another server may answer next, or the same one in another variant.
    pub(crate) fn disconnect(&mut self) {
        self.0.values_mut().for_each(|standing| *standing = GlobState::default());
    }
}

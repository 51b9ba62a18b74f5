//! The collections that one server is asked for as a whole.

use std::collections::BTreeMap;

use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Globs(BTreeMap<Name, Standing>);

#[derive(Debug, Default)]
struct Standing {
    /// It was said that this server cannot be asked for it.
    refused: bool,
    /// The server has said something of it on this opening.
    begun: bool,
}

impl Globs {
    pub fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.0.insert(name.clone(), Standing::default());
        }
    }

    /// Whether it was one.
    pub fn remove(&mut self, name: &Name) -> bool {
        self.0.remove(name).is_some()
    }

    pub fn has(&self, name: &Name) -> bool {
        self.0.contains_key(name)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn all(&self) -> impl Iterator<Item = &Name> {
        self.0.keys()
    }

    /// The collection that a name is in.
    pub fn of(&self, name: &Name) -> Option<&Name> {
        if self.0.is_empty() {
            return None; // as nearly always; and to look for one is work
        }
        self.0.get_key_value(&name.collection()?).map(|(glob, _)| glob)
    }

    pub fn begin(&mut self, glob: &Name) {
        self.0.entry(glob.clone()).and_modify(|standing| standing.begun = true);
    }

    pub fn has_begun(&self, glob: &Name) -> bool {
        self.0.get(glob).is_some_and(|standing| standing.begun)
    }

    pub fn any_unasked(&self) -> bool {
        self.0.values().any(|standing| !standing.refused)
    }

    pub fn take_unasked(&mut self) -> Vec<Name> {
        let unasked = self.0.iter_mut().filter(|(_, standing)| !standing.refused);
        let refuse = |(name, standing): (&Name, &mut Standing)| {
            standing.refused = true;
            name.clone()
        };
        unasked.map(refuse).collect()
    }

    /// Another server may answer next, or the same in another variant.
    pub fn disconnect(&mut self) {
        self.0.values_mut().for_each(|standing| *standing = Standing::default());
    }
}

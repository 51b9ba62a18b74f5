//! The collections that one server is asked for as a whole.

use std::collections::BTreeMap;

use crate::xds::Name;

/// With whether it was said of each that this server cannot be asked for it.
#[derive(Debug, Default)]
pub(super) struct Globs(BTreeMap<Name, bool>);

impl Globs {
    pub fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.0.insert(name.clone(), false);
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

    pub fn any_unasked(&self) -> bool {
        self.0.values().any(|told| !told)
    }

    pub fn take_unasked(&mut self) -> Vec<Name> {
        let unasked = self.0.iter_mut().filter(|(_, told)| !**told);
        unasked.map(|(name, told)| (name, std::mem::replace(told, true)).0.clone()).collect()
    }

    /// Another server may answer next, or the same in another variant.
    pub fn disconnect(&mut self) {
        self.0.values_mut().for_each(|told| *told = false);
    }
}

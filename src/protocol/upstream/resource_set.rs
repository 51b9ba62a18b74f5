//! The resources of one response by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::xds::{Name, Resource};

/// Resources by name. Most servers send them in the order of their names; then no tree is built.
#[derive(Debug, Default)]
pub(super) struct ResourceSet {
    /// In the order of names. Empty once one came out of order.
    ascending: Vec<Arc<Resource>>,
    /// All of them, from then on.
    others: BTreeMap<Name, Arc<Resource>>,
}

impl ResourceSet {
    pub(crate) fn get(&self, name: &Name) -> Option<&Arc<Resource>> {
        if self.ascending.last().is_none_or(|last| last.name < *name) {
            return self.others.get(name);
        }
        let index = self.ascending.binary_search_by(|resource| resource.name.cmp(name)).ok()?;
        self.ascending.get(index)
    }

    /// Adds a resource, whose name it does not have yet.
    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        let is_next = self.ascending.last().is_none_or(|last| last.name < resource.name);
        if self.others.is_empty() && is_next {
            self.ascending.push(resource);
        } else {
            self.build_tree();
            self.others.insert(resource.name.clone(), resource);
        }
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        if self.get(name).is_none() {
            return false;
        }
        self.build_tree();
        self.others.remove(name).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.ascending.len() + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> + Clone {
        self.values().map(|resource| &resource.name)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Resource>> + Clone {
        self.ascending.iter().chain(self.others.values())
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = Arc<Resource>> {
        self.ascending.into_iter().chain(self.others.into_values())
    }

    fn build_tree(&mut self) {
        let ascending = std::mem::take(&mut self.ascending);
        self.others.extend(ascending.into_iter().map(|resource| (resource.name.clone(), resource)));
    }
}

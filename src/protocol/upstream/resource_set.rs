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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::xds::{BodyStore, TypeTable};

    fn resource(name: &str) -> Arc<Resource> {
        let url = "type.googleapis.com/own.Type";
        let resource = Some(Any { type_url: url.into(), value: Bytes::new() });
        let wrapper = discovery::Resource { name: name.into(), resource, ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &TypeTable::new().resolve(url), &BodyStore::default()).unwrap())
    }

    #[test]
    fn each_resource_is_found_and_they_are_ordered_by_name_however_they_came() {
        for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"], ["a", "c", "b"]] {
            let mut set = ResourceSet::default();
            order.iter().for_each(|name| set.insert(resource(name)));
            assert!(set.names().map(Name::as_str).eq(["a", "b", "c"]), "{order:?}");
            for name in order {
                assert!(set.get(&name.into()).is_some_and(|found| found.name.as_str() == name), "{name} of {order:?}");
            }
            assert!(set.get(&"d".into()).is_none() && set.get(&"aa".into()).is_none());
        }
    }
}

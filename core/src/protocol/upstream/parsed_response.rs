//! The resources of one response: by name, and sorted into usable, extended and rejected ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::proto::code::OK;
use crate::proto::{Any, discovery};
use crate::protocol::view::NamedError;
use crate::xds::{BodyStore, Malformed, Name, Resource, Type, wrapper_name};
use crate::xds::{ERROR_BYTES, truncate};

/// The resources of one response, sorted into good and bad.
#[derive(Debug, Default)]
pub(super) struct ParsedResponse {
    /// How many entries were read.
    pub(crate) count: usize,
    pub(crate) good: ResourceSet,
    /// The versions that the server gives, in delta.
    pub(crate) versions: BTreeMap<Name, String>,
    /// Entries without a body. What they mean depends on what is cached.
    pub(crate) bodyless: Vec<Bodyless>,
    /// Heartbeats: resources that do not change, each with its new TTL.
    pub(crate) alive: BTreeMap<Name, Option<Duration>>,
    /// Names that exist and whose resource cannot be used, with the reason. Their previous value stays.
    pub(crate) rejected: BTreeMap<Name, Arc<str>>,
    /// Why an entry could not be matched to a name, if there is such an entry.
    pub(crate) unnamed: Option<Arc<str>>,
    pub(crate) faults: Vec<Malformed>,
    /// Rejected names for which there was no room, each with the aliases of its resource.
    pub(crate) without_room: BTreeMap<Name, Vec<Name>>,
}

/// An entry without a body: a heartbeat, an alias that resolves to nothing, or an error.
#[derive(Debug)]
pub(super) struct Bodyless {
    pub(crate) index: usize,
    pub(crate) name: Option<Name>,
    pub(crate) version: String,
    pub(crate) ttl: Option<Duration>,
    pub(crate) aliases: Vec<Name>,
}

impl ParsedResponse {
    /// Adds an entry of a SotW response.
    pub(crate) fn take_any(&mut self, any: Any, kind: &Type, store: &BodyStore) {
        match Resource::from_sotw(self.count, any, kind, store) {
            Err(Malformed::Bodyless { index, name, version, ttl }) => {
                self.count += 1;
                self.bodyless.push(Bodyless { index, name, version, ttl, aliases: Vec::new() });
            }
            resource => drop(self.take(resource.map(Arc::new))),
        }
    }

    /// Adds an entry of a delta response.
    pub(crate) fn take_wrapper(&mut self, mut wrapper: discovery::Resource, kind: &Type, store: &BodyStore) {
        let version = std::mem::take(&mut wrapper.version);
        let aliases = std::mem::take(&mut wrapper.aliases);
        if wrapper.resource.is_none() {
            let name = wrapper_name(&wrapper).or_else(|| kind.unnamed());
            let ttl = wrapper.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
            let aliases = aliases.iter().map(|alias| Name::canonical(alias)).collect();
            self.bodyless.push(Bodyless { index: self.count, name, version, ttl, aliases });
            self.count += 1;
            return;
        }
        wrapper.aliases = aliases;
        let resource = Resource::from_wrapper(self.count, wrapper, kind, store).map(Arc::new);
        let rejected = resource.as_ref().err().and_then(Malformed::name).cloned();
        if let Some(name) = self.take(resource).or(rejected) {
            self.versions.insert(name, version);
        }
    }

    /// Rejects an entry without a body that has no meaning here.
    pub(crate) fn reject_bodyless(&mut self, entry: Bodyless) {
        let Bodyless { index, name, version, ttl, .. } = entry;
        if let Some(name) = &name
            && self.good.remove(name)
        {
            self.faults.push(Malformed::Duplicate { name: name.clone() });
        }
        self.reject(Malformed::Bodyless { index, name, version, ttl });
    }

    /// Returns all names in the response, removed ones aside.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.good.names().chain(self.alive.keys()).chain(self.rejected.keys())
    }

    /// Drops entries whose name asks for the end of a set: no resource has such a name. Returns whether there were any.
    pub(crate) fn drop_end_questions(&mut self) -> bool {
        let asked: Vec<_> = self.names().filter(|name| name.asks_for_end()).cloned().collect();
        for name in &asked {
            self.good.remove(name);
            self.versions.remove(name);
            self.alive.remove(name);
            self.rejected.remove(name);
        }
        !asked.is_empty()
    }

    /// Adds the next entry. Returns its name if it is usable.
    pub(crate) fn take(&mut self, resource: Result<Arc<Resource>, Malformed>) -> Option<Name> {
        self.count += 1;
        match resource {
            // An identical duplicate is used once, and NACKed (UP-22). Of two that differ, neither is trusted.
            Ok(resource) if self.good.get(&resource.name).is_some_and(|known| known.is_same(&resource)) => {
                self.faults.push(Malformed::Duplicate { name: resource.name.clone() });
                None
            }
            Ok(resource) if self.good.get(&resource.name).is_some() || self.rejected.contains_key(&resource.name) => {
                let name = resource.name.clone();
                self.good.remove(&name);
                self.reject(Malformed::Duplicate { name });
                None
            }
            Ok(resource) => {
                let name = resource.name.clone();
                self.good.insert(resource);
                Some(name)
            }
            Err(malformed) => {
                if let Some(name) = malformed.name() {
                    self.good.remove(name); // an earlier entry of the same name, which could have been used
                }
                self.reject(malformed);
                None
            }
        }
    }

    pub(crate) fn reject(&mut self, malformed: Malformed) {
        let reason: Arc<str> = malformed.to_string().into();
        match malformed.name() {
            Some(name) => drop(self.rejected.insert(name.clone(), reason)),
            None => self.unnamed = Some(reason),
        }
        self.faults.push(malformed);
    }

    /// Rejects a resource for which there is no room, under all names by which it may have been requested. Only the NACK says how much is in
    /// use: as part of a name's reason, it would make the same rejection look like a new one.
    pub(crate) fn reject_for_room(&mut self, resource: &Resource, why: &Arc<str>) {
        self.good.remove(&resource.name);
        for name in [&resource.name].into_iter().chain(resource.aliases()) {
            self.rejected.insert(name.clone(), Arc::from("no room"));
        }
        let (name, bytes) = (resource.name.clone(), resource.body.bytes().len());
        self.without_room.insert(name.clone(), resource.aliases().to_vec());
        self.faults.push(Malformed::NoRoom { name, bytes, why: why.clone() });
    }

    /// Rejects a name that is both sent and removed: neither is trusted. Returns whether the response has sent it.
    pub(crate) fn reject_if_sent(&mut self, name: &Name) -> bool {
        if !self.good.remove(name) && !self.rejected.contains_key(name) {
            return false;
        }
        self.reject(Malformed::SentAndRemoved { name: name.clone() });
        true
    }

    /// Takes the errors that the server reports for single resources. Their names count as present. An error that makes no sense is rejected
    /// (UP-22). An error without a name concerns the one resource of a type that has no names.
    pub(crate) fn take_errors(
        &mut self,
        kind: &Type,
        errors: Vec<discovery::ResourceError>,
    ) -> Vec<(Name, NamedError)> {
        let mut reported = Vec::new();
        for error in errors {
            let name = Name::canonical(&error.resource_name.map(|name| name.name).unwrap_or_default());
            let detail = error.error_detail.unwrap_or_default();
            let code = detail.code;
            if name.as_str().is_empty() && kind.unnamed().is_none() || code == OK {
                let why = if code == OK { "that all is well" } else { "of nothing" };
                self.faults.push(Malformed::Error { name, why });
                continue;
            }
            if !self.reject_if_sent(&name) {
                self.rejected.insert(name.clone(), Arc::from("reported by the server"));
                reported.push((name, NamedError { code, message: truncate(&detail.message, ERROR_BYTES) }));
            }
        }
        reported
    }

    /// Returns the text of the NACK, if anything has to be rejected.
    pub(crate) fn nack_message(&self) -> Option<String> {
        let mut text = String::new();
        for fault in &self.faults {
            let fault = fault.to_string();
            if text.len() + fault.len() > ERROR_BYTES {
                text.push_str("; ...");
                break;
            }
            text.push_str(if text.is_empty() { "" } else { "; " });
            text.push_str(&fault);
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Resources by name. Most servers send them in the order of their names; then no tree is needed.
#[derive(Debug, Default)]
pub(super) struct ResourceSet {
    /// Resources in the order of names, until one comes out of order. Then they move to `others`.
    ascending: Vec<Arc<Resource>>,
    /// All resources, from then on.
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

    /// Adds a resource. The set must not have its name yet.
    pub(crate) fn insert(&mut self, resource: Arc<Resource>) {
        let is_next = self.ascending.last().is_none_or(|last| last.name < resource.name);
        if self.others.is_empty() && is_next {
            self.ascending.push(resource);
        } else {
            self.build_tree();
            self.others.insert(resource.name.clone(), resource);
        }
    }

    /// Removes a resource. Returns whether it was there.
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

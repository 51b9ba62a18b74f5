//! A single response, and the resources of a client after any number of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use bytes::Bytes;
use prost::Message;
use weir_core::proto::Any;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};

use super::Variant;
use crate::content::{Item, WRAPPER, is_full_state, message_name, name_in};

/// A response of either variant.
#[derive(Clone)]
pub struct Received {
    pub variant: Variant,
    pub url: String,
    pub nonce: String,
    /// The version of the response; unused in delta.
    pub version: String,
    pub entries: Vec<Entry>,
    pub removed: Vec<String>,
    /// Names for which the response has an error.
    pub errors: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub version: String,
    pub any: Option<Any>,
    /// Whether the resource came in a wrapper, as it always does in delta.
    pub wrapped: bool,
}

impl Received {
    /// Returns the names of added and changed resources, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub fn entry(&self, name: &str) -> anyhow::Result<&Entry> {
        let found = self.entries.iter().find(|entry| entry.name == name);
        found.ok_or_else(|| anyhow::anyhow!("{name} is missing in {self:?}"))
    }

    /// Checks that the response adds or changes exactly these names.
    pub fn sets(&self, names: &[&str]) -> anyhow::Result<()> {
        ensure!(self.names() == names, "expected {names:?}, and was sent {self:?}");
        Ok(())
    }

    /// Checks that the response removes exactly these names.
    pub fn removes(&self, names: &[&str]) -> anyhow::Result<()> {
        ensure!(self.removed == names, "expected {names:?} to be removed, and was sent {self:?}");
        Ok(())
    }

    /// Checks that the response has the item, byte for byte.
    pub fn has(&self, item: &Item) -> anyhow::Result<()> {
        let any = self.entry(&item.name)?.any.clone().unwrap_or_default();
        let start = |body: &Bytes| body.slice(..body.len().min(SHOWN));
        let (came, due) = (start(&any.value), start(&item.body));
        ensure!(any.value == item.body, "{} came as {came:?} instead of {due:?}", item.name);
        Ok(())
    }

    /// Checks what must hold for every response: SOTW-30, WIRE-3, DELTA-33, DELTA-34.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.nonce.is_empty(), "a response without a nonce: {self:?}");
        let mut seen = BTreeSet::new();
        for name in self.entries.iter().map(|entry| &entry.name).chain(&self.removed) {
            ensure!(seen.insert(name), "{name:?} is there twice in {self:?}");
        }
        for any in self.entries.iter().filter_map(|entry| entry.any.as_ref()) {
            let same = message_name(&any.type_url) == message_name(&self.url);
            ensure!(same, "a resource of type {} in {self:?}", any.type_url);
        }
        if let Some(name) = self.entries.iter().map(|entry| &entry.name).find(|name| self.errors.contains(name)) {
            bail!("{name:?} is both there and in error in {self:?}");
        }
        Ok(())
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        let short = message_name(&self.url).rsplit('.').next().unwrap_or_default();
        write!(out, "{short} {:?}", self.names())?;
        if !self.removed.is_empty() {
            write!(out, " removed {:?}", self.removed)?;
        }
        if !self.errors.is_empty() {
            write!(out, " errors {:?}", self.errors)?;
        }
        write!(out, " (nonce {:?})", self.nonce)
    }
}

impl From<DiscoveryResponse> for Received {
    fn from(response: DiscoveryResponse) -> Self {
        let version = response.version_info;
        let entries = response.resources.into_iter().map(|any| sotw_entry(any, &version)).collect();
        let named = response.resource_errors.into_iter().filter_map(|error| error.resource_name);
        Self {
            variant: Variant::Sotw,
            url: response.type_url,
            nonce: response.nonce,
            entries,
            removed: Vec::new(),
            errors: named.map(|named| named.name).collect(),
            version,
        }
    }
}

impl From<DeltaDiscoveryResponse> for Received {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        let mut removed = response.removed_resources;
        removed.extend(response.removed_resource_names.into_iter().map(|named| named.name));
        removed.sort();
        let named = response.resource_errors.into_iter().filter_map(|error| error.resource_name);
        Self {
            variant: Variant::Delta,
            url: response.type_url,
            nonce: response.nonce,
            version: response.system_version_info,
            entries: response.resources.into_iter().map(wrapped_entry).collect(),
            removed,
            errors: named.map(|named| named.name).collect(),
        }
    }
}

fn sotw_entry(any: Any, version: &str) -> Entry {
    let wrapper = (any.type_url == WRAPPER).then(|| Resource::decode(any.value.clone()).unwrap_or_default());
    match wrapper {
        Some(wrapper) => wrapped_entry(wrapper),
        None => Entry { name: name_in(&any), version: version.into(), any: Some(any), wrapped: false },
    }
}

fn wrapped_entry(wrapper: Resource) -> Entry {
    let name = wrapper.resource_name.map_or(wrapper.name, |named| named.name);
    Entry { name, version: wrapper.version, any: wrapper.resource, wrapped: true }
}

/// How many bytes of a body failure messages show.
const SHOWN: usize = 60;

/// The resources of a client that accepts everything, by message name and name.
#[derive(Debug, Clone, Default)]
pub struct ClientCache(BTreeMap<String, BTreeMap<String, Bytes>>);

impl ClientCache {
    pub fn take(&mut self, sent: &Received) {
        let set = self.0.entry(message_name(&sent.url).into()).or_default();
        if sent.variant == Variant::Sotw && is_full_state(&sent.url) {
            set.clear();
        }
        sent.removed.iter().for_each(|name| drop(set.remove(name)));
        let body = |entry: &Entry| entry.any.clone().unwrap_or_default().value;
        set.extend(sent.entries.iter().map(|entry| (entry.name.clone(), body(entry))));
    }

    pub fn names(&self, url: &str) -> Vec<&str> {
        self.0.get(message_name(url)).map(|set| set.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Whether a response of this type was received, even an empty one.
    pub fn is_told_of(&self, url: &str) -> bool {
        self.0.contains_key(message_name(url))
    }

    pub fn has_name(&self, url: &str, name: &str) -> bool {
        self.0.get(message_name(url)).is_some_and(|set| set.contains_key(name))
    }

    pub fn has(&self, item: &Item) -> bool {
        self.0.get(message_name(item.url)).and_then(|set| set.get(&item.name)).is_some_and(|body| *body == item.body)
    }
}

impl std::fmt::Display for ClientCache {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        for (kind, set) in &self.0 {
            write!(out, "{} {:?}; ", kind.rsplit('.').next().unwrap_or_default(), set.keys().collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

//! A response of either variant, with the fields that clients follow and check.

use bytes::Bytes;
use prost::Message as _;
use weir_core::proto::Any;
use weir_core::proto::discovery::{self, DeltaDiscoveryResponse, DiscoveryResponse};

use super::names::{Name, Names};
use crate::bodies::{self, Stamp};
use crate::content::{WRAPPER, message_name};
use crate::kind::Kind;
use crate::wire::Variant;

#[derive(Debug, Clone, Default)]
pub struct Response {
    pub url: String,
    pub version: String,
    pub nonce: String,
    pub entries: Vec<Entry>,
    /// Removed names, in delta.
    pub removed: Vec<Name>,
    /// The size of the message in bytes.
    pub size: usize,
    /// A resource that has another type than the response or cannot be decoded, if there is one.
    pub unreadable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Name,
    /// The version of the resource, in delta.
    pub version: Option<Name>,
    pub stamp: Option<Stamp>,
    pub refers_to: Vec<Name>,
}

impl Entry {
    /// Returns the origin's update from which the resource is; 0 for other servers.
    pub fn update(&self) -> u64 {
        self.stamp.map_or(0, |stamp| stamp.update)
    }
}

impl Response {
    pub fn decode(variant: Variant, message: Bytes, names: &Names) -> Result<Self, prost::DecodeError> {
        let size = message.len();
        let mut decoded = match variant {
            Variant::Sotw => Self::sotw(DiscoveryResponse::decode(message)?, names),
            Variant::Delta => Self::delta(DeltaDiscoveryResponse::decode(message)?, names),
        };
        decoded.size = size;
        Ok(decoded)
    }

    pub fn kind(&self) -> Option<Kind> {
        Kind::of_url(&self.url)
    }

    /// Returns the newest stamp of the resources.
    pub fn newest(&self) -> Option<Stamp> {
        self.entries.iter().filter_map(|entry| entry.stamp).max_by_key(|stamp| stamp.update)
    }

    fn sotw(response: DiscoveryResponse, names: &Names) -> Self {
        let (url, nonce, version) = (response.type_url, response.nonce, response.version_info);
        let mut decoded = Self { url, nonce, version, ..Self::default() };
        for any in response.resources {
            if message_name(&any.type_url) == message_name(WRAPPER) {
                match discovery::Resource::decode(any.value) {
                    Ok(resource) => decoded.push_wrapped(resource, names),
                    Err(error) => decoded.unreadable = Some(format!("a wrapped resource cannot be read: {error}")),
                }
            } else {
                decoded.push(any, None, "", names);
            }
        }
        decoded
    }

    fn delta(response: DeltaDiscoveryResponse, names: &Names) -> Self {
        let (url, nonce, version) = (response.type_url, response.nonce, response.system_version_info);
        let removed = response.removed_resources.iter().map(|name| names.intern(name));
        let named = response.removed_resource_names.iter().map(|name| names.intern(&name.name));
        let mut decoded = Self { removed: removed.chain(named).collect(), url, nonce, version, ..Self::default() };
        response.resources.into_iter().for_each(|resource| decoded.push_wrapped(resource, names));
        decoded
    }

    /// A wrapper without a resource means that the resource is unchanged or does not exist; clients store nothing for it.
    fn push_wrapped(&mut self, resource: discovery::Resource, names: &Names) {
        if let Some(any) = resource.resource {
            self.push(any, Some(names.intern(&resource.version)), &resource.name, names);
        }
    }

    fn push(&mut self, any: Any, version: Option<Name>, name: &str, names: &Names) {
        if message_name(&any.type_url) != message_name(&self.url) {
            self.unreadable = Some(format!("a resource is of type {}, the response of {}", any.type_url, self.url));
        }
        let Some(kind) = self.kind() else { return };
        let Some(reading) = bodies::read(kind, any.value) else {
            self.unreadable = Some(format!("the body of {name:?} cannot be read"));
            return;
        };
        let name = if name.is_empty() { &reading.name } else { name };
        let refers_to = reading.refers_to.iter().map(|name| names.intern(name)).collect();
        self.entries.push(Entry { name: names.intern(name), version, stamp: reading.stamp, refers_to });
    }
}

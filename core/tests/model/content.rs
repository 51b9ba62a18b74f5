//! The resources of the simulated control plane: small, real enough to be scanned, and marked with their origin.

use std::sync::OnceLock;

use bytes::Bytes;
use prost::Message;
use weir_core::proto::{Any, discovery};
use weir_core::xds::{BodyStore, Resource, Type, TypeTable};

/// The types of the small world, in the order of their ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cluster,
    Endpoints,
    Listener,
    Route,
    Runtime,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Cluster, Self::Endpoints, Self::Listener, Self::Route, Self::Runtime];

    pub fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Runtime => "type.googleapis.com/envoy.service.runtime.v3.Runtime",
        }
    }

    pub fn of(kind: &Type) -> Self {
        Self::ALL.into_iter().find(|known| known.url().ends_with(kind.name())).unwrap()
    }

    pub fn full_state(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    pub fn name(self, number: u8) -> String {
        let letter = ["c", "e", "l", "r", "t"][self as usize];
        format!("{letter}{number}")
    }
}

pub fn table() -> std::sync::Arc<TypeTable> {
    static TABLE: OnceLock<std::sync::Arc<TypeTable>> = OnceLock::new();
    TABLE.get_or_init(Default::default).clone()
}

/// The content of one resource. `serial` grows with every change in the world, so that older and newer contents differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub kind: Kind,
    pub name: String,
    pub serial: u64,
    /// The node for which the resource was made; runtime is the same for all.
    pub key: u8,
    pub wildcard: bool,
    /// Routes: the cluster that the route refers to.
    pub target: Option<String>,
    /// Clusters: whether their endpoints come over the same stream.
    pub eds: bool,
    pub alias: Option<String>,
    pub metadata: u8,
}

impl Content {
    pub fn body(&self) -> Bytes {
        let mut body = Vec::new();
        put(&mut body, 1, self.name.as_bytes());
        if self.kind == Kind::Cluster && self.eds {
            let mut source = Vec::new();
            put(&mut source, 3, &[]);
            let mut eds = Vec::new();
            put(&mut eds, 1, &source);
            put(&mut eds, 2, self.endpoints().as_bytes());
            put(&mut body, 3, &eds);
        }
        let tag = match self.kind {
            Kind::Runtime => format!("{}", self.serial),
            _ => format!("{}/{}/{}/{}", self.key, self.wildcard, self.serial, self.target.as_deref().unwrap_or("")),
        };
        put(&mut body, 1000, tag.as_bytes());
        body.into()
    }

    pub fn endpoints(&self) -> String {
        self.name.replace('c', "e")
    }

    pub fn metadata(&self) -> Option<Bytes> {
        (self.metadata > 0).then(|| Bytes::from(vec![0x0a, 3, 0x0a, 1, b'a' + self.metadata]))
    }

    pub fn any(&self) -> Any {
        Any { type_url: self.kind.url().into(), value: self.body() }
    }

    pub fn wrapper(&self, version: String) -> discovery::Resource {
        discovery::Resource {
            version,
            name: self.name.clone(),
            resource: Some(self.any()),
            aliases: self.alias.iter().cloned().collect(),
            metadata: self.metadata(),
            ..Default::default()
        }
    }

    /// Returns the entry that a SotW server would send: bare, unless it needs a wrapper.
    pub fn sotw(&self) -> Any {
        if self.alias.is_none() && self.metadata == 0 {
            return self.any();
        }
        let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".into();
        Any { type_url, value: self.wrapper(String::new()).encode_to_vec().into() }
    }
}

fn put(body: &mut Vec<u8>, field: u32, value: &[u8]) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, body);
    prost::encoding::encode_varint(value.len() as u64, body);
    body.extend(value);
}

/// Checks that the relay has what upstream sent.
pub fn same(resource: &Resource, content: &Content) -> Result<(), String> {
    let aliases: Vec<_> = resource.aliases().iter().map(|alias| alias.as_str()).collect();
    let expected: Vec<_> = content.alias.iter().map(String::as_str).collect();
    let equal = *resource.body.bytes() == content.body()
        && aliases == expected
        && resource.metadata() == content.metadata().as_ref();
    ensure(equal, || format!("{} is not what upstream sent last: {content:?}", resource.name))
}

/// Returns the version of this content for delta clients.
pub fn version(content: &Content) -> String {
    let kind = table().resolve(content.kind.url());
    let wrapper = content.wrapper(String::new());
    Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap().full.to_string()
}

pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

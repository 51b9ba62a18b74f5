//! Resource types, and bodies that a relay can scan and that differ if their contents do.

use bytes::Bytes;
use prost::Message;
use weir_core::proto::{Any, discovery};

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
pub const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
pub const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
pub const COLLECTION: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
pub const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
pub const RTDS: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
pub const ECDS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
/// A type that no program knows.
pub const UNKNOWN: &str = "type.googleapis.com/example.v1.Unheard";
pub const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Returns a type's message name, which is the common part of all spellings of its URL (TYPE-1).
pub fn message_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// Whether a SotW response has the complete set, and an empty first request subscribes to all resources.
pub fn is_full_state(url: &str) -> bool {
    [CDS, LDS, SRDS].map(message_name).contains(&message_name(url))
}

/// Whether bodies have no usable name, so that SotW needs wrappers.
fn is_nameless(url: &str) -> bool {
    [VHDS, LEDS, COLLECTION].map(message_name).contains(&message_name(url))
}

/// A resource of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub url: &'static str,
    pub name: String,
    pub body: Bytes,
}

impl Item {
    /// `text` makes the body differ from other bodies of that name. It is in a field that no message has.
    pub fn new(url: &'static str, name: &str, text: &str) -> Self {
        let mut body = Vec::new();
        if !is_nameless(url) {
            put(&mut body, 1, name.as_bytes());
        }
        let item = Self { url, name: name.into(), body: body.into() };
        if text.is_empty() { item } else { item.with(1000, text.as_bytes()) }
    }

    /// Returns a cluster whose endpoints come over the same stream, with the cluster's name.
    pub fn eds_cluster(name: &str, text: &str) -> Self {
        let (mut source, mut eds) = (Vec::new(), Vec::new());
        put(&mut source, 3, &[]);
        put(&mut eds, 1, &source);
        Self::new(CDS, name, "").with(3, &eds).with(1000, text.as_bytes())
    }

    /// Returns the same with one more field at its end.
    pub fn with(self, field: u32, value: &[u8]) -> Self {
        let mut body = self.body.to_vec();
        put(&mut body, field, value);
        Self { body: body.into(), ..self }
    }

    pub fn any(&self) -> Any {
        Any { type_url: self.url.into(), value: self.body.clone() }
    }

    pub fn wrapper(&self, version: String) -> discovery::Resource {
        discovery::Resource { version, name: self.name.clone(), resource: Some(self.any()), ..Default::default() }
    }

    /// Returns the entry in a response of a SotW server: without a wrapper if the body has the name.
    pub fn sotw(&self) -> Any {
        if !is_nameless(self.url) {
            return self.any();
        }
        Any { type_url: WRAPPER.into(), value: self.wrapper("1".into()).encode_to_vec().into() }
    }
}

/// Returns the name in a body without a wrapper.
pub fn name_in(any: &Any) -> String {
    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    match is_nameless(&any.type_url) {
        true => String::new(),
        false => Named::decode(any.value.clone()).unwrap_or_default().name,
    }
}

fn put(body: &mut Vec<u8>, field: u32, value: &[u8]) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, body);
    prost::encoding::encode_varint(value.len() as u64, body);
    body.extend(value);
}

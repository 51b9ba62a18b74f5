//! Resources of a few types, and the responses that have them, in both variants.

use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::plane::Stream;

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Returns a cluster whose body contains `content`.
pub fn cluster(name: &str, content: &str) -> Any {
    let mut value = vec![0x0a];
    prost::encoding::encode_varint(name.len() as u64, &mut value);
    value.extend(name.bytes());
    value.extend([0xc2, 0x3e]);
    prost::encoding::encode_varint(content.len() as u64, &mut value);
    value.extend(content.bytes());
    Any { type_url: CDS.into(), value: value.into() }
}

/// Returns a resource as delta responses have it.
pub fn wrapped(name: &str, version: &str, body: Any) -> Resource {
    Resource { name: name.to_owned(), version: version.to_owned(), resource: Some(body), ..Default::default() }
}

/// Sends the next SotW response of a type whose bodies are only names.
pub fn say_any(stream: &Stream, url: &str, names: &[&str]) {
    let named = |name: &&str| Any { type_url: url.into(), ..cluster(name, "") };
    let resources = names.iter().map(named).collect();
    let (version_info, nonce, type_url) = ("1".into(), "1".into(), url.into());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info,
        resources,
        type_url,
        nonce,
        ..Default::default()
    }));
}

/// Waits until the relay requests a name, and sends a resource that has only that name.
pub async fn say_named(stream: &mut Stream, url: &str, name: &str) {
    let names = |request: &Request| match request {
        Request::Sotw(request) => request.resource_names.clone(),
        Request::Delta(request) => request.resource_names_subscribe.clone(),
    };
    loop {
        let request = stream.request().await;
        if request.type_url() == url && names(&request).iter().any(|requested| requested == name) {
            break;
        }
    }
    if stream.variant == Variant::Sotw {
        return say_any(stream, url, &[name]);
    }
    let resource = Some(Any { type_url: url.into(), ..cluster(name, "") });
    let resources = vec![Resource { name: name.into(), version: "1".into(), resource, ..Default::default() }];
    let (type_url, nonce) = (url.into(), "1".into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { resources, type_url, nonce, ..Default::default() }));
}

/// Sends the next response.
pub fn say(stream: &Stream, version: &str, whole: &[(&str, &str)], news: &[(&str, &str)], gone: &[&str]) {
    stream.respond(&said(stream.variant, version, whole, news, gone));
}

/// Returns the next response: in SotW the complete set, in delta what is new and what is removed.
pub fn said(variant: Variant, version: &str, whole: &[(&str, &str)], news: &[(&str, &str)], gone: &[&str]) -> Response {
    match variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: version.into(),
            resources: whole.iter().map(|(name, content)| cluster(name, content)).collect(),
            type_url: CDS.into(),
            nonce: version.into(),
            ..Default::default()
        }),
        Variant::Delta => {
            let wrap = |(name, content): &(&str, &str)| Resource {
                version: version.into(),
                name: name.to_string(),
                resource: Some(cluster(name, content)),
                ..Default::default()
            };
            Response::Delta(DeltaDiscoveryResponse {
                system_version_info: version.into(),
                resources: news.iter().map(wrap).collect(),
                removed_resources: gone.iter().map(ToString::to_string).collect(),
                type_url: CDS.into(),
                nonce: version.into(),
                ..Default::default()
            })
        }
    }
}

pub fn nonce_of(request: &Request) -> &str {
    match request {
        Request::Sotw(request) => &request.response_nonce,
        Request::Delta(request) => &request.response_nonce,
    }
}

pub fn protocol_of(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => ", variant: sotw",
        Variant::Delta => ", variant: delta",
    }
}

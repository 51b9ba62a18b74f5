//! The scan of encoded messages, and what a body refers to.

use bytes::Bytes;
use prost::Message;
use weir::transcode::Transcoder;
use weir_core::proto::{Any, discovery};
use weir_core::xds::{BodyStore, Resource, TypeTable, wire};

/// A type and a body. The scan of fields reads what the decoder reads, and what a body refers to does not depend on the order of its fields.
pub fn references(data: &[u8]) {
    let [kind, body @ ..] = data else { return };
    check_scan(body);
    let (table, store) = (TypeTable::new(), BodyStore::default());
    for referring in REFERRING {
        let any = Any { type_url: referring.into(), value: Bytes::copy_from_slice(body) };
        let wrapper = discovery::Resource { name: "own".into(), resource: Some(any), ..Default::default() };
        let resource = Resource::from_wrapper(0, wrapper, &table.resolve(referring), &store).expect("it has a name");
        assert!(resource.refers_to.is_none_or(|name| !name.as_str().is_empty()), "the reference of a {referring}");
    }
    let kind = table.resolve(LEADING[usize::from(*kind) % LEADING.len()]);
    let found = store.intern(&kind, body);
    assert!(found.clusters(&kind).is_sorted_by(|a, b| a < b), "each once, in order");
    // The decoder takes entries of maps in any form, so bodies that it would write otherwise are left out.
    if let Ok(canonical) = Transcoder::envoy().canonical(kind.name(), body)
        && sorted(&canonical) == sorted(body)
    {
        let of_canonical = store.intern(&kind, &canonical);
        let (found, of_canonical) = (found.cluster_references(&kind), of_canonical.cluster_references(&kind));
        assert_eq!(of_canonical, found, "the same fields in another order");
    }
}

fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut sorted = bytes.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Types whose bodies make a client request another resource: the endpoints of a cluster, the virtual hosts of a route configuration.
const REFERRING: [&str; 2] = ["envoy.config.cluster.v3.Cluster", "envoy.config.route.v3.RouteConfiguration"];

/// Types whose bodies refer to clusters.
const LEADING: [&str; 6] = [
    "envoy.config.listener.v3.Listener",
    "envoy.config.listener.v3.FilterChain",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.ScopedRouteConfiguration",
    "envoy.config.route.v3.VirtualHost",
    "envoy.config.cluster.v3.Cluster",
];

/// Compares the scan with the decoder, which skips every field of an empty message.
fn check_scan(body: &[u8]) {
    let fields: Option<Vec<_>> = wire::fields(body).collect();
    assert_eq!(fields.is_some(), <()>::decode(body).is_ok(), "what is read as fields is a message");
    let read: Option<Vec<u8>> = fields.map(|fields| fields.iter().flat_map(|field| field.raw).copied().collect());
    assert!(read.is_none_or(|read| read == body));
}

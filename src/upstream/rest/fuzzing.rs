//! Fuzz target: the answers of polled servers.

use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::xds::{BodyStore, Resource, TypeTable};

use super::read::{self, Read};
use crate::transcode::Transcoder;

/// Writes a poll as the relay does.
pub(crate) fn written(request: &DiscoveryRequest, transcoder: &Transcoder) -> Vec<u8> {
    read::write(request, transcoder).expect("what is read can be written")
}

/// A type and the body of an answer. Each entry gives a resource, or one in its place that a view rejects.
pub(crate) fn answer(data: &[u8]) {
    let [kind, body @ ..] = data else { return };
    let url = TYPES[usize::from(*kind) % TYPES.len()];
    let Ok(Read { response, rejected, .. }) = read::read(body, url, &Transcoder::envoy()) else { return };
    let json: serde_json::Value = serde_json::from_slice(body).expect("an answer is JSON");
    let entries = json["resources"].as_array().map_or(0, Vec::len);
    assert_eq!((response.resources.len(), response.type_url.as_str()), (entries, url));
    let (kind, store) = (TypeTable::new().resolve(url), BodyStore::default());
    let all = response.resources.into_iter().enumerate();
    let unusable = all.filter(|(index, any)| Resource::from_sotw(*index, any.clone(), &kind, &store).is_err()).count();
    assert!(rejected.len() <= unusable, "a resource that cannot be read is used");
}

const TYPES: [&str; 3] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
];

//! The bodies of polls, and the answers of polled servers.

use weir::inputs::{read_answer, read_poll, write_poll};
use weir::transcode::Transcoder;
use weir_core::xds::{BodyStore, Resource, TypeTable};

/// The body of a poll. What is read comes back if it is written as a poll of the relay's own.
pub fn rest_polls(body: &[u8]) {
    let transcoder = Transcoder::envoy();
    let Ok(request) = read_poll(body, &transcoder) else { return };
    assert!(request.response_nonce.is_empty() && request.error_detail.is_none());
    let written = write_poll(&request, &transcoder).expect("what is read can be written");
    assert_eq!(read_poll(&written, &transcoder), Ok(request), "{}", String::from_utf8_lossy(&written));
}

/// A type and the body of an answer. Each entry gives a resource, or one in its place that a view rejects.
pub fn rest_answers(data: &[u8]) {
    let [kind, body @ ..] = data else { return };
    let url = TYPES[usize::from(*kind) % TYPES.len()];
    let Ok((response, rejected)) = read_answer(body, url, &Transcoder::envoy()) else { return };
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

//! The requests of a client stream, from its bytes to decoded messages.

use bytes::Bytes;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use weir::inputs::{RequestLimits, check_load_report, check_request, read_messages};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator};
use weir_core::proto::loads::{ClusterStats, LoadStatsRequest, UpstreamLocalityStats};
use weir_core::protocol::session::Variant;

/// The kind of a stream, the length of a chunk, and the bytes of the stream. The messages do not depend on how the bytes are cut, and no
/// decoded request or load report has more than the limits allow.
pub fn client_requests(data: &[u8]) {
    let [kind, chunk, stream @ ..] = data else { return };
    let whole = messages(stream, stream.len().max(1));
    assert_eq!(messages(stream, usize::from(*chunk) + 1), whole, "in chunks");
    for message in whole.0 {
        match kind % 3 {
            0 => check_sotw(&message),
            1 => check_delta(&message),
            _ => check_report(&message),
        }
    }
}

/// Returns the messages of a stream that comes in chunks of this length, and the status if one ends it.
fn messages(stream: &[u8], chunk: usize) -> (Vec<Bytes>, Option<(i32, String)>) {
    let chunks = stream.chunks(chunk).map(Bytes::copy_from_slice);
    RUNTIME.with(|runtime| runtime.block_on(read_messages(chunks, MESSAGE_BYTES)))
}

fn check_sotw(message: &Bytes) {
    if check_request(message, Variant::Sotw, LIMITS).is_err() {
        return;
    }
    let Ok(request) = DiscoveryRequest::decode(message.clone()) else { return };
    let entries = request.resource_names.len() + request.resource_locators.len();
    check_entries(entries, request.resource_names.iter(), &request.resource_locators, request.node.as_ref());
}

fn check_delta(message: &Bytes) {
    if check_request(message, Variant::Delta, LIMITS).is_err() {
        return;
    }
    let Ok(request) = DeltaDiscoveryRequest::decode(message.clone()) else { return };
    let names = [request.resource_names_subscribe, request.resource_names_unsubscribe].concat();
    let locators = [request.resource_locators_subscribe, request.resource_locators_unsubscribe].concat();
    let entries = names.len() + locators.len() + request.initial_resource_versions.len();
    let names = names.iter().chain(request.initial_resource_versions.keys());
    check_entries(entries, names, &locators, request.node.as_ref());
}

fn check_report(message: &Bytes) {
    if check_load_report(message, LIMITS).is_err() {
        return;
    }
    let Ok(report) = LoadStatsRequest::decode(message.clone()) else { return };
    let of_locality = |stats: &UpstreamLocalityStats| {
        let endpoints = stats.upstream_endpoint_stats.iter().map(|stats| 1 + stats.load_metric_stats.len());
        1 + stats.load_metric_stats.len() + endpoints.sum::<usize>()
    };
    let of_cluster = |stats: &ClusterStats| {
        let localities = stats.upstream_locality_stats.iter().map(of_locality);
        1 + stats.dropped_requests.len() + localities.sum::<usize>()
    };
    let rows = report.cluster_stats.iter().map(of_cluster).sum();
    check_entries(rows, std::iter::empty(), &[], report.node.as_ref());
}

fn check_entries<'a>(
    entries: usize,
    mut names: impl Iterator<Item = &'a String>,
    locators: &[ResourceLocator],
    node: Option<&Bytes>,
) {
    assert!(entries <= ENTRIES, "{entries} entries");
    assert!(names.all(|name| name.len() <= NAME_BYTES), "a long name");
    assert!(locators.iter().all(|locator| locator.name.len() <= NAME_BYTES), "a long name in a locator");
    assert!(node.is_none_or(|node| node.len() <= NODE_BYTES), "a large node");
}

/// Small, so that short inputs reach them.
const ENTRIES: usize = 8;
const NAME_BYTES: usize = 32;
const NODE_BYTES: usize = 64;
const LIMITS: RequestLimits = RequestLimits::new(ENTRIES, NAME_BYTES, NODE_BYTES);
const MESSAGE_BYTES: usize = 4096;

thread_local! {
    static RUNTIME: Runtime =
        Builder::new_current_thread().enable_time().build().expect("a runtime of one thread starts");
}

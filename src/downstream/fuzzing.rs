//! Fuzz targets: the requests of a client stream, from its bytes to decoded messages; the header of the PROXY protocol.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;

pub(crate) use super::rest::fuzzing::poll;

use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator};
use weir_core::proto::loads::{ClusterStats, LoadStatsRequest, UpstreamLocalityStats};
use weir_core::protocol::session::Variant;

use super::frames::Frames;
use super::incomplete::IncompleteRequests;
use super::proxy_header::{self, Header, LONGEST, Origin};
use super::report_limits;
use super::request_limits::{self, RequestLimits};
use super::slot::Status;
use crate::limit::LimitCounters;

/// The kind of a stream, the length of a chunk, and the bytes of the stream. The messages do not depend on how the bytes are cut, and no
/// decoded request or load report has more than the limits allow.
pub(crate) fn client_requests(data: &[u8]) {
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
fn messages(stream: &[u8], chunk: usize) -> (Vec<Bytes>, Option<Status>) {
    let chunks: Vec<_> = stream.chunks(chunk).map(Bytes::copy_from_slice).collect();
    let body = StreamBody::new(stream::iter(chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)))));
    let inbound = IncompleteRequests::new(MESSAGE_BYTES, 1, Arc::new(LimitCounters::default())).connection();
    let mut frames = Frames::new(body, MESSAGE_BYTES, inbound);
    let mut messages = Vec::new();
    let reading = async {
        loop {
            match frames.next().await {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    };
    let end = RUNTIME.with(|runtime| runtime.block_on(reading));
    (messages, end)
}

fn check_sotw(message: &Bytes) {
    if !is_within_limits(message, Variant::Sotw) {
        return;
    }
    let Ok(request) = DiscoveryRequest::decode(message.clone()) else { return };
    let entries = request.resource_names.len() + request.resource_locators.len();
    check_entries(entries, request.resource_names.iter(), &request.resource_locators, request.node.as_ref());
}

fn check_delta(message: &Bytes) {
    if !is_within_limits(message, Variant::Delta) {
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
    if report_limits::check(message, LIMITS, &LimitCounters::default()).is_err() {
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

fn is_within_limits(message: &[u8], variant: Variant) -> bool {
    let counters = LimitCounters::default();
    request_limits::check(message, variant, LIMITS, &counters).is_ok()
}

fn check_entries<'a>(
    entries: usize,
    mut names: impl Iterator<Item = &'a String>,
    locators: &[ResourceLocator],
    node: Option<&Bytes>,
) {
    assert!(entries <= LIMITS.entries, "{entries} entries");
    assert!(names.all(|name| name.len() <= LIMITS.name_bytes), "a long name");
    assert!(locators.iter().all(|locator| locator.name.len() <= LIMITS.name_bytes), "a long name in a locator");
    assert!(node.is_none_or(|node| node.len() <= LIMITS.node_bytes), "a large node");
}

/// The first bytes of a connection. As soon as they are a header, or are none, further bytes change nothing. No more bytes than a header may
/// have are waited for, and an address that is read comes back from a header that states it.
pub(crate) fn proxy_header(data: &[u8]) {
    let judged = (0..=data.len()).map(|end| (end, proxy_header::parse(&data[..end])));
    let judged = judged.skip_while(|(_, parsed)| *parsed == Ok(Header::Incomplete));
    let first = judged.clone().next();
    let Some((end, parsed)) = first else { return assert!(data.len() < LONGEST, "{} bytes awaited", data.len()) };
    for (more, other) in judged.take(64) {
        assert_eq!(other, parsed, "after {end} and after {more} bytes");
    }
    let Ok(Header::Complete { origin, length }) = parsed else { return };
    assert!(length == end && length <= LONGEST, "{length} bytes of {end}");
    let Origin::Client(client) = origin else { return };
    for stated in [line(client), binary(client)] {
        let length = stated.len();
        assert_eq!(proxy_header::parse(&stated), Ok(Header::Complete { origin, length }), "{stated:?}");
    }
}

fn line(client: SocketAddr) -> Vec<u8> {
    let (family, address) = (if client.is_ipv4() { "TCP4" } else { "TCP6" }, client.ip());
    format!("PROXY {family} {address} {address} {} 0\r\n", client.port()).into_bytes()
}

fn binary(client: SocketAddr) -> Vec<u8> {
    let (family, address) = match client {
        SocketAddr::V4(address) => (0x11, address.ip().octets().to_vec()),
        SocketAddr::V6(address) => (0x21, address.ip().octets().to_vec()),
    };
    let ports = [client.port().to_be_bytes(), [0, 0]].concat();
    let length = (2 * address.len() + ports.len()) as u8;
    [b"\r\n\r\n\0\r\nQUIT\n\x21".as_slice(), &[family, 0, length], &address, &address, &ports].concat()
}

/// Small, so that short inputs reach them.
const LIMITS: RequestLimits = RequestLimits { entries: 8, name_bytes: 32, node_bytes: 64 };
const MESSAGE_BYTES: usize = 4096;

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime of one thread starts");
}

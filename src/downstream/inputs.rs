//! Readers for what clients and balancers send, without a connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use weir_core::protocol::session::Variant;

use super::frames::Frames;
use super::incomplete::IncompleteRequests;
use super::proxy_header::{self, Header, Origin};
use super::{report_limits, request_limits};
use crate::limit::LimitCounters;

pub use super::request_limits::RequestLimits;
pub use super::rest::inputs::read_poll;

/// Reads a client's gRPC stream that arrives in these chunks, possibly compressed with gzip. Returns its messages, and code and text of the status
/// if an error ends the stream, for example a message with more than `message_bytes`. Needs a runtime with timers.
pub async fn read_messages(
    chunks: impl IntoIterator<Item = Bytes>,
    message_bytes: usize,
) -> (Vec<Bytes>, Option<(i32, String)>) {
    let frames = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let inbound = IncompleteRequests::new(message_bytes, 1, Arc::new(LimitCounters::default())).connection();
    let mut frames = Frames::new(StreamBody::new(stream::iter(frames)), message_bytes, inbound).with_gzip(true);
    let mut messages = Vec::new();
    loop {
        match frames.next().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, None),
            Err(status) => return (messages, Some((status.code, status.message))),
        }
    }
}

/// Checks the limits of an encoded discovery request. An error is the text that the client is sent.
pub fn check_request(request: &[u8], variant: Variant, limits: RequestLimits) -> Result<(), String> {
    let checked = request_limits::check(request, variant, limits, &LimitCounters::default());
    checked.map(drop).map_err(|status| status.message)
}

/// Checks the limits of an encoded load report; its rows are its entries. An error is the text that the client is sent.
pub fn check_load_report(report: &[u8], limits: RequestLimits) -> Result<(), String> {
    report_limits::check(report, limits, &LimitCounters::default()).map_err(|status| status.message)
}

/// Reads the PROXY protocol header at the start of a connection: the client, if the balancer states one, and the length of the header. `None`:
/// more bytes are needed. An error says why there is no such header.
pub fn read_proxy_header(start: &[u8]) -> Result<Option<(Option<SocketAddr>, usize)>, String> {
    match proxy_header::parse(start).map_err(|error| error.to_string())? {
        Header::Incomplete => Ok(None),
        Header::Complete { origin: Origin::Balancer, length } => Ok(Some((None, length))),
        Header::Complete { origin: Origin::Client(client), length } => Ok(Some((Some(client), length))),
    }
}

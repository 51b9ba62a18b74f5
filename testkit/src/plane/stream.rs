//! The control plane's end of one stream.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_core::proto::discovery::DeltaDiscoveryResponse;
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;

use crate::gzip;
use crate::wait::PATIENCE;

/// Names with this prefix ask where a set ends.
pub const END_OF_SET: &str = "weir.end-of-set/";

/// Dropping it ends the stream without a status.
pub struct Stream {
    pub variant: Variant,
    pub requests: mpsc::UnboundedReceiver<Request>,
    pub responses: mpsc::UnboundedSender<Bytes>,
    pub headers: HeaderMap,
    /// The address from which the connection comes.
    pub from: SocketAddr,
    /// The number of the connection. Connections are counted from 0.
    pub connection: usize,
    /// Requests that nothing reads. Their sender is kept so that they do not seem to have ended.
    pub(super) unread: Option<(Incoming, mpsc::UnboundedSender<Request>)>,
}

impl Stream {
    pub async fn request(&mut self) -> Request {
        let request = timeout(PATIENCE, self.requests.recv()).await.expect("the relay asks for nothing");
        request.expect("the relay ended the stream")
    }

    /// Waits for the next request that asks for the end of a set, and answers that nothing is new. Returns the type of the set.
    pub async fn answer_for_end(&mut self) -> String {
        loop {
            let Request::Delta(request) = self.request().await else { panic!("SotW sets have their end") };
            let mut stated = request.initial_resource_versions.into_keys();
            if let Some(name) = stated.find(|name| name.starts_with(END_OF_SET)) {
                let (nonce, removed_resources) = ("end".into(), vec![name]);
                let type_url = request.type_url.clone();
                let answer = DeltaDiscoveryResponse { type_url, nonce, removed_resources, ..Default::default() };
                self.respond(&Response::Delta(answer));
                return request.type_url;
            }
        }
    }

    /// Waits until the relay has half-closed the stream. Until then, reads also what was to stay unread.
    pub async fn requests_end(&mut self) {
        if let Some((body, _)) = &mut self.unread {
            while let Some(Ok(_)) = body.frame().await {}
        }
        self.unread = None;
        while self.requests.recv().await.is_some() {}
    }

    /// Checks that no request arrives for a while.
    pub async fn hears_nothing(&mut self, duration: Duration) {
        if let Ok(request) = timeout(duration, self.requests.recv()).await {
            panic!("{request:?}, where nothing was to be requested");
        }
    }

    pub fn respond(&self, response: &Response) {
        self.send(encoded(response));
    }

    pub fn respond_compressed(&self, response: &Response) {
        self.send(gzip::framed(1, &gzip::gzip(&encoded(response)[PREFIX..])));
    }

    /// Sends bytes, which may be a part of a message or several messages.
    pub fn send(&self, bytes: impl Into<Bytes>) {
        let _ = self.responses.send(bytes.into()); // the relay may have disconnected
    }

    /// Ends the stream with a status.
    pub fn end_with(&self, status: u8) {
        self.end_quoting(status, "no such type");
    }

    /// Ends the stream with a status and its message.
    pub fn end_quoting(&self, status: u8, message: &str) {
        self.send(end(status, message));
    }
}

/// Stands before a status that ends the stream, in place of the first byte of a message.
const END: u8 = 0xff;
/// Bytes before each message.
const PREFIX: usize = 5;

/// Returns what ends a stream with a status and its message.
pub(super) fn end(status: u8, message: &str) -> Bytes {
    [&[END, status], message.as_bytes()].concat().into()
}

/// Returns a frame with a message, or with the status that ends the stream.
pub(super) fn frame(bytes: Bytes) -> Frame<Bytes> {
    let [END, status, message @ ..] = &bytes[..] else { return Frame::data(bytes) };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", u16::from(*status).into());
    trailers.insert("grpc-message", http::HeaderValue::from_bytes(message).unwrap());
    Frame::trailers(trailers)
}

pub fn encoded(response: &Response) -> Bytes {
    let message = match response {
        Response::Sotw(response) => response.encode_to_vec(),
        Response::Delta(response) => response.encode_to_vec(),
    };
    gzip::framed(0, &message).into()
}

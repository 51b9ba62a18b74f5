//! gRPC calls on the address and the socket for operators.

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::compression::GRPC_ACCEPT_ENCODING;
use crate::grpc_message;

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) message: String,
}

/// The messages of a client.
pub(super) struct Requests {
    body: Body,
    buffer: BytesMut,
}

/// The writer of responses, and of the status at the end.
pub(super) struct Responses(mpsc::Sender<Frame<Bytes>>);

impl Status {
    pub(super) const OK: u16 = 0;
    pub(super) const INVALID_ARGUMENT: u16 = 3;
    pub(super) const PERMISSION_DENIED: u16 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u16 = 8;
    pub(super) const UNIMPLEMENTED: u16 = 12;
    pub(super) const INTERNAL: u16 = 13;

    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", self.code.into());
        if let Some(message) = grpc_message::header(&self.message) {
            trailers.insert("grpc-message", message);
        }
        trailers
    }

    /// Returns the response of a call that ends without a message.
    pub(super) fn response(&self) -> Response {
        let mut response = Response::new(Body::empty());
        response.headers_mut().extend(self.trailers());
        response.headers_mut().extend(grpc_headers());
        response
    }
}

impl Requests {
    pub(super) fn of(body: Body) -> Self {
        Self { body, buffer: BytesMut::new() }
    }

    /// Returns the next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.message()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Status::new(Status::INTERNAL, error.to_string())),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Status::new(Status::INVALID_ARGUMENT, "the message is not complete")),
            }
        }
    }

    fn message(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(&[is_compressed, a, b, c, d]) = self.buffer.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if is_compressed != 0 {
            return Err(Status::new(Status::UNIMPLEMENTED, "compressed messages are not supported"));
        }
        if length > LONGEST {
            let reason = format!("the message has {length} bytes: expected at most {LONGEST}");
            return Err(Status::new(Status::RESOURCE_EXHAUSTED, reason));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

impl Responses {
    /// Returns the writer of messages, and the response in which they are sent.
    pub(super) fn channel() -> (Self, Response) {
        let (to, from) = mpsc::channel(1);
        let frames = ReceiverStream::new(from).map(Ok::<_, std::convert::Infallible>);
        let mut response = Response::new(Body::new(StreamBody::new(frames)));
        response.headers_mut().extend(grpc_headers());
        (Self(to), response)
    }

    /// Returns false if the client has left.
    pub(super) async fn send(&self, message: &[u8]) -> bool {
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX)); // shorter than the limit of responses
        framed.extend_from_slice(message);
        self.0.send(Frame::data(framed.freeze())).await.is_ok()
    }

    pub(super) async fn end(self, status: Status) {
        let _ = self.0.send(Frame::trailers(status.trailers())).await; // the client may have left
    }
}

/// Returns the headers of a response. They also say that Weir does not accept compressed requests of operators.
fn grpc_headers() -> HeaderMap {
    let grpc = HeaderValue::from_static("application/grpc");
    let accepted = HeaderName::from_static(GRPC_ACCEPT_ENCODING);
    HeaderMap::from_iter([(CONTENT_TYPE, grpc), (accepted, HeaderValue::from_static("identity"))])
}

const PREFIX: usize = 5;
/// The longest request.
const LONGEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flag][..], &length, message].concat()
    }

    /// Returns the messages of a body that arrives in these pieces, and the code with which it ends.
    async fn read(pieces: Vec<Vec<u8>>) -> (Vec<Bytes>, Option<u16>) {
        let pieces = pieces.into_iter().map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from(piece)));
        let (mut requests, mut read) = (Requests::of(Body::from_stream(stream::iter(pieces))), Vec::new());
        loop {
            match requests.next().await {
                Ok(Some(message)) => read.push(message),
                Ok(None) => return (read, None),
                Err(status) => return (read, Some(status.code)),
            }
        }
    }

    #[tokio::test]
    async fn messages_are_read_however_the_bytes_come() {
        let bytes = [framed(0, b"one"), framed(0, b""), framed(0, &[7; 300])].concat();
        let expected: Vec<Bytes> = vec!["one".into(), "".into(), vec![7; 300].into()];
        for size in [1, 4, 5, 8, 9, bytes.len()] {
            let pieces = bytes.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(read(pieces).await, (expected.clone(), None), "{size} at a time");
        }
    }

    #[tokio::test]
    async fn a_message_that_is_cut_too_long_or_compressed_ends_the_call() {
        let whole = framed(0, b"one");
        for length in [1, 4, 5, 7] {
            let cut = [&whole[..], &whole[..length]].concat();
            assert_eq!(read(vec![cut]).await, (vec!["one".into()], Some(Status::INVALID_ARGUMENT)), "{length}");
        }
        assert_eq!(read(vec![framed(0, &vec![1; LONGEST])]).await.0.len(), 1);
        let too_long = framed(0, &vec![1; LONGEST + 1])[..PREFIX].to_vec();
        assert_eq!(read(vec![too_long]).await, (vec![], Some(Status::RESOURCE_EXHAUSTED)), "without waiting for it");
        assert_eq!(read(vec![framed(1, b"one")]).await, (vec![], Some(Status::UNIMPLEMENTED)));
    }

    #[tokio::test]
    async fn responses_are_framed_and_the_status_is_last() {
        let (responses, response) = Responses::channel();
        let sending = async {
            assert!(responses.send(b"one").await && responses.send(b"").await);
            responses.end(Status::new(Status::OK, "")).await;
        };
        let (body, ()) = tokio::join!(response.into_body().collect(), sending);
        let body = body.unwrap();
        assert_eq!(body.trailers().unwrap().get("grpc-message"), None);
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), [framed(0, b"one"), framed(0, b"")].concat());
    }

    #[test]
    fn what_a_header_cannot_say_of_a_reason_is_encoded() {
        let refused = Status::new(Status::INTERNAL, "50 % of é\nare\u{7f} lost").response();
        assert_eq!(refused.headers()["grpc-status"], "13");
        assert_eq!(refused.headers()["grpc-message"], "50 %25 of %C3%A9%0Aare%7F lost");
    }
}

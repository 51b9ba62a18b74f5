//! Messages of gRPC servers as they arrive: plain or compressed.
//!
//! A server may compress its responses even if it is not asked to. The gRPC library would refuse such a stream, or inflate a message in one go on
//! the thread of its stream. So the flag before each message, which says whether it is compressed, is moved into the message. To the library every
//! message is plain; the codecs find the flag in the first byte.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderValue;
use http_body::{Body, Frame};
use tonic::Status;
use tonic::codec::DecodeBuf;
use tonic::codegen::Service;

use crate::compression::{ACCEPTED, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, InflateError, Inflater};

/// A message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WireMessage {
    Plain(Bytes),
    Gzip(Bytes),
}

/// A channel that moves the flag of each message into the message.
#[derive(Clone)]
pub(super) struct WireMessages<S> {
    channel: S,
    /// How many bytes a message may have, without its flag.
    limit: usize,
    /// Whether the server is asked to compress its responses.
    asks: bool,
}

/// A response of such a channel.
pub(super) struct FlaggedBody<B> {
    body: B,
    encoding: Encoding,
    limit: usize,
    /// Bytes that have arrived and are not passed on yet.
    chunk: Bytes,
    prefix: [u8; PREFIX],
    prefix_read: usize,
    /// Bytes of the message that are not passed on yet, once its prefix is.
    missing: usize,
}

impl WireMessage {
    /// Reads a message of such a channel, without copying.
    pub(super) fn decode(buffer: &mut DecodeBuf<'_>) -> Self {
        let is_compressed = buffer.has_remaining() && buffer.get_u8() == COMPRESSED;
        let message = buffer.copy_to_bytes(buffer.remaining());
        if is_compressed { Self::Gzip(message) } else { Self::Plain(message) }
    }

    /// Returns the content of the message, or an error if it has more bytes than the limit.
    pub(super) async fn content(self, limit: usize) -> Result<Bytes, Status> {
        match self {
            Self::Plain(message) => Ok(message),
            Self::Gzip(message) => Inflater::new(message, limit).finish().await.map_err(|error| unreadable(&error)),
        }
    }
}

/// The beginning of each error about an unreadable response.
pub(super) const INVALID: &str = "invalid response";

/// Returns the status of a stream with a message that cannot be inflated.
pub(super) fn unreadable(error: &InflateError) -> Status {
    match error {
        InflateError::TooLarge { limit } => too_large(error, *limit),
        InflateError::Truncated | InflateError::Invalid(_) => Status::internal(format!("invalid response: {error}")),
    }
}

fn too_large(size: impl std::fmt::Display, limit: usize) -> Status {
    Status::resource_exhausted(format!("response too large: {size}, limit {limit} (limits.message_bytes)"))
}

impl<S> WireMessages<S> {
    pub(super) fn new(channel: S, limit: usize, asks: bool) -> Self {
        Self { channel, limit, asks }
    }
}

impl<S, Q, B> Service<http::Request<Q>> for WireMessages<S>
where
    S: Service<http::Request<Q>, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<FlaggedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Q>) -> Self::Future {
        if self.asks {
            request.headers_mut().insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        }
        let (response, limit) = (self.channel.call(request), self.limit);
        Box::pin(async move {
            let (mut head, body) = response.await?.into_parts();
            let encoding = Encoding::of(&head.headers, GRPC_ENCODING);
            head.headers.remove(GRPC_ENCODING); // for the library, nothing is compressed
            Ok(http::Response::from_parts(head, FlaggedBody::new(body, encoding, limit)))
        })
    }
}

impl<B> FlaggedBody<B> {
    fn new(body: B, encoding: Encoding, limit: usize) -> Self {
        let (chunk, prefix, prefix_read, missing) = Default::default();
        Self { body, encoding, limit, chunk, prefix, prefix_read, missing }
    }

    /// Returns the next bytes of the chunk that can be passed on.
    fn next_piece(&mut self) -> Result<Option<Bytes>, Status> {
        if self.missing > 0 {
            let piece = self.chunk.split_to(self.chunk.len().min(self.missing));
            self.missing -= piece.len();
            return Ok(Some(piece));
        }
        let taken = self.chunk.len().min(PREFIX - self.prefix_read);
        self.chunk.copy_to_slice(&mut self.prefix[self.prefix_read..][..taken]);
        self.prefix_read += taken;
        if self.prefix_read < PREFIX {
            return Ok(None);
        }
        let [flag, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length);
        self.check(flag, length as usize)?;
        (self.prefix_read, self.missing) = (0, length as usize);
        let [a, b, c, d] = length.saturating_add(1).to_be_bytes();
        Ok(Some(Bytes::copy_from_slice(&[PLAIN, a, b, c, d, flag])))
    }

    /// Returns an error if the stream ended within the prefix of a message. The decoder finds an end within the message itself.
    fn is_cut(&mut self) -> Option<Status> {
        let is_cut = std::mem::take(&mut self.prefix_read) > 0;
        is_cut.then(|| Status::internal("invalid response: the stream ends within the beginning of a message"))
    }

    fn check(&self, flag: u8, length: usize) -> Result<(), Status> {
        if length > self.limit {
            return Err(too_large(format_args!("{length} bytes"), self.limit));
        }
        match (flag, &self.encoding) {
            (PLAIN, _) | (COMPRESSED, Encoding::Gzip) => Ok(()),
            (COMPRESSED, Encoding::Identity) => {
                Err(Status::internal("invalid response: a compressed message without grpc-encoding"))
            }
            (COMPRESSED, Encoding::Other(name)) => Err(Status::internal(format!(
                "the server compresses its responses with {name:?}: expected gzip or identity"
            ))),
            _ => Err(Status::internal(format!("invalid response: compression flag {flag}, expected 0 or 1"))),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for FlaggedBody<B>
where
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            while !this.chunk.is_empty() {
                match this.next_piece() {
                    Ok(Some(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                    Ok(None) => {}
                    Err(status) => return Poll::Ready(Some(Err(status.into()))),
                }
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.chunk = data,
                    Err(trailers) => match this.is_cut() {
                        Some(error) => return Poll::Ready(Some(Err(error.into()))),
                        None => return Poll::Ready(Some(Ok(trailers))),
                    },
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(this.is_cut().map(|error| Err(error.into()))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunk.is_empty() && self.body.is_end_stream()
    }
}

/// The flag and the length before each message.
const PREFIX: usize = 5;
const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::{HeaderMap, HeaderValue};
    use http_body_util::{BodyExt, StreamBody};
    use tonic::Code;

    use super::*;

    const LIMIT: usize = 300;

    fn message(flag: u8, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[flag][..], &length, content].concat()
    }

    /// Returns the bytes that the library gets of a response in pieces of this length, and how the response ends.
    async fn passed_on(encoding: Encoding, bytes: &[u8], length: usize) -> (Vec<u8>, Option<Status>) {
        let chunks = bytes.chunks(length).map(|chunk| Frame::data(Bytes::copy_from_slice(chunk)));
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
        let frames = chunks.chain([Frame::trailers(trailers)]).map(Ok::<_, Status>);
        let frames = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let (mut body, mut passed) = (FlaggedBody::new(frames, encoding, LIMIT), Vec::new());
        loop {
            match body.frame().await.expect("there are trailers") {
                Ok(frame) if frame.is_trailers() => return (passed, None),
                Ok(frame) => passed.extend(frame.into_data().unwrap()),
                Err(error) => return (passed, Some(*error.downcast().unwrap())),
            }
        }
    }

    #[tokio::test]
    async fn the_flag_of_each_message_is_its_first_byte_however_the_bytes_are_cut() {
        let bytes = [message(0, b"one"), message(1, b""), message(1, b"three"), message(0, b"")].concat();
        let flagged = [&b"\0one"[..], b"\x01", b"\x01three", b"\0"].map(|content| message(0, content)).concat();
        for length in 1..=bytes.len() {
            let (passed, error) = passed_on(Encoding::Gzip, &bytes, length).await;
            assert_eq!((passed, error.map(|error| error.code())), (flagged.clone(), None), "{length}");
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_message_is_an_error_of_the_stream_that_says_so() {
        let snappy = || Encoding::Other("snappy".into());
        let cases = [
            (snappy(), message(1, b"x"), Code::Internal, "compresses its responses with \"snappy\""),
            (Encoding::Identity, message(1, b"x"), Code::Internal, "a compressed message without grpc-encoding"),
            (Encoding::Gzip, message(2, b"x"), Code::Internal, "compression flag 2"),
            (
                Encoding::Gzip,
                message(0, &[0; LIMIT + 1]),
                Code::ResourceExhausted,
                "301 bytes, limit 300 (limits.message_bytes)",
            ),
        ];
        for (encoding, bytes, code, text) in cases {
            let (passed, error) = passed_on(encoding, &[message(0, &[0; LIMIT]), bytes].concat(), 7).await;
            let error = error.expect(text);
            assert_eq!((passed.len(), error.code()), (PREFIX + 1 + LIMIT, code), "the one before is passed on");
            assert!(error.message().contains(text), "{error}");
        }
        assert_eq!(passed_on(snappy(), &message(0, b"x"), 9).await.0, message(0, b"\0x"), "it is not compressed");
    }
}

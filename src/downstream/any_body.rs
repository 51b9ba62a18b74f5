//! The bodies of responses to clients.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

use super::body::{ReadStalled, SessionBody};
use super::buffered_body::BufferedBody;
use super::frames::framed;
use super::piece::Piece;
use super::slot::Status;
use crate::compression::{ACCEPTED, GRPC_ACCEPT_ENCODING};

/// The kinds of response bodies.
pub(super) enum AnyBody {
    Session(Box<SessionBody>),
    /// Messages that another task sends, and then the final status.
    Messages(mpsc::Receiver<Bytes>, Option<oneshot::Receiver<Status>>),
    Whole(BufferedBody),
    Empty,
}

impl Body for AnyBody {
    type Data = Piece;
    type Error = ReadStalled;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, ReadStalled>>> {
        match &mut *self {
            Self::Session(body) => Pin::new(body.as_mut()).poll_frame(cx),
            Self::Messages(messages, end) => {
                if let Some(message) = ready!(messages.poll_recv(cx)) {
                    return Poll::Ready(Some(Ok(Frame::data(framed(&message).into()))));
                }
                let Some(waiting) = end else { return Poll::Ready(None) };
                let status = ready!(Pin::new(waiting).poll(cx))
                    .unwrap_or_else(|_| Status::unavailable("the relay is shutting down"));
                *end = None;
                Poll::Ready(Some(Ok(Frame::trailers(status.trailers()))))
            }
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            other => matches!(other, Self::Empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Answers a gRPC call with nothing but a status.
pub(super) fn refuse(status: &Status) -> Response<AnyBody> {
    let mut response = grpc_response(AnyBody::Empty);
    response.headers_mut().extend(status.trailers());
    response
}

pub(super) fn grpc_response(body: AnyBody) -> Response<AnyBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    response
}

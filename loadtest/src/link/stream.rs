//! One gRPC stream of a connection.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use percent_encoding::percent_decode;

use super::message::{Assembler, Message};

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The gRPC status. `None`: the stream broke, and `message` has the reason.
    pub code: Option<u32>,
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => match CODES.get(code as usize) {
                Some(name) => write!(f, "gRPC status {code} ({name}): {}", self.message),
                None => write!(f, "gRPC status {code}: {}", self.message),
            },
            None => f.write_str(&self.message),
        }
    }
}

/// The names of the gRPC statuses, by their codes.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

pub struct Stream {
    /// Requests that were sent before the stream was opened.
    queued: VecDeque<Bytes>,
    requests: Option<SendStream<Bytes>>,
    replies: Replies,
    assembler: Assembler,
    waker: Waker,
    is_paused: bool,
}

enum Replies {
    /// The server does not allow another stream yet.
    Unopened,
    Headers(ResponseFuture),
    Data(RecvStream),
    Trailers(RecvStream),
}

impl Stream {
    pub fn new(waker: Waker) -> Self {
        Self {
            queued: VecDeque::new(),
            requests: None,
            replies: Replies::Unopened,
            assembler: Assembler::default(),
            waker,
            is_paused: false,
        }
    }

    pub fn opened(&mut self, response: ResponseFuture, mut requests: SendStream<Bytes>) {
        for request in self.queued.drain(..) {
            let _ = requests.send_data(request, false); // reading reports the end of the stream
        }
        self.replies = Replies::Headers(response);
        self.requests = Some(requests);
    }

    pub fn send(&mut self, frame: Bytes) {
        match &mut self.requests {
            Some(requests) => drop(requests.send_data(frame, false)), // reading reports the end of the stream
            None => self.queued.push_back(frame),
        }
    }

    pub fn has_room(&mut self) -> bool {
        self.requests.as_mut().is_some_and(|requests| {
            requests.reserve_capacity(1);
            requests.capacity() > 0
        })
    }

    pub fn half_close(&mut self) {
        if let Some(requests) = &mut self.requests {
            let _ = requests.send_data(Bytes::new(), true); // it may have ended already
        }
    }

    pub fn set_paused(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    pub fn cancel(mut self) {
        if let Some(requests) = &mut self.requests {
            requests.send_reset(Reason::CANCEL);
        }
    }

    pub fn poll(&mut self, max_message: usize) -> Poll<Result<Message, Status>> {
        let mut cx = Context::from_waker(&self.waker);
        loop {
            match &mut self.replies {
                Replies::Unopened => return Poll::Pending,
                Replies::Headers(response) => match Pin::new(response).poll(&mut cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return broken(&error),
                    Poll::Ready(Ok(response)) => {
                        if let Some(status) = status_of(response.headers()) {
                            return Poll::Ready(Err(status));
                        }
                        if response.status() != 200 {
                            let message = format!("HTTP status {}", response.status());
                            return Poll::Ready(Err(Status { code: None, message }));
                        }
                        self.replies = Replies::Data(response.into_body());
                    }
                },
                Replies::Data(_) if self.is_paused => return Poll::Pending,
                Replies::Data(data) => {
                    match self.assembler.next(max_message) {
                        Ok(Some(message)) => return Poll::Ready(Ok(message)),
                        Ok(None) => {}
                        Err(message) => return Poll::Ready(Err(Status { code: None, message })),
                    }
                    match data.poll_data(&mut cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Some(Err(error))) => return broken(&error),
                        Poll::Ready(Some(Ok(chunk))) => {
                            let _ = data.flow_control().release_capacity(chunk.len()); // all of these bytes came on this stream
                            self.assembler.push(chunk);
                        }
                        Poll::Ready(None) => {
                            let Replies::Data(data) = std::mem::replace(&mut self.replies, Replies::Unopened) else {
                                return Poll::Pending;
                            };
                            self.replies = Replies::Trailers(data);
                        }
                    }
                }
                Replies::Trailers(data) => {
                    return match data.poll_trailers(&mut cx) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Err(error)) => broken(&error),
                        Poll::Ready(Ok(trailers)) => {
                            let status = trailers.as_ref().and_then(status_of);
                            let without = || Status { code: None, message: "ended without a status".into() };
                            Poll::Ready(Err(status.unwrap_or_else(without)))
                        }
                    };
                }
            }
        }
    }
}

fn broken(error: &h2::Error) -> Poll<Result<Message, Status>> {
    Poll::Ready(Err(Status { code: None, message: error.to_string() }))
}

fn status_of(headers: &HeaderMap) -> Option<Status> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message =
        headers.get("grpc-message").map(|text| percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned());
    Some(Status { code: Some(code), message: message.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_status_is_decoded() {
        for (text, expected) in [
            ("no such node", "no such node"),
            ("100%25 of caf%C3%A9%0Afull", "100% of caf\u{e9}\nfull"),
            ("%zz 5% %2", "%zz 5% %2"),
            ("%ff", "\u{fffd}"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", http::HeaderValue::from_static("14"));
            headers.insert("grpc-message", http::HeaderValue::from_static(text));
            assert_eq!(status_of(&headers).unwrap().message, expected);
        }
    }
}

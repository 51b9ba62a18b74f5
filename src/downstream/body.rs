//! The replies of one session as a response body. One piece at a time is out, and the next is made when it was taken.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::time::Sleep;

use super::encode::Encoder;
use super::slot::{Slot, Status};
use crate::protocol::session::{Step, Variant};

pub(super) struct SessionBody {
    slot: Arc<Slot>,
    control_plane: Arc<str>,
    encoder: Option<Encoder>,
    gate: Arc<Gate>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// A call with one response.
    single: bool,
    over: bool,
}

/// Shut while a piece is out. A stalled stream pins one piece and no more.
#[derive(Default)]
struct Gate {
    out: AtomicBool,
    body: AtomicWaker,
}

/// A piece on its way to the socket. The gate opens when its last byte was written.
pub(super) struct Piece {
    bytes: Bytes,
    gate: Arc<Gate>,
}

/// The longest piece that one frame carries.
pub(super) const PIECE: usize = 64 << 10;

impl SessionBody {
    pub(crate) fn new(slot: Arc<Slot>, control_plane: Arc<str>, single: bool) -> Self {
        Self { slot, control_plane, encoder: None, gate: Arc::default(), sleep: None, single, over: false }
    }

    fn next_piece(&mut self) -> Option<Piece> {
        let bytes = self.encoder.as_mut()?.next_piece(PIECE);
        match (&bytes, self.slot.handle()) {
            (None, _) => self.encoder = None,
            (Some(_), Some(handle)) => handle.progressed(),
            (Some(_), None) => {}
        }
        let piece = Piece { bytes: bytes?, gate: self.gate.clone() };
        self.gate.out.store(true, Ordering::Release);
        Some(piece)
    }

    /// Makes the next reply, or notes when to look again.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.slot.wait(cx.waker());
        if let Some(reply) = self.slot.take_answer() {
            self.encoder = Some(Encoder::new(reply, Variant::Sotw, &self.control_plane));
            return Poll::Ready(Ok(()));
        }
        if let Some(status) = self.slot.ended() {
            return Poll::Ready(Err(status));
        }
        if self.single {
            return Poll::Pending; // its response is not one of a session
        }
        let Some(handle) = self.slot.handle() else { return Poll::Pending };
        loop {
            match handle.poll(cx.waker()) {
                Step::Reply(reply) => {
                    self.slot.signal();
                    self.encoder = Some(Encoder::new(*reply, handle.variant, &self.control_plane));
                    return Poll::Ready(Ok(()));
                }
                Step::End(end) => return Poll::Ready(Err(end.into())),
                Step::Idle(None) => {
                    self.sleep = None;
                    return Poll::Pending;
                }
                Step::Idle(Some(moment)) => {
                    let mut sleep = Box::pin(tokio::time::sleep_until(handle.clock().instant(moment)));
                    let due = sleep.as_mut().poll(cx);
                    self.sleep = Some(sleep);
                    ready!(due); // due already: time has passed since the session looked
                }
            }
        }
    }
}

impl Body for SessionBody {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            if self.encoder.is_some() {
                self.gate.body.register(cx.waker());
                if self.gate.out.load(Ordering::Acquire) {
                    return Poll::Pending;
                }
                if let Some(piece) = self.next_piece() {
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
            }
            if let Err(status) = ready!(self.poll_session(cx)) {
                self.over = true;
                self.slot.over.notify_one();
                return Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))));
            }
        }
    }
}

impl Drop for SessionBody {
    /// Also when the client resets the stream.
    fn drop(&mut self) {
        self.slot.end(Status::ok());
        self.slot.over.notify_one();
    }
}

impl From<Bytes> for Piece {
    /// A message of a call that is too small to need a gate.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, gate: Arc::default() }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.gate.out.store(false, Ordering::Release);
        self.gate.body.wake();
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", http::HeaderValue::from(status.code));
    // Bytes that a header cannot hold are left out; only texts of peers may have some.
    let text: String = status.message.chars().filter(|letter| (' '..='~').contains(letter) && *letter != '%').collect();
    if let Ok(message) = http::HeaderValue::from_str(&text)
        && !text.is_empty()
    {
        headers.insert("grpc-message", message);
    }
    headers
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::session::Reply;
    use crate::xds::{BodyStore, Resource, TypeTable};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn reply_of(bytes: usize) -> Reply {
        let url = "type.googleapis.com/own.Type";
        let kind = TypeTable::new().resolve(url);
        let resource = Some(Any { type_url: url.into(), value: vec![7; bytes].into() });
        let wrapper = discovery::Resource { name: "large".into(), resource, ..Default::default() };
        let resource = Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap();
        Reply::sample(kind, vec![Arc::new(resource)])
    }

    #[test]
    fn a_stalled_stream_pins_one_piece_whatever_is_still_to_be_said() {
        let mut body = SessionBody::new(Arc::default(), "weir".into(), false);
        body.encoder = Some(Encoder::new(reply_of(10 << 20), Variant::Delta, "weir"));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut poll = |body: &mut SessionBody| match Pin::new(body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => Some(frame.into_data().ok().unwrap()),
            Poll::Ready(_) => panic!("the stream ended"),
            Poll::Pending => None,
        };
        let mut sent = 0;
        while sent < 10 << 20 {
            let piece = poll(&mut body).expect("the gate is open");
            assert!(piece.remaining() <= PIECE);
            assert!(poll(&mut body).is_none(), "one piece is out");
            let before = woken.0.load(Ordering::Relaxed);
            sent += piece.remaining();
            drop(piece);
            assert_eq!(woken.0.load(Ordering::Relaxed), before + 1, "taking it wakes the body");
        }
    }
}

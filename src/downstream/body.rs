//! The replies of one session as a response body. One piece at a time is in flight, and the next is made when it was written.

use std::convert::Infallible;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::time::Sleep;

use super::encode::{Head, Outgoing, SharedMessages};
use super::slot::{Slot, Status};
use super::turns::{LARGE, Turn, Turns};
use crate::protocol::session::{Step, Variant};

pub(super) struct SessionBody {
    slot: Arc<Slot>,
    messages: Arc<SharedMessages>,
    outgoing: Option<Outgoing>,
    turns: Arc<Turns>,
    turn: Option<Turn>,
    gate: Arc<Gate>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the call has one response.
    single: bool,
    over: bool,
}

/// Counts the pieces in flight. A stalled stream pins one piece of its own, or a few that are shared with other clients.
#[derive(Default)]
struct Gate {
    out: AtomicUsize,
    body: AtomicWaker,
}

/// A piece in flight, and the bytes before it. The gate opens when its last byte was written.
pub(super) struct Piece {
    head: Head,
    head_sent: usize,
    bytes: Bytes,
    gate: Arc<Gate>,
}

/// How many shared pieces may be in flight. With more of them the connection is polled less often.
const SHARED_PIECES_OUT: usize = 8;

impl SessionBody {
    pub(crate) fn new(slot: Arc<Slot>, messages: Arc<SharedMessages>, turns: Arc<Turns>, single: bool) -> Self {
        Self {
            slot,
            messages,
            outgoing: None,
            turns,
            turn: None,
            gate: Arc::default(),
            sleep: None,
            single,
            over: false,
        }
    }

    fn next_piece(&mut self) -> Option<Piece> {
        let next = self.outgoing.as_mut()?.next_piece();
        match (&next, self.slot.handle()) {
            (None, _) => self.outgoing = None, // the turn lasts until the message ends, or a lease would end in between
            (Some(_), Some(handle)) => {
                self.outgoing.iter().for_each(|outgoing| outgoing.note_progress(handle.clock().now()))
            }
            (Some(_), None) => {}
        }
        let (head, bytes) = next?;
        self.turn.iter().for_each(Turn::note_progress);
        self.gate.out.fetch_add(1, Ordering::AcqRel);
        Some(Piece { head, head_sent: 0, bytes, gate: self.gate.clone() })
    }

    /// Whether no further piece may be in flight.
    fn is_shut(&self) -> bool {
        let shared = self.outgoing.as_ref().is_some_and(Outgoing::is_shared);
        self.gate.out.load(Ordering::Acquire) >= if shared { SHARED_PIECES_OUT } else { 1 }
    }

    /// Makes the next reply, or notes when to try again.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.slot.wait(cx.waker());
        if let Some(reply) = self.slot.take_answer() {
            self.outgoing = Some(Outgoing::new(reply, Variant::Sotw, &self.messages));
            return Poll::Ready(Ok(()));
        }
        if let Some(status) = self.slot.ended() {
            return Poll::Ready(Err(status));
        }
        if self.single {
            return Poll::Pending; // the response does not come from a session
        }
        let Some(handle) = self.slot.handle() else { return Poll::Pending };
        loop {
            let limit = match &self.turn {
                Some(turn) => {
                    ready!(turn.poll_granted(cx));
                    usize::MAX
                }
                None => LARGE,
            };
            let step = match handle.poll_below(limit, cx.waker()) {
                Ok(step) => step,
                Err(bytes) => {
                    self.turn = Some(self.turns.enter(bytes));
                    continue;
                }
            };
            match step {
                Step::Reply(reply) => {
                    self.slot.signal();
                    self.outgoing = Some(Outgoing::new(*reply, handle.variant, &self.messages));
                    return Poll::Ready(Ok(()));
                }
                Step::End(end) => return Poll::Ready(Err(end.into())),
                Step::Idle(None) => {
                    (self.sleep, self.turn) = (None, None);
                    return Poll::Pending;
                }
                Step::Idle(Some(moment)) => {
                    let mut sleep = Box::pin(tokio::time::sleep_until(handle.clock().instant(moment)));
                    let due = sleep.as_mut().poll(cx);
                    (self.sleep, self.turn) = (Some(sleep), None);
                    ready!(due); // already due: time has passed since the session was polled
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
            if self.outgoing.is_some() {
                if self.is_shut() {
                    self.gate.body.register(cx.waker());
                    // It may have opened before the waker was registered.
                    if self.is_shut() {
                        return Poll::Pending;
                    }
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
    /// Runs also when the client resets the stream.
    fn drop(&mut self) {
        self.slot.end(Status::ok());
        self.slot.over.notify_one();
    }
}

impl From<Bytes> for Piece {
    /// A message of a call that is too short for a gate.
    fn from(bytes: Bytes) -> Self {
        Self { head: Head::default(), head_sent: 0, bytes, gate: Arc::default() }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.gate.out.fetch_sub(1, Ordering::AcqRel);
        self.gate.body.wake();
    }
}

impl Piece {
    fn head(&self) -> &[u8] {
        &self.head.bytes()[self.head_sent..]
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.head().len() + self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.head().is_empty() { &self.bytes } else { self.head() }
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let chunks = [self.head(), &self.bytes].into_iter().filter(|chunk| !chunk.is_empty());
        into.iter_mut().zip(chunks).map(|(slot, chunk)| *slot = IoSlice::new(chunk)).count()
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head().len());
        self.head_sent += of_head;
        self.bytes.advance(count - of_head);
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
    use crate::downstream::encode::PIECE;
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
        let messages = SharedMessages::new("weir");
        let mut body = SessionBody::new(Arc::default(), messages.clone(), Turns::new(), false);
        body.outgoing = Some(Outgoing::new(reply_of(10 << 20), Variant::Delta, &messages));
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
            assert!(piece.bytes.len() <= PIECE);
            assert!(poll(&mut body).is_none(), "one piece is out");
            let before = woken.0.load(Ordering::Relaxed);
            sent += piece.remaining();
            drop(piece);
            assert_eq!(woken.0.load(Ordering::Relaxed), before + 1, "taking it wakes the body");
        }
    }
}

//! The replies of one session as a response body. One piece, or a few shared ones, are in flight; the next is made when HTTP/2 has written one.
//! While clusters of the client wait for their endpoints, the next reply is made when HTTP/2 has written all of the last one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Step, Variant};

use super::encode::{CompressedForms, CompressionClient, Outgoing, SharedMessages};
use super::encoded::{Encoded, Encoding, encode};
use super::making::{Making, NextStep};
use super::piece::{Gate, Piece};
use super::slot::{Slot, Status};
use super::to_come::{Come, Count, ToCome};
use super::turns::{LARGE, Turn, Turns};
use super::unfinished_replies::{NextPiece, Unfinished, UnfinishedReplies};
use crate::compression::Compression;
use crate::memory::StreamPlace;
use crate::relay::{Blocker, Unmade, replies_go_one_by_one, reply_is_late, reply_waits, tap_end, tap_reply};

pub(super) struct SessionBody {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    /// The pieces of a reply that are not sent yet.
    rest: Option<Arc<Unfinished>>,
    turn: Option<Turn>,
    /// What another thread makes.
    making: Option<Making>,
    encoding: Option<Box<Encoding>>,
    /// Whether the client accepts compressed replies.
    compression: Compression,
    taker: Option<CompressionClient>,
    /// A reply whose compressed form is being made.
    to_come: Option<ToCome>,
    /// Whether the reply that has the turn brings the client something that it lacks.
    lacks_some: bool,
    gate: Arc<Gate>,
    /// How many pieces may be in flight.
    gate_width: usize,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the call has one response.
    single: bool,
    over: bool,
    /// The stream's entry among those that may have to end for others. A body that is not read outlives its session.
    _place: Option<StreamPlace>,
}

/// What the bodies of all clients share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) messages: Arc<SharedMessages>,
    pub(super) turns: Arc<Turns>,
    pub(super) unfinished: Arc<UnfinishedReplies>,
    pub(super) forms: Arc<CompressedForms>,
}

/// The peer reads nothing of a reply. Weir resets its stream, which gRPC clients see as RESOURCE_EXHAUSTED: a status could only be sent after
/// the rest of the reply.
#[derive(Debug, thiserror::Error)]
#[error("the peer took nothing of its answer for too long")]
pub(super) struct ReadStalled(#[source] h2::Error);

impl ReadStalled {
    pub(super) fn new() -> Self {
        Self(h2::Reason::ENHANCE_YOUR_CALM.into())
    }
}

/// How a response ends.
enum Ending {
    Status(Status),
    GivenUp,
}

/// Why a reply is given up, as the taps of the stream show it.
const UNREAD: &str = "the client does not read its reply";
/// When to look again after another thread had the session locked.
const BUSY: Duration = Duration::from_millis(1);
/// How many shared pieces may be in flight. With more of them the connection is polled less often.
const SHARED_PIECES_OUT: usize = 8;

impl SessionBody {
    pub(crate) fn new(slot: Arc<Slot>, shared: Arc<Shared>, single: bool, compression: Compression) -> Self {
        Self {
            slot,
            shared,
            rest: None,
            turn: None,
            making: None,
            encoding: None,
            compression,
            taker: None,
            to_come: None,
            lacks_some: false,
            gate: Arc::default(),
            gate_width: 1,
            sleep: None,
            single,
            over: false,
            _place: None,
        }
    }

    /// Keeps the stream's entry among those that may have to end for others.
    pub(crate) fn keeping(mut self, place: Option<StreamPlace>) -> Self {
        self._place = place;
        self
    }

    /// Counts a reply, reports it to those who tap its session, and returns its first piece.
    fn begin(&mut self, mut outgoing: Outgoing, count: Option<Count>) -> NextPiece {
        if let (Some(Count { place, lag, tapped }), Some(handle)) = (count, self.slot.handle()) {
            handle.deliveries().sent(place, outgoing.bytes(), lag);
            tapped.into_iter().for_each(|glance| tap_reply(handle, glance));
        }
        let first = NextPiece::of(&mut outgoing, self.now());
        if let (false, Some(handle)) = (first.is_last, self.slot.handle()) {
            outgoing.charge(|| handle.charge(0));
            let rest = self.shared.unfinished.enter(outgoing, handle.clone());
            self.slot.send(&rest);
            self.rest = Some(rest);
        }
        first
    }

    /// Encodes a reply, or lets another thread do so. Returns its first piece if that is sent now.
    fn deliver(&mut self, reply: Reply, variant: Variant, cx: &mut Context<'_>) -> Poll<Result<NextPiece, Status>> {
        match encode(reply, variant, self.slot.handle(), &self.shared.messages) {
            Ok(encoded) => self.send(encoded, cx),
            Err(encoding) => {
                self.encoding = Some(encoding);
                self.poll_encoding(cx)
            }
        }
    }

    /// Waits for a reply that another thread encodes.
    fn poll_encoding(&mut self, cx: &mut Context<'_>) -> Poll<Result<NextPiece, Status>> {
        let Some(encoding) = &mut self.encoding else { return Poll::Pending };
        let encoded = ready!(encoding.poll(self.slot.handle().map(|handle| &**handle), cx));
        self.encoding = None;
        match encoded {
            Ok(encoded) => self.send(encoded, cx),
            Err(status) => Poll::Ready(Err(status)),
        }
    }

    /// Prepares to send an encoded reply, and returns its first piece unless its compressed form is still to come.
    fn send(&mut self, encoded: Encoded, cx: &mut Context<'_>) -> Poll<Result<NextPiece, Status>> {
        let Encoded { outgoing, count } = encoded;
        let Some(taker) = self.taker() else { return Poll::Ready(Ok(self.begin(outgoing, count))) };
        match self.shared.forms.compress(outgoing, taker) {
            Ok(outgoing) => Poll::Ready(Ok(self.begin(outgoing, count))),
            Err(form) => {
                self.turn = None; // nothing is sent while the form is made
                self.slot.handle().iter().for_each(|handle| reply_waits(handle, Blocker::Form));
                self.to_come = Some(ToCome::new(form, count, self.now(), self.lacks_some));
                self.poll_to_come(cx)
            }
        }
    }

    /// Waits for a reply that is to be encoded, or for its compressed form, and returns its first piece.
    fn poll_to_come(&mut self, cx: &mut Context<'_>) -> Poll<Result<NextPiece, Status>> {
        let (now, has_ended) = (self.now(), self.slot.ended().is_some());
        let Some(to_come) = &mut self.to_come else { return self.poll_encoding(cx) };
        let (shared, handle) = (&self.shared, self.slot.handle());
        let come = to_come.poll(&shared.forms, &shared.turns, has_ended, handle.map(|handle| &**handle), cx);
        let Come { outgoing, turn } = ready!(come);
        let (waited, mut count) = (to_come.waited(now), to_come.count.take());
        count.iter_mut().for_each(|count| count.add(waited));
        handle.iter().for_each(|handle| reply_is_late(handle, waited));
        (self.turn, self.to_come) = (turn, None);
        Poll::Ready(Ok(self.begin(outgoing, count)))
    }

    /// Returns the client as a taker of compressed replies; `None` if it does not accept them.
    fn taker(&mut self) -> Option<CompressionClient> {
        if self.compression != Compression::Off && self.taker.is_none() {
            self.taker =
                self.slot.handle().map(|handle| CompressionClient::new(self.compression, handle.client().key.as_str()));
        }
        self.taker
    }

    fn hand_over(&mut self, piece: NextPiece) -> Piece {
        let NextPiece { head, bytes, is_last, is_shared, end } = piece;
        if is_last {
            self.rest = None; // the turn lasts until the next reply, or a lease would end in between
        }
        let one_by_one = is_last && self.slot.handle().is_some_and(|handle| replies_go_one_by_one(handle));
        self.gate_width = if is_shared && !one_by_one { SHARED_PIECES_OUT } else { 1 };
        self.turn.iter().for_each(Turn::note_progress);
        Piece::through(&self.gate, head, bytes, end)
    }

    /// Reports how the stream ends to those who tap its session. The task that reads requests reports an end without another reply.
    fn report_end(&self, status: &Status) {
        if self.slot.ended_at_once().is_none()
            && let Some(handle) = self.slot.handle()
            && (handle.client().is_stream || *status != Status::ok())
        {
            tap_end(handle, Some(status.code), &status.message);
        }
    }

    fn now(&self) -> Moment {
        self.slot.handle().map_or(Moment::START, |handle| handle.clock().now())
    }

    /// Makes the next reply and returns its first piece, or arranges to be woken for the next attempt.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Result<NextPiece, Status>> {
        self.slot.wait(cx.waker());
        if let Some(status) = self.slot.ended_at_once() {
            (self.encoding, self.to_come) = (None, None);
            return Poll::Ready(Err(status));
        }
        if self.to_come.is_some() || self.encoding.is_some() {
            return self.poll_to_come(cx);
        }
        if let Some(reply) = self.slot.take_answer() {
            return self.deliver(reply, Variant::Sotw, cx);
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
            let made = match &mut self.making {
                None => handle.poll_below(limit, cx.waker()).map(NextStep::Made),
                Some(making) => {
                    let made = ready!(making.poll(cx));
                    self.making = None;
                    let Some(made) = made else { continue };
                    made
                }
            };
            let step = match made {
                Ok(step) => step,
                Err(Unmade::Large(estimate)) => {
                    self.lacks_some = estimate.is_first;
                    self.turn = Some(self.shared.turns.enter(estimate));
                    continue;
                }
                Err(Unmade::Busy) => {
                    ready!(sleep_until(Instant::now() + BUSY, &mut self.sleep, cx)); // it keeps its turn
                    continue;
                }
                Err(Unmade::ManyNames(names)) => {
                    self.making = Some(Making::begin(handle, &self.shared.messages, names, limit, cx));
                    continue;
                }
            };
            match step {
                NextStep::Encoded(encoded) => {
                    self.slot.signal();
                    return self.send(*encoded, cx);
                }
                NextStep::Made(Step::Reply(reply)) => {
                    self.slot.signal();
                    let variant = handle.client().variant;
                    return self.deliver(*reply, variant, cx);
                }
                // A session that has left has none, and says why the stream ended.
                NextStep::Made(Step::End(end)) => {
                    return Poll::Ready(Err(self.slot.ended().unwrap_or_else(|| end.into())));
                }
                NextStep::Made(Step::Idle(None)) => {
                    (self.sleep, self.turn) = (None, None);
                    return Poll::Pending;
                }
                NextStep::Made(Step::Idle(Some(moment))) => {
                    self.turn = None;
                    ready!(sleep_until(handle.clock().instant(moment), &mut self.sleep, cx)); // time has passed since the poll
                }
            }
        }
    }
}

/// Sleeps until then, by a timer that is kept.
fn sleep_until(due: Instant, kept: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    kept.insert(Box::pin(tokio::time::sleep_until(due))).as_mut().poll(cx)
}

impl Body for SessionBody {
    type Data = Piece;
    type Error = ReadStalled;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, ReadStalled>>> {
        if self.over {
            return Poll::Ready(None);
        }
        ready!(self.gate.poll_open(self.gate_width, cx));
        let piece = match &self.rest {
            Some(rest) => rest.next_piece(self.now()).ok_or(Ending::GivenUp),
            None => ready!(self.poll_session(cx)).map_err(Ending::Status),
        };
        if let Err(ending) = &piece {
            let status = match ending {
                Ending::Status(status) => status.clone(),
                Ending::GivenUp => Status::exhausted(UNREAD),
            };
            self.slot.end(status.clone()); // for the task that reads requests
            self.report_end(&status);
            self.over = true;
            self.slot.finish();
        }
        Poll::Ready(Some(match piece {
            Ok(piece) => Ok(Frame::data(self.hand_over(piece))),
            Err(Ending::Status(status)) => Ok(Frame::trailers(status.trailers())),
            Err(Ending::GivenUp) => Err(ReadStalled::new()),
        }))
    }
}

impl Drop for SessionBody {
    /// Runs also if the client resets the stream.
    fn drop(&mut self) {
        if !self.over {
            let left = Status::cancelled();
            self.slot.end(left.clone());
            // The task that reads requests may take a reset for a half-close.
            let end = self.slot.ended().filter(|status| *status != Status::ok()).unwrap_or(left);
            self.report_end(&end);
        }
        self.slot.finish();
    }
}

#[cfg(test)]
pub(super) mod tests;

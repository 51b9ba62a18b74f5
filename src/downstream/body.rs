//! The replies of one session as a response body. One piece, or a few shared ones, are in flight; the next is made when HTTP/2 has written one.

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
use crate::relay::{Blocker, Unmade, reply_is_late, reply_waits, tap_end, tap_reply};

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
}

/// What the bodies of all clients share.
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
        }
    }

    /// Counts a reply, reports it to those who tap its session, and returns its first piece.
    fn begin(&mut self, mut outgoing: Outgoing, count: Option<Count>) -> NextPiece {
        if let (Some(Count { place, lag, tapped }), Some(handle)) = (count, self.slot.handle()) {
            handle.deliveries().sent(place, outgoing.bytes(), lag);
            tapped.into_iter().for_each(|glance| tap_reply(handle, glance));
        }
        let first = NextPiece::of(&mut outgoing, self.now());
        if let (false, Some(handle)) = (first.is_last, self.slot.handle()) {
            self.rest = Some(self.shared.unfinished.enter(outgoing, handle.clone()));
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
        self.gate_width = if is_shared { SHARED_PIECES_OUT } else { 1 };
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
                NextStep::Made(Step::End(end)) => return Poll::Ready(Err(end.into())),
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
pub(super) mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use bytes::Buf as _;

    use futures_util::FutureExt;
    use prost::Message as _;
    use tokio::sync::oneshot;
    use weir_core::proto::node::Node;
    use weir_core::proto::{Any, Request, discovery};
    use weir_core::protocol::session::Reply;
    use weir_core::xds::{BodyStore, Peer, Resource, Type, TypeTable};

    use super::*;
    use crate::downstream::encode::PIECE;
    use crate::downstream::judged_clients::JudgedClients;
    use crate::downstream::lifetime::{AgeLimit, Lifetime};
    use crate::downstream::stream::report_end;
    use crate::downstream::unfinished_replies::CurrentResources;
    use crate::memory::{Budget, GivesWay, Memory};
    use crate::relay::taps::{TapReader, TapWhat};
    use crate::relay::{ClientInfo, SessionHandle, Views, open_session, questions, views_to};

    /// Counts how often its waker is called.
    #[derive(Default)]
    pub(in crate::downstream) struct Woken(pub(in crate::downstream) AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unlimited() -> Arc<Memory> {
        Memory::new(Budget::unlimited(), Arc::default(), Arc::default())
    }

    fn shared() -> Arc<Shared> {
        let (messages, turns) = (SharedMessages::new("weir"), Turns::new(Arc::default()));
        let forms = CompressedForms::new(unlimited(), Arc::default());
        Arc::new(Shared { messages, turns, unfinished: UnfinishedReplies::new(usize::MAX, Arc::default()), forms })
    }

    fn reply_of(bytes: usize) -> Reply {
        reply_with(vec![7; bytes])
    }

    /// Returns a reply that compression makes about two thirds smaller.
    pub(in crate::downstream) fn reply_of_text(bytes: usize) -> Reply {
        let mut state = 1_u32;
        let mut word = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("cluster-{state:08x} ")
        };
        reply_with(std::iter::from_fn(|| Some(word())).flat_map(String::into_bytes).take(bytes).collect())
    }

    fn reply_with(value: Vec<u8>) -> Reply {
        let url = "type.googleapis.com/own.Type";
        let kind = TypeTable::new().resolve(url);
        let resource = Some(Any { type_url: url.into(), value: value.into() });
        let wrapper = discovery::Resource { name: "large".into(), resource, ..Default::default() };
        let resource = Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap();
        Reply::sample(kind, vec![Arc::new(resource)])
    }

    /// How a stream ends, and whether its client is sent a reply first that is made already.
    const ENDS: [(EndBy, bool); 5] = [
        (EndBy::HalfClose, true),
        (EndBy::Drain, true),
        (EndBy::Age, true),
        (EndBy::GivingWay, false),
        (EndBy::Judgement, false),
    ];

    #[derive(Debug, Clone, Copy)]
    enum EndBy {
        HalfClose,
        Drain,
        Age,
        GivingWay,
        /// With the code of a drain.
        Judgement,
    }

    impl EndBy {
        async fn end(self, slot: &Slot) {
            match self {
                Self::HalfClose => slot.end_after_reply(Status::ok()),
                Self::Drain => slot.end_after_reply(Status::unavailable("the relay drains")),
                Self::Age => {
                    let limit = AgeLimit { age: Duration::from_millis(1), grace: Duration::ZERO };
                    Lifetime { judged: None, age: limit.of(Instant::now()) }.end(slot).await;
                }
                Self::GivingWay => slot.give_way("no memory"),
                Self::Judgement => {
                    let clients = Arc::<JudgedClients>::default();
                    let entered = clients.enter(Box::new(|| Err(Status::unavailable("the rule has changed"))));
                    Lifetime { judged: Some(entered.client.clone()), age: None }.end(slot).await;
                }
            }
        }
    }

    fn poll(body: &mut SessionBody) -> Poll<Option<Result<Frame<Piece>, ReadStalled>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn sends(body: &mut SessionBody) -> bool {
        matches!(poll(body), Poll::Ready(Some(Ok(frame))) if frame.is_data())
    }

    /// Whether the body ends with the status of its slot.
    fn ends(body: &mut SessionBody) -> bool {
        let Poll::Ready(Some(Ok(last))) = poll(body) else { return false };
        last.into_trailers().ok() == body.slot.ended().map(|status| status.trailers())
    }

    /// Returns a reply that waits for its compressed form.
    fn to_come(Encoded { outgoing, count }: Encoded, shared: &Shared) -> ToCome {
        let form = shared.forms.compress(outgoing, CompressionClient::new(Compression::Always, "view"));
        ToCome::new(form.expect_err("it is to come"), count, Moment::START, true)
    }

    /// Returns a session that is tapped, with its views.
    async fn tapped() -> (Views, TapReader, Arc<SessionHandle>) {
        let views = views_to("http://server");
        let (tap, _) = questions::tap(&views, "tapped", false).await.expect("there is room");
        let node = Node { id: "tapped".into(), cluster: "web".into(), ..Default::default() };
        let node = Some(node.encode_to_vec().into());
        let first = Request::Delta(discovery::DeltaDiscoveryRequest { node, ..Default::default() });
        let client = ClientInfo {
            variant: Variant::Delta,
            only: None,
            is_stream: true,
            peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
            headers: Default::default(),
            quota: Arc::default(),
        };
        let handle = open_session(&views, &first, client).await.unwrap();
        assert!(matches!(shown(&tap), Some(TapWhat::Opened(_))));
        (views, tap, handle)
    }

    fn shown(tap: &TapReader) -> Option<TapWhat> {
        tap.next().now_or_never().and_then(|taken| taken.event).map(|event| event.what)
    }

    /// A view that has replaced none of its resources.
    struct Current;

    impl CurrentResources for Current {
        fn outdated(&self, _: &Type, _: &[Arc<Resource>]) -> Vec<usize> {
            Vec::new()
        }
    }

    #[test]
    fn a_message_arrives_with_every_character() {
        let headers = Status::unavailable("100 % of\né").trailers();
        assert_eq!(headers["grpc-message"], "100 %25 of%0A%C3%A9");
        assert!(!Status::ok().trailers().contains_key("grpc-message"));
    }

    #[tokio::test]
    async fn the_reader_of_a_stream_stops_when_its_body_has_ended_or_is_dropped() {
        let ended = Arc::<Slot>::default();
        ended.end(Status::unavailable("over"));
        let mut body = SessionBody::new(ended.clone(), shared(), false, Compression::Off);
        let last = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(last, Poll::Ready(Some(Ok(frame))) if frame.is_trailers()));
        assert!(ended.finished().now_or_never().is_some());

        let dropped = Arc::<Slot>::default();
        drop(SessionBody::new(dropped.clone(), shared(), false, Compression::Off));
        assert!(dropped.finished().now_or_never().is_some());
        assert_eq!(dropped.ended(), Some(Status::cancelled()), "its client has left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_being_encoded_is_sent_before_a_drain_ends_its_stream_and_not_if_the_stream_gives_way() {
        for (end, is_sent) in ENDS {
            let (slot, shared) = (Arc::<Slot>::default(), shared());
            let mut body = SessionBody::new(slot.clone(), shared.clone(), false, Compression::Off);
            let (tell, told) = oneshot::channel();
            body.encoding = Some(Encoding::that_ends_by(told));
            assert!(poll(&mut body).is_pending());
            end.end(&slot).await;
            if is_sent {
                assert!(poll(&mut body).is_pending(), "{end:?}");
                let _ = tell.send(Encoded::of(reply_of(10), Variant::Delta, None, &shared.messages));
                assert!(sends(&mut body), "{end:?}");
            }
            assert!(ends(&mut body) && body.encoding.is_none(), "{end:?}");
        }
    }

    /// A stream that gives way would be sent its largest form, and without a turn.
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_waits_for_its_form_is_sent_before_a_drain_ends_its_stream_and_not_if_the_stream_gives_way() {
        for (end, is_sent) in ENDS {
            let (slot, shared) = (Arc::<Slot>::default(), shared());
            let mut body = SessionBody::new(slot.clone(), shared.clone(), false, Compression::Always);
            let encoded = Encoded::of(reply_of_text(10 << 10), Variant::Delta, None, &shared.messages);
            body.to_come = Some(to_come(encoded, &shared));
            assert!(poll(&mut body).is_pending());
            end.end(&slot).await;
            assert!(!is_sent || sends(&mut body), "{end:?}");
            assert!(ends(&mut body) && body.to_come.is_none(), "{end:?}");
        }
    }

    /// The task that reads requests ends a stream before the body is polled, which may not be polled again.
    #[tokio::test]
    async fn a_tap_shows_the_end_of_a_stream_once_and_after_its_last_reply() {
        let cases = [(EndBy::Drain, true, 14), (EndBy::Drain, false, 14), (EndBy::GivingWay, false, 8)];
        for (end, is_sent, code) in cases {
            let (_views, tap, handle) = tapped().await;
            let (slot, shared) = (Arc::<Slot>::default(), shared());
            slot.attach(handle.clone());
            let mut body = SessionBody::new(slot.clone(), shared.clone(), false, Compression::Always);
            let encoded = Encoded::of(reply_of_text(10 << 10), Variant::Delta, Some(&handle), &shared.messages);
            body.to_come = Some(to_come(encoded, &shared));
            assert!(poll(&mut body).is_pending());
            end.end(&slot).await;
            report_end(&slot, &handle);
            if is_sent {
                assert!(shown(&tap).is_none(), "its reply is still to come");
                assert!(sends(&mut body) && ends(&mut body));
                assert!(matches!(shown(&tap), Some(TapWhat::Reply(_))));
            }
            drop(body);
            assert!(matches!(shown(&tap), Some(TapWhat::Ended { status, .. }) if status == Some(code)), "{code}");
            assert!(shown(&tap).is_none(), "{code}");
        }
    }

    /// Its stream may end before that.
    #[tokio::test]
    async fn a_tap_shows_a_reply_when_its_connection_is_given_it_and_not_when_it_is_encoded() {
        let (_views, tap, handle) = tapped().await;
        let (slot, shared) = (Arc::<Slot>::default(), shared());
        slot.attach(handle.clone());
        let mut body = SessionBody::new(slot, shared.clone(), false, Compression::Off);
        let Encoded { outgoing, count } = Encoded::of(reply_of(10), Variant::Delta, Some(&handle), &shared.messages);
        assert!(shown(&tap).is_none(), "it waits");
        let bytes = outgoing.bytes();
        let _first = body.begin(outgoing, count);
        assert!(matches!(shown(&tap), Some(TapWhat::Reply(glance)) if glance.bytes == bytes));
    }

    #[tokio::test]
    async fn a_stalled_stream_pins_one_piece_whatever_is_still_to_be_said() {
        let shared = shared();
        let outgoing = Outgoing::new(reply_of(10 << 20), Variant::Delta, &shared.messages);
        let mut body = SessionBody::new(Arc::default(), shared.clone(), false, Compression::Off);
        body.rest = Some(shared.unfinished.enter(outgoing, Arc::new(Current)));
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
            assert!(piece.remaining() <= PIECE + 64, "a piece and its head");
            assert!(poll(&mut body).is_none(), "one piece is out");
            let before = woken.0.load(Ordering::Relaxed);
            sent += piece.remaining();
            drop(piece);
            assert_eq!(woken.0.load(Ordering::Relaxed), before + 1, "taking it wakes the body");
        }
    }
}

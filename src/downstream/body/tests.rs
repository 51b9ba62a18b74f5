use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use bytes::{Buf as _, Bytes};

use futures_util::FutureExt;
use prost::Message as _;
use tokio::sync::oneshot;
use weir_core::proto::node::Node;
use weir_core::proto::{Any, Request, discovery};
use weir_core::protocol::session::Reply;
use weir_core::xds::{BodyStore, Peer, Resource, Type, TypeTable};

use super::*;
use crate::downstream::encode::{Head, PIECE};
use crate::downstream::judged_clients::JudgedClients;
use crate::downstream::lifetime::{AgeLimit, Lifetime};
use crate::downstream::stream::report_end;
use crate::downstream::unfinished_replies::CurrentResources;
use crate::memory::{Account, Budget, GivesWay, GroupMembership, Memory};
use crate::relay::taps::{TapReader, TapWhat};
use crate::relay::{ClientInfo, SessionHandle, ViewQuota, Views, open_session, questions, send_one_by_one, views_to};

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
            Self::GivingWay => {
                slot.give_way("no memory");
            }
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
    tapped_with(Arc::default()).await
}

async fn tapped_with(quota: Arc<ViewQuota>) -> (Views, TapReader, Arc<SessionHandle>) {
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
        quota,
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

/// Otherwise the time of a routing hold would run while the clusters wait for the client.
#[tokio::test]
async fn i7_while_clusters_wait_for_endpoints_the_next_reply_is_made_when_all_of_the_last_one_is_written() {
    let (_views, _tap, handle) = tapped().await;
    let slot = Arc::<Slot>::default();
    slot.attach(handle.clone());
    let mut body = SessionBody::new(slot, shared(), false, Compression::Off);
    let cases = [(false, true, SHARED_PIECES_OUT), (true, false, SHARED_PIECES_OUT), (true, true, 1)];
    for (one_by_one, is_last, width) in cases {
        send_one_by_one(&handle, one_by_one);
        let (head, bytes, is_shared, end) = (Head::default(), Bytes::new(), true, None);
        drop(body.hand_over(NextPiece { head, bytes, is_last, is_shared, end }));
        assert_eq!(body.gate_width, width, "{one_by_one}, {is_last}");
    }
}

/// A session with its views, and what its connection is charged.
struct Charged {
    _views: Views,
    _tap: TapReader,
    handle: Arc<SessionHandle>,
    memory: Arc<Memory>,
    account: Arc<Account>,
    /// What was charged before the first reply.
    before: usize,
}

impl Charged {
    async fn new() -> Self {
        let memory = unlimited();
        let account = memory.connect(GroupMembership::default());
        let quota = ViewQuota::default().charged_to(account.clone(), false);
        let (_views, _tap, handle) = tapped_with(Arc::new(quota)).await;
        let charged = Self { _views, _tap, handle, memory, account, before: 0 };
        let before = charged.bytes();
        Self { before, ..charged }
    }

    /// Returns what is charged for replies.
    fn bytes(&self) -> usize {
        self.account.tell();
        self.memory.book().clients - self.before
    }

    /// Returns a body that has begun a reply of several pieces.
    fn begun(&self, slot: Arc<Slot>, reply: Reply, shared: &Arc<Shared>) -> SessionBody {
        slot.attach(self.handle.clone());
        let mut body = SessionBody::new(slot, shared.clone(), false, Compression::Off);
        let encoded = Encoded::of(reply, Variant::Delta, Some(&self.handle), &shared.messages);
        assert!(!body.begin(encoded.outgoing, encoded.count).is_last);
        body
    }
}

/// The bytes of the names in [`reply_of_names`].
const TEXT: usize = 128 * 16_000;

fn reply_of_names() -> Reply {
    let removed = (0..128).map(|number| format!("{number:0>16000}").into()).collect();
    Reply { removed, ..reply_of(10) }
}

fn is_reset(body: &mut SessionBody) -> bool {
    matches!(poll(body), Poll::Ready(Some(Err(_))))
}

/// Its session has forgotten the names by then, as it has those that its client stated.
#[tokio::test]
async fn i8_the_names_of_a_reply_are_charged_once_until_all_who_are_sent_it_have_ended_or_given_way() {
    let (client, shared, reply) = (Charged::new().await, shared(), reply_of_names());
    let [mut first, second, third] = [(); 3].map(|()| client.begun(Arc::default(), reply.clone(), &shared));
    let charged = client.bytes();
    assert!((TEXT..TEXT * 11 / 10).contains(&charged), "{charged} bytes are charged for {TEXT}");
    first.slot.give_way("no memory");
    drop(third);
    assert_eq!(client.bytes(), charged, "there is one more client");
    assert!(is_reset(&mut first), "nothing is left to send");
    drop(second);
    assert_eq!(client.bytes(), 0);
}

#[tokio::test]
async fn i8_the_names_of_a_reply_are_charged_to_the_next_client_when_one_leaves_and_only_who_is_charged_gives_way() {
    let (one, other, shared) = (Charged::new().await, Charged::new().await, shared());
    let reply = reply_of_names();
    let first = one.begun(Arc::default(), reply.clone(), &shared);
    let mut second = other.begun(Arc::default(), reply, &shared);
    let charged = one.bytes();
    assert!(charged >= TEXT && other.bytes() == 0);
    second.slot.note_left();
    assert!(!second.slot.give_way("no memory") && sends(&mut second), "that would free nothing");
    drop(first);
    assert_eq!((one.bytes(), other.bytes()), (0, charged));
    assert!(second.slot.give_way("no memory") && is_reset(&mut second));
    assert_eq!(other.bytes(), 0);
}

#[tokio::test]
async fn i8_spellings_of_names_and_removals_with_constraints_are_charged_too() {
    let constrained = reply_of_names().removed.into_iter().map(|name| (name, Bytes::new())).collect();
    let spellings = vec![(0, "a".repeat(TEXT).into())];
    for reply in [Reply { spellings, ..reply_of(300) }, Reply { constrained, ..reply_of(300) }] {
        let client = Charged::new().await;
        let body = client.begun(Arc::default(), reply, &shared());
        assert!(client.bytes() >= TEXT, "{} bytes are charged", client.bytes());
        assert!(body.slot.give_way("no memory"));
        assert_eq!(client.bytes(), 0);
    }
}

/// The memory thread may look between the last poll of a body and the beginning of its reply.
#[tokio::test]
async fn i8_a_reply_that_begins_when_its_stream_gives_way_already_keeps_nothing() {
    let (client, slot) = (Charged::new().await, Arc::<Slot>::default());
    assert!(slot.give_way("no memory"));
    let mut body = client.begun(slot, reply_of_names(), &shared());
    assert_eq!(client.bytes(), 0);
    assert!(is_reset(&mut body));
}

/// Its list of resources is its own, though it is more than 4 KiB.
#[tokio::test]
async fn a_reply_that_keeps_no_names_of_its_own_is_sent_to_its_end_although_its_stream_gives_way() {
    let (client, one) = (Charged::new().await, reply_of(300));
    let reply = Reply { resources: vec![one.resources[0].clone(); 600].into(), ..one };
    let mut body = client.begun(Arc::default(), reply, &shared());
    assert_eq!(client.bytes(), 0);
    body.slot.give_way("no memory");
    while body.rest.is_some() {
        assert!(sends(&mut body));
    }
    assert!(ends(&mut body));
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

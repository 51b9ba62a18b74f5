mod windows;

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

use futures_util::FutureExt;
use prost::Message as _;
use weir_core::proto::Any;
use weir_core::proto::discovery::{self, DeltaDiscoveryRequest};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Client, FetchResult, SessionOptions, Step, Variant};
use weir_core::protocol::view::{
    Claim, Claimed, Class, InterestChange, NameChanged, Revision, Selector, SessionId, Update, View,
};
use weir_core::xds::{BodyStore, Peer, Resource, StatedEntries, StatedVersionsStore, TypeTable};

use self::windows::Locked;
use super::*;
use crate::relay::command::PART;
use crate::relay::counters::ProcessCounters;
use crate::relay::heavy::{self, HeavyKind};
use crate::relay::member::Member;
use crate::relay::published::Published;
use crate::relay::view_usage::ViewGuard;
use crate::relay::wakes::Wakes;

const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A session whose commands to its view the test receives.
struct Bench {
    handle: Arc<SessionHandle>,
    commands: mpsc::Receiver<Command>,
    woken: Arc<Woken>,
}

impl Bench {
    fn new(room: usize) -> Self {
        let counters = ProcessCounters::new(Arc::new(TypeTable::new()), Clock::starting_now());
        Self::counted_by(Arc::new(counters), room)
    }

    fn counted_by(counters: Arc<ProcessCounters>, room: usize) -> Self {
        let (sender, commands) = mpsc::channel(room);
        let (table, clock) = (Arc::new(TypeTable::new()), Clock::starting_now());
        let client = ClientFacts {
            id: SessionId(1),
            variant: Variant::Delta,
            node_id: String::new(),
            user_agent: Box::default(),
            key: String::new(),
            is_stream: true,
            peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
            connected: clock.now(),
        };
        let place = SessionPlace {
            published: Arc::new(Published::new(Arc::default(), 1)),
            commands: ViewCommands::new(sender),
            nacks: Arc::default(),
            clients: Arc::default(),
            clock,
            counters,
            log: Arc::default(),
            charge: SessionCharge::none(),
            shard: None,
        };
        let handle =
            SessionHandle::new(client, place, Session::new(Client::plain(Variant::Delta), table, Arc::default()));
        Self { handle, commands, woken: Arc::default() }
    }

    /// Polls for a reply when there is none, so that the session waits from then on.
    fn waits(&self) {
        assert!(matches!(self.handle.poll(&Waker::from(self.woken.clone())), Step::Idle(_)));
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// Lets the client request a route that exists.
    fn requests_a_route(&self) {
        let table = Arc::new(TypeTable::new());
        let (kind, mut view) = (table.resolve(RDS), View::new(table, Arc::default()));
        assert_eq!(self.request(|request| request.resource_names_subscribe = vec!["a".into()]), 1);
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Name("a".into()), on: true };
        view.change_interest(SessionId(1), wanted, Moment::START);
        let any = Any { type_url: RDS.into(), value: bytes::Bytes::new() };
        let wrapper = discovery::Resource { name: "a".into(), resource: Some(any), ..Default::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap());
        view.apply(vec![Update::Upsert { kind, class: Class::Named, key: "a".into(), resource }], Moment::START);
        view.publish();
        self.handle.place.published.replace(view.snapshot());
        self.handle.notify(Notice::InterestApplied);
    }

    /// Lets the client request a route that exists, and sends it. Returns the nonce.
    fn is_sent_a_route(&self) -> u64 {
        self.requests_a_route();
        let Step::Reply(reply) = self.handle.poll(Waker::noop()) else { panic!("no reply") };
        let deliveries = self.handle.deliveries();
        deliveries.sent(deliveries.place(&reply.kind), 10, reply.lag);
        reply.nonce
    }

    /// Sends a request for routes. Returns how many names are new.
    fn request(&self, change: impl FnOnce(&mut DeltaDiscoveryRequest)) -> usize {
        let mut request = DeltaDiscoveryRequest { type_url: RDS.into(), ..Default::default() };
        change(&mut request);
        self.handle.handle_request(Request::Delta(request)).now_or_never().unwrap()
    }

    fn nacking(&self) -> usize {
        self.handle.place.nacks.streams().iter().map(|(_, streams)| streams).sum()
    }
}

fn request() -> Request {
    let url = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let resource_names_subscribe = vec!["a".into()];
    Request::Delta(DeltaDiscoveryRequest { type_url: url.into(), resource_names_subscribe, ..Default::default() })
}

/// A large request of one client delays others for no longer than one part of it takes.
#[test]
fn what_a_client_newly_wants_and_leaves_reaches_its_view_in_small_parts() {
    let mut bench = Bench::new(100);
    let names: Vec<_> = (0..1000).map(|number| format!("n{number}")).collect();
    assert_eq!(bench.request(|request| request.resource_names_subscribe.clone_from(&names)), 1000);
    assert_eq!(bench.request(|request| request.resource_names_unsubscribe.clone_from(&names)), 0);
    let mut sizes = Vec::new();
    while let Ok(Command::Interest(_, changes)) = bench.commands.try_recv() {
        sizes.push(changes.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 2000);
    assert!(sizes.iter().all(|size| *size <= PART), "{sizes:?}");
}

#[test]
fn whatever_may_have_changed_what_a_client_is_to_be_sent_wakes_its_session() {
    type Cause = fn(&Arc<SessionHandle>);
    let causes: [(&str, Cause); 7] = [
        ("a request", |handle| assert_eq!(handle.handle_request(request()).now_or_never(), Some(1))),
        ("a published change", |handle| wake(handle)),
        ("the same to many", |handle| wake_with(handle, &mut Wakes::default())),
        ("names without room", |handle| handle.notify(Notice::NamesRefused(Vec::new()))),
        ("room for claims", |handle| handle.notify(Notice::ClaimRoom)),
        ("refused versions", |handle| handle.on_stated_versions_refused()),
        ("the end of the view", |handle| drop(Member::new(handle.clone(), None, ViewGuard::default()))),
    ];
    for (what, cause) in causes {
        let bench = Bench::new(9);
        bench.waits();
        cause(&bench.handle);
        assert_eq!(bench.woken(), 1, "{what}");
    }
}

/// The view task wakes it, once for all that a publication brings.
#[test]
fn what_a_publication_brings_does_not_wake_a_session_by_itself() {
    let bench = Bench::new(9);
    bench.waits();
    bench.handle.notify(Notice::InterestApplied);
    assert_eq!(bench.woken(), 0);
    wake(&bench.handle);
    assert_eq!(bench.woken(), 1);
}

/// A session whose claims find the queue full.
fn with_claims() -> Bench {
    let bench = Bench::new(1);
    bench.handle.view_task().unwrap().try_send(Command::Leave(SessionId(7), Vec::new())).unwrap();
    let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
    bench.handle.session.lock().return_claims(vec![Claim { kind, of: Claimed::Set }]);
    bench
}

#[tokio::test]
async fn claims_for_which_the_view_has_no_room_are_sent_once_there_is_though_the_client_does_not_read() {
    let mut bench = with_claims();
    for _ in 0..3 {
        bench.waits();
        tokio::task::yield_now().await;
        assert_eq!(bench.woken(), 0, "nothing has changed");
    }
    assert!(matches!(bench.commands.recv().await, Some(Command::Leave(..))));
    assert!(matches!(bench.commands.recv().await, Some(Command::Claims(_, claims)) if claims.len() == 1));
    tokio::task::yield_now().await;
    assert!(bench.commands.try_recv().is_err(), "once");
    assert_eq!(bench.commands.capacity(), 1, "it keeps no place");
}

#[tokio::test]
async fn who_leaves_while_its_claims_wait_keeps_no_place() {
    let mut bench = with_claims();
    bench.waits();
    tokio::task::yield_now().await;
    let handle = bench.handle.clone();
    let leaves = tokio::spawn(async move { handle.leave().await });
    assert!(matches!(bench.commands.recv().await, Some(Command::Leave(SessionId(7), _))));
    assert!(matches!(bench.commands.recv().await, Some(Command::Claims(..) | Command::Leave(SessionId(1), _))));
    leaves.await.unwrap();
    while let Ok(command) = bench.commands.try_recv() {
        assert!(matches!(command, Command::Leave(SessionId(1), _)), "no claims come after it has left");
    }
    assert_eq!(bench.commands.capacity(), 1);
    assert!(matches!(bench.commands.recv().now_or_never(), Some(None)), "nor does it keep the task of its view");
}

/// A body whose client does not read its reply keeps the handle.
#[tokio::test]
async fn who_has_left_does_not_keep_the_task_of_its_view_however_long_its_handle_stays() {
    let mut bench = Bench::new(9);
    bench.is_sent_a_route();
    bench.handle.leave().await;
    bench.handle.leave().await; // once more, as after a panic of what reads its requests
    let sent: Vec<_> = std::iter::from_fn(|| bench.commands.try_recv().ok()).collect();
    assert_eq!(sent.iter().filter(|command| matches!(command, Command::Leave(..))).count(), 1);
    assert!(matches!(bench.commands.recv().now_or_never(), Some(None)), "the task waits for more commands");
    assert!(bench.handle.view_task().is_none());
    assert!(matches!(polled(&bench), Ok(Step::End(_))));
}

/// The test has one thread. If it waited for the lock, the work would not end in time.
#[tokio::test]
async fn while_another_thread_works_with_a_session_nobody_keeps_a_thread_waiting_for_it() {
    let bench = Bench::new(9);
    let ((begun, begins), (end, ended)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::sync_channel(1));
    let work = move |handle: &SessionHandle| {
        let _session = handle.session.lock();
        let _ = begun.send(());
        ended.recv_timeout(Duration::from_secs(20)).is_ok()
    };
    let thread = SessionThread::free(&bench.handle, HeavyKind::Request, 0).await;
    let working = tokio::spawn(thread.run(work));
    begins.await.unwrap();
    let waker = Waker::from(bench.woken.clone());
    assert!(matches!(bench.handle.poll_below(usize::MAX, &waker), Err(Unmade::Busy)));
    assert!(bench.handle.interest().send().now_or_never().is_none());
    assert!(bench.handle.leave().now_or_never().is_none());
    assert_eq!(bench.woken(), 0);
    end.send(()).unwrap();
    assert!(working.await.unwrap(), "the lock was waited for");
    assert_eq!(bench.woken(), 1, "its body");
    bench.handle.leave().now_or_never().unwrap();
}

/// Returns a session whose client requests so many names.
fn with_names(count: usize) -> Bench {
    let bench = Bench::new(HEAVY); // none of its commands has to wait
    let names = (0..count).map(|number| format!("route-{number}")).collect();
    bench.request(|request| request.resource_names_subscribe = names);
    bench
}

fn polled(bench: &Bench) -> Result<Step, Unmade> {
    bench.handle.poll_below(usize::MAX, Waker::noop())
}

/// Lets another thread make the next step.
fn step(bench: &Bench, waker: &Waker) -> impl Future<Output = Result<Step, Unmade>> + use<> {
    let step = step_apart(bench.handle.clone(), HEAVY, usize::MAX, waker.clone(), || {}, |_, step| step);
    async { step.await.expect("no panic") }
}

#[tokio::test]
async fn another_thread_visits_many_names_and_few_are_visited_at_once() {
    assert!(matches!(polled(&with_names(HEAVY - 1)), Ok(Step::Idle(_))));
    let many = with_names(HEAVY);
    assert!(matches!(polled(&many), Err(Unmade::ManyNames(HEAVY))));
    assert!(matches!(step(&many, Waker::noop()).await, Ok(Step::Idle(_))));
    assert!(matches!(polled(&many), Ok(Step::Idle(_))), "they are visited");
}

/// Otherwise a poll would hold up all other connections of its thread.
#[tokio::test]
async fn another_thread_fetches_many_names_and_what_comes_meanwhile_is_not_missed() {
    let few = with_names(HEAVY - 1);
    let at_once = fetch_reply(&few.handle, Duration::ZERO).now_or_never();
    assert!(matches!(at_once, Some(FetchResult::Unknown | FetchResult::Reply(_))), "{at_once:?}");

    let mut bench = with_names(HEAVY);
    let threads = heavy::all_threads(HeavyKind::Reply, HEAVY).await;
    let handle = bench.handle.clone();
    let mut fetching = Box::pin(fetch_reply(&handle, Duration::from_secs(600)));
    assert!(fetching.as_mut().now_or_never().is_none() && !handle.session.is_apart(), "it waits for a thread");
    let session = handle.session.lock();
    drop(threads);
    while !handle.session.is_apart() {
        assert!(fetching.as_mut().now_or_never().is_none());
        std::thread::yield_now();
    }
    bench.commands.close(); // the view has failed, which wakes its sessions
    handle.notify(Notice::ClaimRoom);
    drop(session);
    let fetched = tokio::time::timeout(Duration::from_secs(20), fetching).await;
    assert!(matches!(fetched, Ok(FetchResult::End(CloseReason::ViewFailed))), "{fetched:?}");
}

/// Returns changes of the names of [`with_names`].
fn changes(names: Range<usize>) -> Notice {
    let kind = TypeTable::new().resolve(RDS);
    let change = |number| NameChanged {
        kind: kind.clone(),
        name: format!("route-{number}").as_str().into(),
        revision: Revision::ZERO.next(),
        is_absent: false,
        claimed: None,
    };
    Notice::NamesChanged(names.map(change).collect())
}

#[tokio::test]
async fn another_thread_reads_many_changes_that_came_during_a_reply() {
    let bench = with_names(1);
    let reply = bench.handle.session.lock();
    bench.handle.notify(changes(0..HEAVY));
    drop(reply);
    assert!(matches!(polled(&bench), Err(Unmade::ManyNames(HEAVY))));
    step(&bench, Waker::noop()).await.expect("a step");
    assert!(polled(&bench).is_ok());
}

/// The task of its view would be kept by all of them, and with it all other clients of the view.
#[test]
fn of_many_changes_that_came_during_a_reply_few_are_noted_at_a_time() {
    const H: usize = HEAVY;
    let bench = with_names(5 * H);
    bench.waits();
    let noted = || bench.handle.session.lock_unread().report().pending_names();
    let reply = bench.handle.session.lock();
    assert_eq!(reply.report().pending_names(), 0);
    bench.handle.notify(changes(0..1));
    bench.handle.notify(changes(1..3 * H));
    drop(reply);
    let steps = [
        (Notice::InterestApplied, H, 2 * H),
        (changes(3 * H..3 * H + 1), 2 * H, H + 1),
        (changes(3 * H + 1..4 * H), 4 * H - 2, 2),
        (changes(4 * H..5 * H), 5 * H, 0),
    ];
    for (notice, read, left) in steps {
        bench.handle.notify(notice);
        assert_eq!((noted(), unread_names(&bench.handle)), (read, left));
    }
    bench.handle.notify(changes(0..5 * H));
    assert_eq!(unread_names(&bench.handle), 0, "nothing is left of before");
}

/// They count as free from then on.
#[test]
fn i8_refused_versions_are_freed_at_once_though_a_reply_has_left_many_changes_unread() {
    type OnRefusal = Box<dyn Fn() + Send + Sync>;
    let hold = |store: &Arc<StatedVersionsStore>, names: Range<usize>, connection, on_refusal: OnRefusal| {
        let stated = names.map(|name| (name.to_string(), "1".to_owned())).collect();
        let request = DeltaDiscoveryRequest { initial_resource_versions: stated, ..Default::default() }.encode_to_vec();
        store.hold(StatedEntries::split_off(&request).unwrap().0, connection, on_refusal)
    };
    let large = StatedVersionsStore::new(usize::MAX);
    let _measured = hold(&large, 0..90, 1, Box::new(|| {}));
    let clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    for comes_during_reply in [false, true] {
        let store = StatedVersionsStore::new(large.bytes() * 3 / 2);
        let bench = with_names(3 * HEAVY);
        let handle = Arc::downgrade(&bench.handle);
        let refuse = Box::new(move || handle.upgrade().unwrap().on_stated_versions_refused());
        let stated = hold(&store, 0..90, 1, refuse).expect("room");
        let all = DeltaDiscoveryRequest {
            type_url: clusters.into(),
            resource_names_subscribe: vec!["*".into()],
            ..Default::default()
        };
        bench.handle.apply_request(Request::Delta(all), Some(stated));
        let reply = bench.handle.session.lock();
        bench.handle.notify(changes(0..3 * HEAVY));
        let reply = Some(reply).filter(|_| comes_during_reply);
        let other = hold(&store, 100..160, 2, Box::new(|| {}));
        if reply.is_some() {
            drop(reply);
            bench.handle.notify(Notice::InterestApplied);
        }
        assert!(other.is_some() && unread_names(&bench.handle) == 2 * HEAVY);
        let (newest, now) = (bench.handle.newest(), bench.handle.clock().now());
        let step = bench.handle.session.lock_unread().poll(&newest, &mut &*bench.handle.place.published, now);
        assert!(matches!(step, Step::End(CloseReason::BadRequest(_))), "{step:?}");
    }
}

#[test]
fn i10_a_request_that_ends_its_session_says_so_and_so_do_those_after_it() {
    let bench = Bench::new(9);
    let types = SessionOptions::default().types;
    let ends = |number: usize| {
        let request = DeltaDiscoveryRequest { type_url: format!("made.up.V{number}"), ..Default::default() };
        bench.handle.apply_request(Request::Delta(request), None).has_ended
    };
    assert!(!(0..types).any(ends), "so many types are permitted");
    assert!(ends(types) && ends(0) && ends(types + 1));
}

#[tokio::test]
async fn a_session_with_few_names_ends_at_once_and_one_with_many_by_another_thread() {
    with_names(HEAVY - 1).handle.leave().now_or_never().expect("at once");
    let bench = with_names(HEAVY);
    let threads = heavy::all_threads(HeavyKind::Reply, HEAVY).await;
    let mut leaves = Box::pin(bench.handle.leave());
    assert!(leaves.as_mut().now_or_never().is_none(), "it waits for a thread");
    drop(threads);
    leaves.await;
    let names = bench.handle.session.lock().report().kept_names().names;
    assert_eq!((names, bench.handle.place.clients.len()), (0, 0));
}

#[tokio::test]
async fn the_next_step_that_another_thread_makes_is_the_one_that_would_be_made_here() {
    let bench = Bench::new(9);
    bench.request(|request| request.resource_names_subscribe = vec!["a".into()]);
    let waker = Waker::from(bench.woken.clone());
    assert!(matches!(step(&bench, &waker).await, Ok(Step::Idle(_))));
    bench.handle.notify(Notice::ClaimRoom);
    assert_eq!(bench.woken(), 1, "what comes after it wakes the body");
    // The body ends before its step is made, for which the session has to be free.
    let locked = Locked::by_another_thread(&bench).await;
    let mut unmade = Box::pin(step(&bench, &waker));
    while !bench.handle.session.is_apart() {
        assert!(unmade.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(unmade);
    assert!(bench.handle.session.is_apart(), "the work goes on");
    assert!(locked.end());
    until_session_is_free(&bench.handle).await;
}

/// What comes before the step begins wakes the body, whose waker is then gone.
#[tokio::test]
async fn a_body_whose_step_had_to_wait_for_a_thread_is_woken_by_what_comes_after_the_step() {
    let bench = with_names(HEAVY);
    let waker = Waker::from(bench.woken.clone());
    assert!(matches!(bench.handle.poll_below(usize::MAX, &waker), Err(Unmade::ManyNames(_))));
    let threads = heavy::all_threads(HeavyKind::Reply, HEAVY).await;
    let mut made = Box::pin(step(&bench, &waker));
    assert!(made.as_mut().now_or_never().is_none(), "it waits for a thread");
    bench.handle.notify(Notice::ClaimRoom);
    assert_eq!(bench.woken(), 1);
    drop(threads);
    assert!(matches!(made.await, Ok(Step::Idle(None))));
    bench.handle.notify(Notice::ClaimRoom);
    assert_eq!(bench.woken(), 2);
}

#[tokio::test]
async fn a_large_reply_with_many_names_waits_for_its_turn_before_it_is_made() {
    let bench = with_names(HEAVY);
    let (table, names) = (Arc::new(TypeTable::new()), 0..HEAVY);
    let (kind, mut view, store) = (table.resolve(RDS), View::new(table, Arc::default()), BodyStore::default());
    let upserts = names.map(|number| {
        let name = format!("route-{number}");
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Name(name.as_str().into()), on: true };
        view.change_interest(SessionId(1), wanted, Moment::START);
        let any = Any { type_url: RDS.into(), value: vec![0; 1024].into() };
        let wrapper = discovery::Resource { name: name.clone(), resource: Some(any), ..Default::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &store).unwrap());
        Update::Upsert { kind: kind.clone(), class: Class::Named, key: name.as_str().into(), resource }
    });
    let upserts = upserts.collect();
    view.apply(upserts, Moment::START);
    view.publish();
    bench.handle.place.published.replace(view.snapshot());
    let limit = HEAVY * 512;
    assert!(matches!(bench.handle.poll_below(limit, Waker::noop()), Err(Unmade::Large(_))));
    let below = step_apart(bench.handle.clone(), HEAVY, limit, Waker::noop().clone(), || {}, |_, step| step);
    assert!(matches!(below.await, Some(Err(Unmade::Large(_)))), "nor is it made apart");
    assert!(matches!(polled(&bench), Err(Unmade::ManyNames(HEAVY))));
    assert!(matches!(step(&bench, Waker::noop()).await, Ok(Step::Reply(_))));
}

#[tokio::test]
async fn a_client_reads_nothing_of_a_reply_only_from_when_another_thread_has_encoded_it() {
    let bench = Bench::new(9);
    bench.requests_a_route();
    let seen = |handle: &SessionHandle| handle.obstruction().map(|(what, _)| what);
    let encode = move |handle: &SessionHandle, step: Result<Step, Unmade>| match step {
        Ok(Step::Reply(_)) => seen(handle),
        _ => None,
    };
    let (handle, waker) = (bench.handle.clone(), Waker::noop().clone());
    assert_eq!(step_apart(handle, HEAVY, usize::MAX, waker, || {}, encode).await, Some(Some(Blocker::Turn)));
    assert_eq!(seen(&bench.handle), Some(Blocker::Unread));
}

#[tokio::test]
async fn a_session_that_ends_in_the_middle_of_a_reply_keeps_no_snapshot() {
    let bench = Bench::new(9);
    let before = Arc::downgrade(&bench.handle.place.published.newest());
    bench.is_sent_a_route();
    let leased = Arc::downgrade(&bench.handle.place.published.newest());
    bench.handle.place.published.replace(&Arc::default());
    assert!(before.upgrade().is_none() && leased.upgrade().is_some(), "more of it may follow");
    bench.handle.leave().await;
    assert!(leased.upgrade().is_none());
}

#[test]
fn names_that_a_client_gives_up_are_no_new_ones() {
    let bench = Bench::new(9);
    let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(bench.request(|request| request.resource_names_subscribe = texts(&["a", "b"])), 2);
    let changes = |request: &mut DeltaDiscoveryRequest| {
        request.resource_names_subscribe = texts(&["c"]);
        request.resource_names_unsubscribe = texts(&["a"]);
    };
    assert_eq!(bench.request(changes), 1);
    assert_eq!(bench.request(|request| request.resource_names_unsubscribe = texts(&["b", "c"])), 0);
}

#[test]
fn a_client_reads_nothing_from_when_a_reply_was_made_until_the_next_one_is_looked_for() {
    let bench = Bench::new(9);
    bench.is_sent_a_route();
    assert!(report::report(&bench.handle).unread_seconds.is_some());
    bench.waits();
    assert_eq!(report::report(&bench.handle).unread_seconds, None, "the connection has taken it");
}

/// The stream ends by leaving, or only its handle is dropped, as when its view has failed.
#[test]
fn a_stream_that_ends_with_an_unanswered_reply_does_not_count_as_unanswered_any_more() {
    for leaves in [true, false] {
        // The replies were sent 20 seconds ago.
        let clock = Clock::started(Duration::from_secs(20));
        let counters = Arc::new(ProcessCounters::new(Arc::new(TypeTable::new()), clock));
        let unanswered = || counters.deliveries.counts().iter().map(|of| of.unanswered[0]).sum::<usize>();
        let streams = [(); 3].map(|()| Bench::counted_by(counters.clone(), 9));
        let nonces = streams.each_ref().map(Bench::is_sent_a_route);
        assert_eq!(unanswered(), 3);
        let [ends, answers, _stays] = streams;
        assert_eq!(answers.request(|request| request.response_nonce = nonces[1].to_string()), 0);
        assert_eq!(unanswered(), 2);
        if leaves {
            ends.handle.leave().now_or_never().unwrap();
            assert_eq!(unanswered(), 1);
        }
        drop(ends);
        assert_eq!(unanswered(), 1, "once");
        drop(answers);
        assert_eq!(unanswered(), 1, "it had answered");
    }
}

#[test]
fn a_nack_ends_with_its_stream_though_something_may_keep_the_handle() {
    for leaves in [true, false] {
        let bench = Bench::new(9);
        let nonce = bench.is_sent_a_route();
        let nack = |request: &mut DeltaDiscoveryRequest| {
            request.response_nonce = nonce.to_string();
            request.error_detail = Some(discovery::Status { code: 3, message: "no".into() });
        };
        bench.request(nack);
        assert_eq!(bench.nacking(), 1);
        if leaves {
            bench.handle.leave().now_or_never().unwrap();
            assert_eq!((bench.nacking(), bench.handle.place.clients.len()), (0, 0), "a page may be made of it still");
        }
        let (nacks, clients) = (bench.handle.place.nacks.clone(), bench.handle.place.clients.clone());
        drop(bench);
        let left: usize = nacks.streams().iter().map(|(_, streams)| streams).sum();
        assert_eq!((left, clients.len()), (0, 0));
    }
}

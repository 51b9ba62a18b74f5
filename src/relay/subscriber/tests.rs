//! Which sessions publications wake, and when: random orders of publications, polls, turns of shards, joins, leaves and ends of shards.
//!
//! No planted fault shows that this test can fail, since those are in the core. It fails if `Wakes` leaves a task or a shard out, or wakes a task twice;
//! if `wake_with` does not take the waker that it adds, or wakes it too; if `mark` wakes; if `wake` leaves out whose interest is counted
//! and whom nothing else concerns; and if sessions are woken before the snapshot is replaced.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::task::{Wake, Waker};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use weir_core::proto::Any;
use weir_core::proto::discovery;
use weir_core::protocol::session::{Client, Session, Variant};
use weir_core::protocol::view::{Class, InterestChange, Revision, Selector, Update};
use weir_core::xds::{BodyStore, Peer, Resource, TypeTable};

use super::*;
use crate::relay::clients::ClientFacts;
use crate::relay::clock::Clock;
use crate::relay::command::Command;
use crate::relay::counters::ProcessCounters;
use crate::relay::member::Member;
use crate::relay::published::Published;
use crate::relay::session_handle::{SessionCharge, SessionHandle, SessionPlace, ViewCommands};
use crate::relay::view_usage::ViewGuard;
use crate::shared_runtime::OwnRuntime;

const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SHARDS: usize = 2;
/// A session that leaves before it is woken.
const LEFT: SessionId = SessionId(0);

/// What wakes a body that waits. Notes which revision the body could read then.
struct Woken {
    published: Arc<Published>,
    revisions: Mutex<Vec<Revision>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let revision = self.published.newest().revision;
        self.revisions.lock().unwrap().push(revision);
    }
}

/// A body that waits, from a poll to the next one.
struct Wait {
    woken: Arc<Woken>,
    shard: Option<usize>,
    /// The first publication that concerned the session meanwhile.
    due: Option<Revision>,
    /// Whether the session left its view before that. This wakes its body, too.
    has_left: bool,
}

/// A session of the view.
struct Joined {
    /// `None` once its connection has ended.
    handle: Option<Arc<SessionHandle>>,
    shard: Option<usize>,
    /// The place of its last wait.
    wait: Option<usize>,
}

struct World {
    table: Arc<TypeTable>,
    kind: Type,
    view: View,
    published: Arc<Published>,
    subscribers: Subscribers,
    /// `None`: it has ended.
    shards: Vec<Option<Runtime>>,
    runtimes: Vec<OwnRuntime>,
    joined: BTreeMap<SessionId, Joined>,
    waits: Vec<Wait>,
    counters: Arc<ProcessCounters>,
    commands: mpsc::Sender<Command>,
    /// Sessions end without it.
    _received: mpsc::Receiver<Command>,
    last_id: u64,
    changes: usize,
}

impl World {
    fn new() -> Self {
        let table = Arc::new(TypeTable::new());
        let (kind, mut view) = (table.resolve(RDS), View::new(table.clone(), Arc::default()));
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Name("a".into()), on: true };
        view.change_interest(LEFT, wanted, Moment::START);
        let shards: Vec<_> = (0..SHARDS).map(|_| Builder::new_current_thread().build().unwrap()).collect();
        let (commands, _received) = mpsc::channel(1);
        Self {
            counters: Arc::new(ProcessCounters::new(table.clone(), Clock::starting_now())),
            table,
            kind,
            view,
            published: Arc::new(Published::new(Arc::default(), 1)),
            subscribers: Subscribers::none(Arc::default()),
            runtimes: shards.iter().map(|shard| OwnRuntime::of(shard.handle().clone())).collect(),
            shards: shards.into_iter().map(Some).collect(),
            joined: BTreeMap::new(),
            waits: Vec::new(),
            commands,
            _received,
            last_id: LEFT.0,
            changes: 0,
        }
    }

    /// A client connects and joins, on a shard that has not ended or on the shared runtime.
    fn join(&mut self, shard: Option<usize>) {
        if shard.is_some_and(|shard| self.shards[shard].is_none()) {
            return;
        }
        self.last_id += 1;
        let (id, clock) = (SessionId(self.last_id), Clock::starting_now());
        let client = ClientFacts {
            id,
            variant: Variant::Delta,
            node_id: String::new(),
            user_agent: Box::default(),
            key: String::new(),
            is_stream: true,
            peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
            connected: clock.now(),
        };
        let place = SessionPlace {
            published: self.published.clone(),
            commands: ViewCommands::new(self.commands.clone()),
            nacks: Arc::default(),
            clients: Arc::default(),
            clock,
            counters: self.counters.clone(),
            log: Arc::default(),
            charge: SessionCharge::none(),
            shard: shard.map(|shard| self.runtimes[shard].clone()),
        };
        let session = Session::new(Client::plain(Variant::Delta), self.table.clone(), Arc::default());
        let handle = SessionHandle::new(client, place, session);
        self.subscribers.join(Box::new(Member::new(handle.clone(), None, ViewGuard::default())));
        self.joined.insert(id, Joined { handle: Some(handle), shard, wait: None });
    }

    fn leave(&mut self, id: SessionId) {
        let Some(left) = self.joined.remove(&id) else { return };
        self.subscribers.leave(id);
        if let Some(wait) = left.wait.map(|wait| &mut self.waits[wait]) {
            wait.has_left = wait.due.is_none();
        }
    }

    /// The body of a session looks whether there is something to send, and waits from then on.
    fn poll(&mut self, id: SessionId) {
        let Some(session) = self.joined.get_mut(&id) else { return };
        let Some(handle) = &session.handle else { return };
        let woken = Arc::new(Woken { published: self.published.clone(), revisions: Mutex::default() });
        let _ = handle.poll(&Waker::from(woken.clone())); // it has subscribed to nothing
        session.wait = Some(self.waits.len());
        self.waits.push(Wait { woken, shard: session.shard, due: None, has_left: false });
    }

    /// Publishes a change that concerns these sessions, and counts what others have subscribed to, as a view task does.
    fn publish(&mut self, mut concerned: Vec<SessionId>, counted: Vec<SessionId>) {
        concerned.push(LEFT);
        counted.iter().for_each(|id| self.subscribers.note_interest(*id));
        self.changes += 1;
        let content = format!("{:03}", self.changes);
        let value = [&b"\xc2\x3e\x03"[..], content.as_bytes()].concat(); // a field that the type does not have
        let any = Any { type_url: RDS.into(), value: value.into() };
        let wrapper = discovery::Resource { name: "a".into(), resource: Some(any), ..Default::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &self.kind, &BodyStore::default()).unwrap());
        let update = Update::Upsert { kind: self.kind.clone(), class: Class::Named, key: "a".into(), resource };
        self.view.apply(vec![update], Moment::START);
        self.view.publish();
        let revision = self.view.snapshot().revision;
        assert!(revision > self.published.newest().revision);
        let (kind, name) = (self.kind.clone(), "a".into());
        let change = NameChanged { kind, name, revision, is_absent: false, claimed: None };
        let notifications = Notifications(concerned.iter().map(|id| (*id, vec![change.clone()])).collect());
        self.subscribers.mark(&notifications);
        self.published.replace(self.view.snapshot());
        self.subscribers.wake(&notifications);
        for id in concerned.into_iter().chain(counted) {
            let wait = self.joined.get(&id).and_then(|session| session.wait);
            if let Some(wait) = wait.map(|wait| &mut self.waits[wait]) {
                wait.due.get_or_insert(revision);
            }
        }
        self.check(None);
    }

    /// The thread of a shard does all that it has to do.
    fn run(&self, shard: usize) {
        let Some(runtime) = &self.shards[shard] else { return };
        runtime.block_on(async {
            for _ in 0..3 {
                yield_now().await;
            }
        });
        self.check(Some(shard));
    }

    /// The thread of a shard ends, and so do its connections. The view learns of that later.
    fn end(&mut self, shard: usize) {
        if let Some(runtime) = self.shards[shard].take() {
            runtime.shutdown_background();
        }
        let ended = self.joined.values_mut().filter(|session| session.shard == Some(shard));
        ended.for_each(|session| session.handle = None);
    }

    /// Checks the waits of a shard that has had its turn, or those of the shared runtime.
    fn check(&self, shard: Option<usize>) {
        let has_ended = shard.is_some_and(|shard| self.shards[shard].is_none());
        for wait in self.waits.iter().filter(|wait| wait.shard == shard) {
            let revisions = wait.woken.revisions.lock().unwrap();
            assert!(revisions.len() <= 1, "woken {} times", revisions.len());
            match wait.due {
                Some(due) => {
                    assert!(has_ended || revisions.len() == 1, "not woken");
                    assert!(revisions.iter().all(|read| *read >= due), "woken before the snapshot is there");
                }
                None => assert_eq!(revisions.len(), usize::from(wait.has_left), "woken although nothing concerns it"),
            }
        }
    }

    /// Returns one of the sessions.
    fn pick(&self, at: Index) -> SessionId {
        self.joined.keys().nth(at.index(self.joined.len().max(1))).copied().unwrap_or(LEFT)
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Join(shard) => self.join((shard < SHARDS).then_some(shard)),
            Event::Leave(at) => self.leave(self.pick(at)),
            Event::Poll(at) => self.poll(self.pick(at)),
            Event::Publish(concerned, counted, twice) => {
                let chosen = |bits: u64| {
                    let ids = self.joined.keys().enumerate().filter(move |(at, _)| (bits >> (at % 64)) & 1 == 1);
                    ids.map(|(_, id)| *id)
                };
                let (concerned, counted) =
                    (chosen(concerned).collect(), chosen(counted).chain(chosen(counted & twice)).collect());
                self.publish(concerned, counted);
            }
            Event::Run(shard) => self.run(shard),
            Event::End(shard) => self.end(shard),
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// On this shard, or on the shared runtime if there is no such shard.
    Join(usize),
    Leave(Index),
    Poll(Index),
    /// Concerns some sessions. What some have subscribed to is counted, of some two parts.
    Publish(u64, u64, u64),
    Run(usize),
    End(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..=SHARDS).prop_map(Event::Join),
        3 => any::<Index>().prop_map(Event::Leave),
        16 => any::<Index>().prop_map(Event::Poll),
        10 => any::<[u64; 3]>().prop_map(|[concerned, counted, twice]| Event::Publish(concerned, counted, twice)),
        8 => (0..SHARDS).prop_map(Event::Run),
        1 => (0..SHARDS).prop_map(Event::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]

    /// No session that a publication concerns stays asleep, none is woken before it can read the snapshot or without a reason, and each once at most.
    #[test]
    fn a_publication_wakes_each_session_that_it_concerns_once_and_no_other(
        events in proptest::collection::vec(event(), 1..150)
    ) {
        let mut world = World::new();
        events.into_iter().for_each(|event| world.apply(event));
        (0..SHARDS).for_each(|shard| world.run(shard));
        (0..SHARDS).map(Some).chain([None]).for_each(|shard| world.check(shard));
    }
}

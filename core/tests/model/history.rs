//! Random histories: the possible steps, their probabilities, and how a failing history is shrunk.

use std::any::Any;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::{RowPosition, Stage, StageFacts, UpdateUnit};

use crate::client::{Profile, Reaction, Return};
use crate::content::Kind;
use crate::coverage::{Coverage, Event};
use crate::world::{KEYS, World};

#[derive(Debug, Clone)]
pub struct History {
    upstream: Variant,
    clients: Vec<(Profile, Variant, u8, bool)>,
    /// Initial sets of a delta server arrive one resource at a time.
    pieces: bool,
    /// The control plane never lets a route refer to a missing cluster.
    orderly: bool,
    /// The view keeps few tombstones, so the horizon is near.
    short_memory: bool,
    /// Interest of clients reaches the view only in steps of its own.
    slow_interest: bool,
    steps: Vec<Op>,
}

#[derive(Debug, Clone)]
pub enum Op {
    // the control plane
    Set {
        key: u8,
        kind: Kind,
        number: u8,
        target: u8,
        class: u8,
    },
    Delete {
        key: u8,
        kind: Kind,
        number: u8,
        class: u8,
    },
    Beside {
        key: u8,
        kind: Kind,
        number: u8,
        metadata: u8,
        alias: bool,
    },
    Repeat {
        key: u8,
        kind: Kind,
    },
    /// A new cluster comes with its endpoints, the route moves to it, and the old cluster is removed, all at once.
    Move {
        key: u8,
        route: u8,
        to: u8,
        from: u8,
    },
    OriginReads {
        key: u8,
        how_many: u8,
    },
    Kill {
        key: u8,
        stream: u8,
    },
    Reset,
    // the relay
    Connect {
        key: u8,
    },
    RelayReads {
        key: u8,
        how_many: u8,
        publish: bool,
    },
    Late {
        key: u8,
    },
    Advance {
        milliseconds: u32,
    },
    // clients
    Subscribe {
        client: u8,
        kind: Kind,
        number: u8,
    },
    Unsubscribe {
        client: u8,
        kind: Kind,
        number: u8,
    },
    Star {
        client: u8,
        kind: Kind,
        on: bool,
    },
    Forget {
        client: u8,
        kind: Kind,
        number: u8,
    },
    SessionReads {
        client: u8,
    },
    Pull {
        client: u8,
    },
    Process {
        client: u8,
        reaction: u8,
    },
    Silence {
        client: u8,
        on: bool,
    },
    Stall {
        client: u8,
        on: bool,
    },
    Snapshot {
        client: u8,
    },
    Reconnect {
        client: u8,
        key: u8,
        how: u8,
    },
    ChangeNode {
        client: u8,
        node: u8,
    },
    CountInterest {
        client: u8,
    },
    /// Everything in flight arrives.
    Run {
        client: u8,
    },
    RunAll,
}

/// Runs the history of a seed.
pub fn run(seed: u64, coverage: &mut Coverage) -> Result<(), String> {
    let tree = strategy().new_tree(&mut runner(seed)).unwrap();
    play(&tree.current(), None, coverage)
}

/// Runs the history of a seed with an additional stage that holds nothing. Returns how many units passed that stage.
pub fn run_with_stage(seed: u64, at: RowPosition) -> Result<usize, String> {
    let tree = strategy().new_tree(&mut runner(seed)).unwrap();
    let passed = Arc::<AtomicUsize>::default();
    let stage = (at, HoldsNothing(passed.clone()));
    play(&tree.current(), Some(&stage), &mut Coverage::default())?;
    Ok(passed.load(Ordering::Relaxed))
}

/// A stage that passes everything on, and counts what passes.
#[derive(Debug, Clone)]
struct HoldsNothing(Arc<AtomicUsize>);

impl Stage for HoldsNothing {
    fn judge(&mut self, unit: UpdateUnit, _: StageFacts<'_>, _: Moment) -> Vec<UpdateUnit> {
        self.0.fetch_add(1, Ordering::Relaxed);
        vec![unit]
    }

    fn on_time(&mut self, _: StageFacts<'_>, _: Moment) -> Vec<UpdateUnit> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }
}

/// Returns the smallest history that still fails, as text. The search takes long, and nobody reads its result if the fault is planted (`tests/mutants`).
pub fn shrink(seed: u64) -> String {
    if std::env::var_os("WEIR_MUTANT").is_some() {
        return "not looked for".into();
    }
    let mut tree = strategy().new_tree(&mut runner(seed)).unwrap();
    let sort = |fault: &str| fault.chars().filter(|letter| letter.is_alphabetic()).take(200).collect::<String>();
    let outcome = |history: &History| play(history, None, &mut Coverage::default()).err();
    let original = outcome(&tree.current()).map(|fault| sort(&fault)[..20.min(sort(&fault).len())].to_owned());
    let fails = |history: &History| {
        outcome(history).map(|fault| sort(&fault)[..20.min(sort(&fault).len())].to_owned()) == original
    };
    let mut budget = 20_000;
    while budget > 0 && tree.simplify() {
        budget -= 1;
        while !fails(&tree.current()) && budget > 0 {
            budget -= 1;
            if !tree.complicate() {
                break;
            }
        }
    }
    let history = tree.current();
    let fault = play(&history, None, &mut Coverage::default()).err().unwrap_or_else(|| "gone".into());
    let mut text = format!("{fault}\n");
    let _ = writeln!(text, "{:?} upstream, pieces {}, clients {:?}", history.upstream, history.pieces, history.clients);
    for step in &history.steps {
        let _ = writeln!(text, "  {step:?}");
    }
    text
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn play(history: &History, stage: Option<&(RowPosition, HoldsNothing)>, coverage: &mut Coverage) -> Result<(), String> {
    let short = history.short_memory;
    // In SotW, small requests would leave out names that clients want.
    let small_requests = history.upstream == Variant::Delta && history.steps.len().is_multiple_of(2);
    let by_header = history.steps.len() % 4 > 1;
    let mut world = World::with_requests(history.upstream, small_requests, by_header, |options| {
        if short {
            (options.view.history_bytes, options.view.tombstone_bytes, options.session.reply_bytes) = (500, 100, 100);
            (options.view.leased_states, options.session.answers) = (1, 2);
        }
    });
    for (unit, (at, stage)) in world.units.iter_mut().flat_map(|unit| stage.map(|stage| (unit, stage))) {
        unit.view.add_stage(*at, Box::new(stage.clone()));
    }
    world.pieces = history.pieces;
    world.slow_interest = history.slow_interest;
    std::mem::swap(&mut world.coverage, coverage);
    // A history that exceeds a bound, or panics otherwise, has failed.
    let outcome = catch_unwind(AssertUnwindSafe(|| play_in(&mut world, history)));
    let outcome = outcome.unwrap_or_else(|panic| Err(panic_text(&*panic)));
    std::mem::swap(&mut world.coverage, coverage);
    outcome
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").into()
}

fn play_in(world: &mut World, history: &History) -> Result<(), String> {
    for (profile, variant, key, wrappers) in &history.clients {
        world.add_client(*profile, *variant, key % KEYS, *wrappers);
    }
    for step in &history.steps {
        take(world, history, step)?;
        world.coverage.steps += 1;
    }
    world.quiesce()?;
    world.unstall();
    world.quiesce()
}

fn take(world: &mut World, history: &History, step: &Op) -> Result<(), String> {
    let orderly = history.orderly;
    let at = |client: &u8| usize::from(*client) % history.clients.len();
    match step.clone() {
        Op::Set { key, kind, number, target, class } => set(world, orderly, key, kind, number, target, class),
        Op::Delete { key, kind, number, class } => {
            let (wildcard, named) = classes(orderly, class);
            let targeted = kind == Kind::Cluster && is_target(world, key, number);
            if !(orderly && targeted) {
                world.delete(key, kind, number, wildcard, named);
            }
        }
        Op::Beside { key, kind, number, metadata, alias } => {
            if world.truths[usize::from(key)].of(kind, true).contains_key(&kind.name(number)) {
                world.coverage.note(Event::AliasOrMetadataAlone);
                let serial = world.truths[usize::from(key)].of(kind, true)[&kind.name(number)].serial;
                world.set(key, kind, number, true, true, |content| {
                    content.serial = serial;
                    content.metadata = metadata;
                    content.alias = alias.then(|| "other".into());
                });
            }
        }
        Op::Repeat { key, kind } => world.repeat(key, kind),
        Op::Move { key, route, to, from } => {
            world.set(key, Kind::Cluster, to, true, true, |_| {});
            world.set(key, Kind::Endpoints, to, true, true, |_| {});
            world.set(key, Kind::Route, route, true, true, |content| content.target = Some(Kind::Cluster.name(to)));
            if !(orderly && is_target(world, key, from)) {
                world.delete(key, Kind::Cluster, from, true, true);
                world.delete(key, Kind::Endpoints, from, true, true);
            }
        }
        Op::OriginReads { key, how_many } => drop(world.origin_reads(key, how_many.into())),
        Op::Kill { key, stream } => world.kill_upstream(key, stream.into()),
        Op::Reset => world.reset_origin(),
        Op::Connect { key } => {
            world.connect_upstream(key);
            world.settle(key, true)?;
        }
        Op::RelayReads { key, how_many, publish } => drop(world.relay_reads(key, how_many.into(), publish)?),
        Op::Late { key } => world.late_messages(key),
        Op::Advance { milliseconds } => world.advance(Duration::from_millis(milliseconds.into()))?,
        Op::Subscribe { client, kind, number } => change(world, at(&client), kind, &[kind.name(number)], &[]),
        Op::Unsubscribe { client, kind, number } => change(world, at(&client), kind, &[], &[kind.name(number)]),
        Op::Star { client, kind, on: true } => change(world, at(&client), kind, &["*".into()], &[]),
        Op::Star { client, kind, on: false } => change(world, at(&client), kind, &[], &["*".into()]),
        Op::Forget { client, kind, number } => forget(world, at(&client), kind, number),
        Op::SessionReads { client } => drop(world.session_reads(at(&client))?),
        Op::Pull { client } => {
            world.pull(at(&client))?;
        }
        Op::Process { client, reaction } => {
            let reaction =
                [Reaction::Ack, Reaction::Nack, Reaction::Nack, Reaction::Silence][usize::from(reaction % 4)];
            world.process(at(&client), reaction);
        }
        Op::Silence { client, on } => world.clients[at(&client)].silent = on,
        Op::Stall { client, on } => world.clients[at(&client)].stalled = on,
        Op::Snapshot { client } => {
            let client = &mut world.clients[at(&client)];
            client.older = client.held.clone();
        }
        Op::Reconnect { client, key, how } => {
            let returns = [Return::Fresh, Return::TrueVersions, Return::OldVersions, Return::ForeignVersions];
            world.reconnect(at(&client), key, returns[usize::from(how % 4)])?;
        }
        Op::ChangeNode { client, node } => world.change_node(at(&client), node)?,
        Op::CountInterest { client } => world.count_interest(at(&client))?,
        Op::Run { client } => run_one(world, at(&client))?,
        Op::RunAll => (0..history.clients.len()).try_for_each(|at| run_one(world, at))?,
    }
    Ok(())
}

fn set(world: &mut World, orderly: bool, key: u8, kind: Kind, number: u8, target: u8, class: u8) {
    let (wildcard, named) = classes(orderly, class);
    if kind == Kind::Route {
        let exists = world.truths[usize::from(key)].of(Kind::Cluster, true).contains_key(&Kind::Cluster.name(target));
        if orderly && !exists {
            return;
        }
        world.set(key, kind, number, wildcard, named, |content| content.target = Some(Kind::Cluster.name(target)));
    } else {
        let eds = target != 0;
        world.set(key, kind, number, wildcard, named, |content| content.eds = eds);
    }
}

/// Returns whether a change concerns `*`, and whether it concerns the name. Unless the history is orderly, a quarter of the changes concern only one.
fn classes(orderly: bool, class: u8) -> (bool, bool) {
    match class % 8 {
        0 if !orderly => (true, false),
        1 if !orderly => (false, true),
        _ => (true, true),
    }
}

fn is_target(world: &World, key: u8, number: u8) -> bool {
    let name = Kind::Cluster.name(number);
    let truth = &world.truths[usize::from(key)];
    let routes = [true, false].into_iter().flat_map(|wildcard| truth.of(Kind::Route, wildcard).values());
    routes.into_iter().any(|route| route.target.as_ref() == Some(&name))
}

fn change(world: &mut World, at: usize, kind: Kind, on: &[String], off: &[String]) {
    let client = &mut world.clients[at];
    let wildcard = on.iter().chain(off).any(|name| name == "*");
    match client.profile {
        Profile::Grpc if wildcard => return,
        // Envoy's subscriptions to these types follow from what it holds.
        Profile::Envoy if matches!(kind, Kind::Cluster | Kind::Endpoints) => return,
        Profile::Envoy if wildcard && kind != Kind::Listener => return,
        _ => {}
    }
    let known = client.wishes.contains_key(&kind);
    let held = client.wish(kind).clone();
    let news = on.iter().any(|name| if name == "*" { !held.wildcard } else { !held.names.contains(name) });
    let drops = off.iter().any(|name| if name == "*" { held.wildcard } else { held.names.contains(name) });
    let again = !news && !drops;
    if again && (client.variant == Variant::Sotw || !off.is_empty()) {
        return;
    }
    if !known && off.is_empty() && client.profile == Profile::Envoy && wildcard {
        client.wish(kind).wildcard = true;
        client.open(kind, Return::Fresh);
        return;
    }
    client.change(kind, on, off);
}

/// Lets the client lose a resource and request it again.
fn forget(world: &mut World, at: usize, kind: Kind, number: u8) {
    let name = kind.name(number);
    let client = &mut world.clients[at];
    if !client.wish(kind).names.contains(&name) {
        return;
    }
    client.held.remove(&(kind, name.clone()));
    if client.variant == Variant::Sotw {
        client.change(kind, &[], std::slice::from_ref(&name));
    }
    client.change(kind, &[name], &[]);
}

fn run_one(world: &mut World, at: usize) -> Result<(), String> {
    let key = world.clients[at].key;
    for _ in 0..8 {
        while world.session_reads(at)? {}
        world.count_interest(at)?;
        world.connect_upstream(key);
        world.settle(key, true)?;
        world.origin_reads(key, usize::MAX);
        world.relay_reads(key, usize::MAX, true)?;
        world.pull(at)?;
        world.process(at, Reaction::Ack);
    }
    Ok(())
}

fn strategy() -> impl Strategy<Value = History> {
    let profile = prop_oneof![3 => Just(Profile::Envoy), 1 => Just(Profile::Grpc), 2 => Just(Profile::Free)];
    let variant = || prop_oneof![Just(Variant::Sotw), Just(Variant::Delta)];
    let key = prop_oneof![5 => Just(0), 1 => 1..KEYS];
    let client = (profile, variant(), key, any::<bool>()).prop_map(|(profile, variant, key, wrappers)| {
        // gRPC does not support delta.
        (profile, if profile == Profile::Grpc { Variant::Sotw } else { variant }, key, wrappers)
    });
    let clients = prop::collection::vec(client, 1..6);
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    let anything = prop::collection::vec(op(), 5..140);
    let steps = prop_oneof![3 => anything, 1 => moves()];
    (variant(), clients, flags, steps).prop_map(
        |(upstream, clients, (pieces, orderly, short_memory, slow_interest), steps)| History {
            upstream,
            clients,
            pieces,
            orderly,
            short_memory,
            slow_interest,
            steps,
        },
    )
}

/// Returns clients with routes, and clusters that change under them: there the order of replies matters most.
fn moves() -> impl Strategy<Value = Vec<Op>> {
    let prepare = (0..6u8).flat_map(|client| {
        let wildcard = Op::Star { client, kind: Kind::Cluster, on: true };
        [
            wildcard,
            Op::Subscribe { client, kind: Kind::Route, number: 0 },
            Op::Subscribe { client, kind: Kind::Route, number: 1 },
        ]
    });
    let start = Op::Move { key: 0, route: 0, to: 0, from: 3 };
    let prepare: Vec<_> = [start].into_iter().chain(prepare).chain([Op::RunAll, Op::RunAll]).collect();
    let (number, client) = (|| 0..4u8, || 0..6u8);
    let step = prop_oneof![
        4 => (0..2u8, number(), number()).prop_map(|(route, to, from)| Op::Move { key: 0, route, to, from }),
        1 => (number(), any::<u8>())
            .prop_map(|(number, target)| Op::Set { key: 0, kind: Kind::Cluster, number, target, class: 7 }),
        4 => (1..4u8, any::<bool>()).prop_map(|(how_many, publish)| Op::RelayReads { key: 0, how_many, publish }),
        8 => client().prop_map(|client| Op::Pull { client }),
        4 => (client(), any::<u8>()).prop_map(|(client, reaction)| Op::Process { client, reaction }),
        4 => client().prop_map(|client| Op::SessionReads { client }),
        2 => prop::sample::select(vec![30u32, 120, 500, 1_100]).prop_map(|milliseconds| Op::Advance { milliseconds }),
        1 => Just(Op::OriginReads { key: 0, how_many: 9 }),
        1 => (client(), 0..2u8).prop_map(|(client, number)| Op::Unsubscribe { client, kind: Kind::Route, number }),
        2 => (client(), 0..2u8).prop_map(|(client, number)| Op::Subscribe { client, kind: Kind::Route, number }),
        1 => client().prop_map(|client| Op::CountInterest { client }),
    ];
    prop::collection::vec(step, 5..60).prop_map(move |steps| prepare.iter().cloned().chain(steps).collect())
}

fn op() -> impl Strategy<Value = Op> {
    let key = || prop_oneof![5 => Just(0), 1 => 1..KEYS];
    let number = || 0..4u8;
    let client = || 0..6u8;
    let kind = || {
        prop_oneof![
            4 => Just(Kind::Cluster), 3 => Just(Kind::Endpoints), 1 => Just(Kind::Listener),
            3 => Just(Kind::Route), 1 => Just(Kind::Runtime)
        ]
    };
    let times = prop_oneof![
        Just(5u32),
        Just(30),
        Just(120),
        Just(600),
        Just(1100),
        Just(2500),
        Just(6000),
        Just(16_000),
        Just(40_000)
    ];
    let origin = prop_oneof![
        8 => (key(), kind(), number(), number(), any::<u8>())
            .prop_map(|(key, kind, number, target, class)| Op::Set { key, kind, number, target, class }),
        3 => (key(), kind(), number(), any::<u8>())
            .prop_map(|(key, kind, number, class)| Op::Delete { key, kind, number, class }),
        1 => (key(), kind(), number(), 0..3u8, any::<bool>())
            .prop_map(|(key, kind, number, metadata, alias)| Op::Beside { key, kind, number, metadata, alias }),
        1 => (key(), kind()).prop_map(|(key, kind)| Op::Repeat { key, kind }),
        4 => (key(), number(), number(), number()).prop_map(|(key, route, to, from)| Op::Move { key, route, to, from }),
        3 => (key(), 1..4u8).prop_map(|(key, how_many)| Op::OriginReads { key, how_many }),
        1 => (key(), prop::sample::select(vec![0, 0, 1, 9, 9u8])).prop_map(|(key, stream)| Op::Kill { key, stream }),
    ];
    let relay = prop_oneof![
        4 => key().prop_map(|key| Op::Connect { key }),
        6 => (key(), 1..4u8, any::<bool>()).prop_map(|(key, how_many, publish)| Op::RelayReads { key, how_many, publish }),
        1 => key().prop_map(|key| Op::Late { key }),
        4 => times.prop_map(|milliseconds| Op::Advance { milliseconds }),
    ];
    let clients = prop_oneof![
        6 => (client(), kind(), number()).prop_map(|(client, kind, number)| Op::Subscribe { client, kind, number }),
        2 => (client(), kind(), number()).prop_map(|(client, kind, number)| Op::Unsubscribe { client, kind, number }),
        2 => (client(), kind(), any::<bool>()).prop_map(|(client, kind, on)| Op::Star { client, kind, on }),
        1 => (client(), kind(), number()).prop_map(|(client, kind, number)| Op::Forget { client, kind, number }),
        6 => client().prop_map(|client| Op::SessionReads { client }),
        8 => client().prop_map(|client| Op::Pull { client }),
        8 => (client(), any::<u8>()).prop_map(|(client, reaction)| Op::Process { client, reaction }),
        1 => (client(), any::<bool>()).prop_map(|(client, on)| Op::Silence { client, on }),
        1 => (client(), any::<bool>()).prop_map(|(client, on)| Op::Stall { client, on }),
        1 => client().prop_map(|client| Op::Snapshot { client }),
        2 => (client(), key(), 0..4u8).prop_map(|(client, key, how)| Op::Reconnect { client, key, how }),
        1 => (client(), 0..KEYS).prop_map(|(client, node)| Op::ChangeNode { client, node }),
        3 => client().prop_map(|client| Op::CountInterest { client }),
    ];
    prop_oneof![
        60 => origin,
        30 => relay,
        70 => clients,
        30 => client().prop_map(|client| Op::Run { client }),
        20 => Just(Op::RunAll),
        1 => Just(Op::Reset),
    ]
}

//! Costs that are counted: allocations and live bytes of the thread, and sessions woken. Counts do not depend on the machine, so these tests
//! check laws. They are not benchmarks.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{Bench, CDS, EDS, Set, interest};
use weir_core::proto::discovery::{DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Response};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{Plan, Sources};
use weir_core::protocol::upstream::{ReceivedResponse, ResponseMessage};
use weir_core::protocol::view::{SessionId, View};
use weir_core::xds::{BodyStore, TypeTable};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code)] // a counting allocator needs it; it forwards every call unchanged
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = LIVE.try_with(|live| live.set(live.get() + layout.size() as i64));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = LIVE.try_with(|live| live.set(live.get() - layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn live_bytes() -> i64 {
    LIVE.get()
}

fn name(number: usize) -> String {
    format!("name-{number:06}")
}

/// Returns a bench with this many clusters for `*`, and one session that subscribes to all of them.
fn with_resources(count: usize) -> (Bench, SessionId) {
    resources_in(Bench::new(), count)
}

fn resources_in(mut bench: Bench, count: usize) -> (Bench, SessionId) {
    let watcher = bench.client(Variant::Delta);
    bench.delta(watcher, CDS, &["*"], &[]);
    let names: Vec<_> = (0..count).map(name).collect();
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), "one")).collect();
    bench.whole(CDS, &resources);
    while bench.poll(watcher).is_some() {}
    (bench, watcher)
}

/// Returns a bench with this many sessions. Each subscribes to two names of its own, and the last one also to `shared`.
fn with_sessions(count: usize) -> (Bench, Vec<SessionId>) {
    let mut bench = Bench::new();
    let ids: Vec<_> = (0..count).map(|_| bench.client(Variant::Delta)).collect();
    for (number, id) in ids.iter().enumerate() {
        let own = [name(2 * number), name(2 * number + 1)];
        bench.delta(*id, EDS, &[&own[0], &own[1]], &[]);
    }
    bench.delta(ids[count - 1], EDS, &["shared"], &[]);
    for number in 0..2 * count {
        bench.set(EDS, &[(&name(number), "one")]);
    }
    bench.set(EDS, &[("shared", "one")]);
    for id in &ids {
        while bench.poll(*id).is_some() {}
    }
    (bench, ids)
}

/// Returns the cost of applying, publishing and sending one change.
fn one_change(resources: usize) -> u64 {
    let (mut bench, watcher) = with_resources(resources);
    let changed = name(resources / 2);
    allocations(|| {
        bench.gives(CDS, Set::All, &[(&changed, "two")]);
        let reply = bench.poll(watcher).unwrap();
        assert_eq!(reply.resources.len(), 1);
        assert!(bench.poll(watcher).is_none());
    })
}

#[test]
fn one_change_touches_a_bounded_number_of_entries_however_many_there_are() {
    let (few, many) = (one_change(1_000), one_change(100_000));
    println!("allocations for one change: {few} among 1,000 resources, {many} among 100,000");
    // Two maps of logarithmic depth: a hundred times the resources adds two or three levels.
    assert!(many <= few + 60 && many < 250, "{few} grew to {many}");
}

#[test]
fn a_removal_that_waits_until_nothing_refers_to_it_costs_what_it_touches() {
    let cost = |count| {
        let (mut bench, watcher) = resources_in(Bench::with(ProtocolOptions::default()), count);
        let key = name(count / 2);
        allocations(|| {
            bench.removes(CDS, Set::All, &[key]);
            bench.later(50);
            assert_eq!(bench.poll(watcher).unwrap().removed.len(), 1);
        })
    };
    let (few, many) = (cost(1_000), cost(100_000));
    println!("allocations for one removal: {few} among 1,000 resources, {many} among 100,000");
    assert!(many <= few + 60 && many < 250, "{few} grew to {many}");
}

#[test]
fn routes_that_keep_changing_leave_nothing_behind() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, support::RDS, &["r"], &[]);
    let clusters: Vec<_> = (0..10).map(name).collect();
    bench.whole(CDS, &clusters.iter().map(|name| (name.as_str(), "one")).collect::<Vec<_>>());
    let mut sizes = Vec::new();
    for round in 0..20_000 {
        let cluster = name(round % 10);
        support::lead(&mut bench, "r", &[&cluster]);
        bench.later(20);
        if round % 100 == 0 {
            while bench.poll(client).is_some() {}
        }
        if round == 999 || round == 19_999 {
            sizes.push(live_bytes());
        }
    }
    println!("{} bytes after 1,000 changes of a route, {} after 20,000", sizes[0], sizes[1]);
    assert!(sizes[1] - sizes[0] < 40_000, "{} grew to {}", sizes[0], sizes[1]);
}

#[test]
fn one_change_costs_what_its_interested_sessions_cost() {
    let cost = |count| {
        let (mut bench, ids) = with_sessions(count);
        bench.publishes = false;
        let mut woken = 0;
        let cost = allocations(|| {
            bench.gives(EDS, Set::Names, &[("shared", "two")]);
            woken = bench.publish();
            assert!(bench.poll(ids[count - 1]).is_some());
        });
        assert_eq!(woken, 1, "of {count} sessions one wants it");
        cost
    };
    let (few, many) = (cost(10), cost(5_000));
    println!("allocations for one change that one session wants: {few} beside 9 others, {many} beside 4,999");
    assert!(many <= few + 30, "{few} grew to {many}");
}

#[test]
fn a_session_of_everything_keeps_nothing_of_it() {
    let size = |count| {
        let (mut bench, watcher) = with_resources(count);
        let session = bench.sessions.remove(&watcher).unwrap();
        let before = live_bytes();
        drop(session);
        before - live_bytes()
    };
    let (few, many) = (size(100), size(20_000));
    println!("bytes of a session of *: {few} with 100 resources, {many} with 20,000");
    assert_eq!(few, many);
}

#[test]
fn an_idle_session_does_nothing() {
    let (mut bench, ids) = with_sessions(100);
    bench.publishes = false;
    for round in 0..50 {
        bench.gives(EDS, Set::Names, &[("shared", &round.to_string())]);
        let wakes = bench.view.publish();
        assert!(wakes.0.keys().eq([&ids[99]]), "only who wants it is woken");
    }
    let footprint = bench.sessions[&ids[0]].footprint();
    assert_eq!((footprint.pending, footprint.names), (0, 2));
    // When it is polled all the same, it has nothing to send, and does not keep a snapshot alive.
    assert!(bench.poll(ids[0]).is_none());
    bench.leases.sweep(bench.now);
    assert_eq!(bench.leases.count(), 0);
}

#[test]
fn a_stalled_client_costs_after_a_thousand_updates_what_it_cost_after_a_hundred() {
    let growth = |variant, url, wanted: &str| {
        let mut bench = Bench::new();
        let stalled = bench.client(variant);
        match variant {
            Variant::Delta => bench.delta(stalled, url, &[wanted], &[]),
            Variant::Sotw => bench.sotw(stalled, url, &[wanted], ""),
        }
        let names: Vec<_> = (0..50).map(name).collect();
        let set: Vec<_> = names.iter().map(|name| (name.as_str(), "one")).collect();
        bench.whole(url, &set);
        while bench.poll(stalled).is_some() {}
        // The client reads one more reply, and then none.
        bench.set(url, &[(&name(7), "two")]);
        let _last = bench.poll(stalled);
        let mut sizes = Vec::new();
        for round in 0..1_000 {
            bench.set(url, &[(&name(round % 50), &format!("{round:06}"))]);
            bench.later(10);
            if round == 99 || round == 999 {
                sizes.push(live_bytes());
            }
        }
        (sizes[0], sizes[1])
    };
    for variant in [Variant::Delta, Variant::Sotw] {
        for (url, wanted) in [(CDS, "*"), (EDS, "name-000007")] {
            let (early, late) = growth(variant, url, wanted);
            println!("{variant:?} {wanted}: {early} bytes after 100 updates, {late} after 1,000");
            // The lengths of contents differ by some bytes, and hash maps and the body store vary a little.
            assert!(late - early < 40_000, "{variant:?} {wanted}: {early} grew to {late}");
        }
    }
}

#[test]
fn what_is_kept_of_the_dead_is_bounded_by_number_and_by_bytes() {
    for (history_bytes, tombstone_bytes) in [(20_000, 1 << 30), (1 << 30, 5_000)] {
        let options = ProtocolOptions::default().with(|options| {
            options.view.history_bytes = history_bytes;
            options.view.tombstone_bytes = tombstone_bytes;
            options.hold_referenced(Duration::ZERO);
        });
        let mut bench = Bench::with(options);
        let watcher = bench.client(Variant::Sotw);
        bench.sotw(watcher, CDS, &["*"], "");
        bench.whole(CDS, &[]);
        let content = "x".repeat(200);
        let mut sizes = Vec::new();
        for round in 0..3_000 {
            bench.set(CDS, &[(&name(round), &content)]);
            bench.remove(CDS, &name(round));
            bench.later(1);
            if round == 299 || round == 2_999 {
                sizes.push(live_bytes());
            }
        }
        let (early, late) = (sizes[0], sizes[1]);
        println!(
            "{history_bytes} bytes of names, {tombstone_bytes} bytes of bodies: {early} after 300 removals, {late} after 3,000"
        );
        // The second case has no limit on its names: 2,700 of them at some 300 bytes each.
        let allowed = if history_bytes == 20_000 { 40_000 } else { 2_700 * 400 };
        assert!(late - early < allowed, "{early} grew to {late}");
    }
}

/// Subscribes to `*` and to a name of this many made-up types, round after round, with one view and its server.
fn made_up_types(rounds: usize, in_reach: bool) -> (i64, u64) {
    let table = Arc::new(TypeTable::new());
    let mut unit = View::new(table.clone(), Arc::default());
    let plan = Plan::single(Variant::Delta, Default::default());
    let mut sources = Sources::new(plan.into(), Bytes::from_static(b"node"), table.clone(), Arc::default());
    let (mut now, mut opened) = (Moment::START, BTreeSet::new());
    let mut settle = |unit: &mut View, sources: &mut Sources, later: u64| {
        now = now + Duration::from_secs(later);
        sources.on_time(unit, now).into_iter().for_each(|batch| unit.apply_from(batch.origin, batch.updates, now));
        unit.on_time(now);
        unit.take_upstream_changes().into_iter().for_each(|change| sources.want(change, unit, now));
        sources.close_unused(unit, now);
        unit.publish();
        for (id, stream) in sources.streams_mut() {
            if in_reach && opened.insert(id) {
                stream.opened();
            }
            while stream.next_request(now).is_some() {}
            stream.written(now);
        }
        now
    };
    let keeper = SessionId(0);
    let kept = interest(&table, CDS, "*", true);
    unit.change_interest(keeper, kept, Moment::START);
    settle(&mut unit, &mut sources, 1);
    for round in 0..rounds {
        let now = settle(&mut unit, &mut sources, 1);
        for on in [true, false] {
            for number in 0..ProtocolOptions::default().session.types {
                let url = format!("type.googleapis.com/made.up.T{round:06}x{number:02}");
                for wanted in ["*", "a"] {
                    unit.change_interest(SessionId(1), interest(&table, &url, wanted, on), now);
                }
            }
            settle(&mut unit, &mut sources, 1);
        }
        settle(&mut unit, &mut sources, 60);
        settle(&mut unit, &mut sources, 60);
    }
    let bytes = live_bytes();
    let change = interest(&table, EDS, "*", true);
    let cost = allocations(|| {
        unit.change_interest(keeper, change, Moment::START);
        settle(&mut unit, &mut sources, 1);
    });
    (bytes, cost)
}

#[test]
fn types_that_somebody_makes_up_and_leaves_again_leave_nothing_behind() {
    for in_reach in [true, false] {
        let before = live_bytes();
        let [few, many] = [5, 60].map(|rounds| made_up_types(rounds, in_reach));
        let [few_bytes, many_bytes] = [few.0 - before, many.0 - before];
        println!("in reach {in_reach}: {few_bytes} bytes and {} allocations, then {many_bytes} and {}", few.1, many.1);
        assert!(many_bytes <= few_bytes + 20_000, "{few_bytes} grew to {many_bytes}");
        assert!(many.1 <= few.1 + 30, "{} grew to {}", few.1, many.1);
    }
}

/// Returns how many bytes a view needs for each of `count` names that another view has as well: in its tables, and for what it requested and
/// received from its server. `versions` is the number of different versions.
fn bytes_of_a_name(url: &str, wanted: &str, count: usize, versions: usize) -> (i64, i64) {
    let table = Arc::new(TypeTable::new());
    let store = BodyStore::default();
    let names: Vec<_> = (0..count).map(name).collect();
    let view = |names: &[String]| {
        let mut unit = View::new(table.clone(), Arc::default());
        let plan = Plan::single(Variant::Delta, Default::default());
        let mut sources = Sources::new(plan.into(), Bytes::from_static(b"node"), table.clone(), Arc::default());
        let all = if wanted == "*" { vec![wanted] } else { names.iter().map(String::as_str).collect() };
        for wanted in all {
            unit.change_interest(SessionId(0), interest(&table, url, wanted, true), Moment::START);
        }
        let before = live_bytes();
        unit.take_upstream_changes().into_iter().for_each(|change| sources.want(change, &unit, Moment::START));
        let (id, epoch) = sources.streams_mut().map(|(id, stream)| (id, stream.opened())).next().unwrap();
        while sources.stream(id).unwrap().next_request(Moment::START).is_some() {}
        sources.stream(id).unwrap().written(Moment::START);
        let resource = |(at, name): (usize, &String)| Resource {
            name: name.clone(),
            version: format!("2026-11-20T00:00:00Z/{:04}", at % versions),
            resource: Some(Any { type_url: url.into(), value: Bytes::from_static(b"one") }),
            ..Default::default()
        };
        let response = DeltaDiscoveryResponse {
            resources: names.iter().enumerate().map(resource).collect(),
            type_url: url.into(),
            nonce: "1".into(),
            ..Default::default()
        };
        let response = Response::Delta(response);
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &table, &store).unwrap();
        let batches = sources.on_received(id, epoch, response, &unit, Moment::START);
        batches.into_iter().for_each(|batch| unit.apply_from(batch.origin, batch.updates, Moment::START));
        unit.publish();
        let all = live_bytes() - before;
        let before = live_bytes();
        drop(sources);
        let of_stream = before - live_bytes();
        (unit, all - of_stream, of_stream)
    };
    let first = view(&names);
    let second = view(&names);
    drop(first.0);
    let each = |bytes: i64| bytes / count as i64;
    (each(second.1), each(second.2))
}

#[test]
fn a_name_costs_each_view_little_beside_its_body() {
    for (url, wanted) in [(CDS, "*"), (EDS, "each")] {
        for versions in [1, 10_000] {
            let (table, stream) = bytes_of_a_name(url, wanted, 10_000, versions);
            println!("{wanted} of {versions} versions: {table} bytes a name on the shelf, {stream} for its stream");
            assert!(table < 500 && stream < 160, "{wanted}: {table} and {stream} bytes");
        }
    }
}

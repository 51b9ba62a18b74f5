//! Stops what the program depends on, one thing at a time and all at once, at the start and later. Meanwhile clients get every change as
//! fast as ever, and the program needs no more threads and files. It recovers when the things continue, and it ends when it has to.
//!
//! `WEIR_HANG_SECONDS` sets how long each thing is stopped. From 30 on, the numbers of clients and changes are those in docs/testing.md.

mod churn;
mod world;

use std::time::{Duration, Instant};

use churn::Churn;
use tokio::sync::Mutex;
use weir_testkit::client::PATIENCE;
use weir_testkit::program::Program;
use weir_testkit::wait::until;
use world::{ALL, Thing, World};

/// The tests run one at a time, because they measure.
static TURN: Mutex<()> = Mutex::const_new(());
/// The time limit for the program to end, besides `drain`: docs/operations.md says 6.1 s at most, and what hangs is given up after 10 s.
const END: Duration = Duration::from_secs(9);
/// The time limit for the program to start: what hangs is given up after 5 or 10 s.
const START: Duration = Duration::from_secs(5);
/// A 99th percentile up to this passes, however fast deliveries are otherwise: of thousands of deliveries, and of the few in the short form.
const FAST: Duration = Duration::from_millis(20);
const FAST_OF_FEW: Duration = Duration::from_millis(100);
/// How often a measurement above the limit is made again.
const TRIES: usize = 3;
/// From this many seconds on, the test runs in its long form.
const LONG: u64 = 30;
/// How many more threads and files may exist at a time: each thing has threads that hang, and attempts that have failed.
const MORE_THREADS: usize = 24;
const MORE_FILES: usize = 64;

fn seconds() -> u64 {
    std::env::var("WEIR_HANG_SECONDS").map_or(3, |seconds| seconds.parse().unwrap())
}

/// Returns the median of three measurements, so that a single pause of the machine does not count as a delay of the program.
async fn p99(churn: &Churn) -> Duration {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(churn.p99(Duration::from_secs(seconds()) / 3).await);
    }
    all.sort();
    all[1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_leaned_on_stops_later_and_clients_get_every_change() {
    let _turn = TURN.lock().await;
    let mut world = World::new().await;
    let mut program = world.start();
    let churn = Churn::start(&mut world.plane, &program, seconds() >= LONG).await;
    let leaning = world.lean(&program).await;
    world.go_on(&[], &program);
    world.is_well(ALL, &program, &leaning).await;
    let alone = p99(&churn).await;
    let limit = (if seconds() >= LONG { FAST } else { FAST_OF_FEW }).max(2 * alone);
    let (threads, files) = (world::threads(&program), world::files(&program));

    for thing in ALL.iter().map(std::slice::from_ref).chain([ALL]) {
        world.stop(thing, &mut program).await;
        // Others may keep the processors for seconds. What waits for the thing that hangs waits each time.
        let mut hung = p99(&churn).await;
        for _ in 1..TRIES {
            if hung > limit {
                hung = p99(&churn).await;
            }
        }
        println!("{thing:?}: p99 {hung:.1?}, without {alone:.1?}; {} threads", world::threads(&program));
        assert!(world::threads(&program) <= threads + MORE_THREADS, "{thing:?}: {}", world::threads(&program));
        assert!(world::files(&program) <= files + MORE_FILES, "{thing:?}: {}", world::files(&program));
        world.go_on(thing, &program);
        world.is_well(thing, &program, &leaning).await;
        // Others may have taken the processors since the first measurement. A new process shows that, and not what is left in this one.
        let alone = if hung > limit { p99_of_another().await } else { alone };
        assert!(hung <= limit.max(2 * alone), "{thing:?}: {hung:?}, and {alone:?} without");
    }
    until("threads and files are given back", async || {
        world::threads(&program) <= threads + 4 && world::files(&program) <= files + 8
    })
    .await;

    world.stop(ALL, &mut program).await;
    ends(&mut program);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_leaned_on_hangs_at_the_start_and_the_program_serves() {
    let _turn = TURN.lock().await;
    // Not the log: `hung_disk` starts with a full one. Not the bootstrap file: without it no server is known.
    let all = [Thing::Disk, Thing::Resolver, Thing::Token, Thing::Certificate, Thing::Collector, Thing::Plane];
    for things in all.iter().map(std::slice::from_ref).chain([all.as_slice()]) {
        let (mut world, mut program) = started(things).await;
        let churn = Churn::start(&mut world.plane, &program, false).await;
        let leaning = world.lean(&program).await;
        churn.p99(Duration::from_secs(1)).await; // each client has each change
        world.go_on(things, &program);
        world.is_well(things, &program, &leaning).await;
        world.stop_before(things);
        ends(&mut program);
    }
}

/// Starts while things hang. A start that waits for one of them waits each time; one on a busy machine does not.
async fn started(things: &[Thing]) -> (World, Program) {
    let mut times = Vec::new();
    loop {
        let world = World::new().await;
        world.stop_before(things);
        let begun = Instant::now();
        let program = world.start();
        times.push(begun.elapsed());
        if begun.elapsed() < START {
            return (world, program);
        }
        assert!(times.len() < TRIES, "{things:?}: {times:?}");
    }
}

/// Returns the 99th percentile of a new process while nothing hangs.
async fn p99_of_another() -> Duration {
    let mut world = World::new().await;
    let program = world.start();
    let churn = Churn::start(&mut world.plane, &program, seconds() >= LONG).await;
    p99(&churn).await
}

/// Checks that the program ends, even while everything hangs.
fn ends(program: &mut Program) {
    let begun = Instant::now();
    program.signal("-TERM");
    assert!(program.has_succeeded(PATIENCE), "it fails");
    assert!(begun.elapsed() < world::DRAIN + END, "{:?}", begun.elapsed());
}

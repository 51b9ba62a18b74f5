//! Stops what the program depends on, one thing at a time and all at once, at the start and later. Meanwhile clients get every change,
//! and the program needs no more threads and files. It recovers when the things continue, and it ends when it has to.
//!
//! The test that begins with `night_` also checks that clients get changes as fast as ever. `WEIR_HANG_SECONDS` sets how long it stops each thing.
//! From 30 on, the numbers of clients and changes are those in docs/testing.md.

mod churn;
mod world;

use std::time::{Duration, Instant};

use churn::Churn;
use weir_testkit::client::PATIENCE;
use weir_testkit::program::Program;
use weir_testkit::wait::until;
use world::{ALL, Thing, World};

/// The time limit for the program to end, besides `drain`: docs/operations.md says 6.1 s at most, and what hangs is given up after 10 s.
const END: Duration = Duration::from_secs(9);
/// The time limit for the program to start: what hangs is given up after 5 or 10 s.
const START: Duration = Duration::from_secs(5);
/// A 99th percentile up to this passes, however fast deliveries are otherwise: of thousands of deliveries, and of the few in the short form.
const FAST: Duration = Duration::from_millis(20);
const FAST_OF_FEW: Duration = Duration::from_millis(100);
/// How often a measurement above the limit is made again.
const TRIES: usize = 3;
/// How long each thing is stopped, unless `WEIR_HANG_SECONDS` is set.
const SHORT: Duration = Duration::from_secs(3);
/// From this time on, the numbers of clients and changes are larger.
const LONG: Duration = Duration::from_secs(30);
/// How many more threads and files may exist at a time: each thing has threads that hang, and attempts that have failed.
const MORE_THREADS: usize = 24;
const MORE_FILES: usize = 64;

/// How long each thing is stopped, and with how many clients and changes.
#[derive(Debug, Clone, Copy)]
struct Stops {
    time: Duration,
}

impl Stops {
    fn is_long(self) -> bool {
        self.time >= LONG
    }

    async fn churn(self, world: &mut World, program: &Program) -> Churn {
        Churn::start(&mut world.plane, program, self.is_long()).await
    }

    /// Changes the set for the time of a stop, and waits each third of it until all clients have every change. Returns the median of the three
    /// percentiles, so that a single pause of the machine does not count as a delay of the program.
    async fn p99(self, churn: &Churn) -> Duration {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(churn.p99(self.time / 3).await);
        }
        all.sort();
        all[1]
    }

    /// Returns the 99th percentile of a new process while nothing hangs.
    async fn p99_of_another(self) -> Duration {
        let mut world = World::new().await;
        let program = world.start();
        let churn = self.churn(&mut world, &program).await;
        self.p99(&churn).await
    }
}

/// The 99th percentile while nothing hangs, with which those of stops are compared.
struct Pace {
    stops: Stops,
    alone: Duration,
}

impl Pace {
    fn limit(&self) -> Duration {
        (if self.stops.is_long() { FAST } else { FAST_OF_FEW }).max(2 * self.alone)
    }

    /// Returns the 99th percentile while things hang, after the first was this one. Others may keep the processors for seconds, and what waits for the
    /// thing that hangs waits each time.
    async fn measured_again(&self, first: Duration, churn: &Churn) -> Duration {
        let mut hung = first;
        for _ in 1..TRIES {
            if hung > self.limit() {
                hung = self.stops.p99(churn).await;
            }
        }
        hung
    }

    /// Checks the 99th percentile while things hung. Others may have taken the processors since the first measurement: a new process shows that, and
    /// not what is left in this one.
    async fn allows(&self, things: &[Thing], hung: Duration) {
        let alone = if hung > self.limit() { self.stops.p99_of_another().await } else { self.alone };
        assert!(hung <= self.limit().max(2 * alone), "{things:?}: {hung:?}, and {alone:?} without");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_leaned_on_stops_later_and_clients_get_every_change() {
    everything_stops(Stops { time: SHORT }, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; needs a quiet machine"]
async fn night_what_is_leaned_on_stops_later_and_clients_get_every_change_as_fast_as_ever() {
    let _turn = super::HEAVY.lock().await;
    let seconds = std::env::var("WEIR_HANG_SECONDS").map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    everything_stops(Stops { time: seconds.unwrap_or(SHORT) }, true).await;
}

/// Stops each thing and then all of them, and compares delivery times if they are to be measured.
async fn everything_stops(stops: Stops, are_measured: bool) {
    let mut world = World::new().await;
    let mut program = world.start();
    let churn = stops.churn(&mut world, &program).await;
    let leaning = world.lean(&program).await;
    world.go_on(&[], &program);
    world.is_well(ALL, &program, &leaning).await;
    let pace = Pace { stops, alone: stops.p99(&churn).await };
    let (threads, files) = (world::threads(&program), world::files(&program));

    for thing in ALL.iter().map(std::slice::from_ref).chain([ALL]) {
        world.stop(thing, &mut program).await;
        let mut hung = stops.p99(&churn).await;
        if are_measured {
            hung = pace.measured_again(hung, &churn).await;
        }
        println!("{thing:?}: p99 {hung:.1?}, without {:.1?}; {} threads", pace.alone, world::threads(&program));
        assert!(world::threads(&program) <= threads + MORE_THREADS, "{thing:?}: {}", world::threads(&program));
        assert!(world::files(&program) <= files + MORE_FILES, "{thing:?}: {}", world::files(&program));
        world.go_on(thing, &program);
        world.is_well(thing, &program, &leaning).await;
        if are_measured {
            pace.allows(thing, hung).await;
        }
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

/// Checks that the program ends, even while everything hangs.
fn ends(program: &mut Program) {
    let begun = Instant::now();
    program.signal("-TERM");
    assert!(program.has_succeeded(PATIENCE), "it fails");
    assert!(begun.elapsed() < world::DRAIN + END, "{:?}", begun.elapsed());
}

//! The sessions, views and upstream streams of several tiers together, in virtual time.

#[path = "../support/bounds.rs"]
mod bounds_of_polls;

mod bounds;
mod client;
mod content;
mod judge;
mod options;
mod outages;
mod random;
mod rows;
mod server;
mod tier;
mod wire;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::protocol::faults::{Fault, Faults};
use world::World;

/// How many histories are part of each test run.
const HISTORIES: u64 = 200;
/// How many histories suffice to notice each planted fault.
const ENOUGH: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Returns the fault that `WEIR_FAULT` names, to see what it does.
fn fault() -> Faults {
    let Ok(name) = std::env::var("WEIR_FAULT") else { return Faults::NONE };
    let fault = Fault::OF_THE_WHOLE.into_iter().find(|fault| format!("{fault:?}") == name);
    Faults::planted(fault.unwrap_or_else(|| panic!("WEIR_FAULT is no fault of the whole: {name}")))
}

/// Runs histories on two threads, and returns those that failed.
fn run(histories: std::ops::Range<u64>, run: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<(u64, String)> {
    let next = AtomicU64::new(histories.start);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= histories.end {
                        return;
                    }
                    if let Err(why) = run(number) {
                        wrong.lock().unwrap().push((number, why));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    wrong
}

#[test]
fn everybody_is_served_what_there_is_within_the_bounds_and_loses_nothing() {
    if let Some(history) = number("WEIR_HISTORY") {
        return World::new(history, fault(), true).live().unwrap();
    }
    let histories = number("WEIR_HISTORIES").unwrap_or(HISTORIES);
    let wrong = run(1..histories + 1, |number| World::new(number, fault(), false).live());
    for (number, why) in wrong.iter().take(200) {
        println!("WEIR_HISTORY={number}: {why}");
    }
    assert!(wrong.is_empty(), "{} of {histories} histories went wrong", wrong.len());
}

/// If no history finds a fault, the judge could not see it.
#[test]
#[ignore = "takes from ten seconds to a minute; core/tests/histories runs it, and so does CI"]
fn every_planted_fault_is_found_within_two_thousand_histories() {
    let found = |fault: Fault| {
        let first = AtomicU64::new(u64::MAX);
        let histories = 1..ENOUGH + 1;
        run(histories, |number| match number > first.load(Ordering::Relaxed) {
            true => Ok(()),
            false => World::new(number, Faults::planted(fault), false).live().inspect_err(|_| {
                first.fetch_min(number, Ordering::Relaxed);
            }),
        });
        first.into_inner()
    };
    let missed: Vec<Fault> = Fault::OF_THE_WHOLE.into_iter().filter(|fault| found(*fault) == u64::MAX).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

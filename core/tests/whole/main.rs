//! The sessions, views and upstream streams of several tiers together, in virtual time.

mod bounds;
mod client;
mod content;
mod judge;
mod options;
mod outages;
mod random;
mod rows;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod tier;
mod wire;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use support::random::number;
use world::World;

/// How many histories are part of each test run.
const HISTORIES: u64 = 200;

/// Runs histories on two threads, and returns those that failed. If a fault is planted (`tests/mutants`), the first one suffices.
fn run(histories: std::ops::Range<u64>, run: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<(u64, String)> {
    let is_planted = std::env::var_os("WEIR_MUTANT").is_some();
    let next = AtomicU64::new(histories.start);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= histories.end || is_planted && !wrong.lock().unwrap().is_empty() {
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
        return World::new(history, true).live().unwrap();
    }
    let (first, histories) = (number("WEIR_SEED").unwrap_or(1), number("WEIR_HISTORIES").unwrap_or(HISTORIES));
    let wrong = run(first..first + histories, |number| World::new(number, false).live());
    for (number, why) in wrong.iter().take(200) {
        println!("WEIR_HISTORY={number}: {why}");
    }
    assert!(wrong.is_empty(), "{} of {histories} histories went wrong", wrong.len());
}

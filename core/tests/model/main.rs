//! Random histories of the pure model, compared with a naive oracle.
//!
//! A history is a list of operations on a small world: a scripted control plane, one relay with two views, and a few simulated clients of both
//! variants. Every reply is checked when it is made. The final states are checked when nothing changes any more.
//!
//! `cargo test --test model` runs a few hundred histories; `core/tests/histories` runs some thousands.
//! `WEIR_HISTORIES=100000 cargo test --release --test model` runs more, `WEIR_SEED=n WEIR_HISTORIES=1` repeats the one in a failure.

mod client;
mod content;
mod coverage;
mod fixed;
mod history;
mod oracle;
mod origin;
mod rest;
mod rig;
#[path = "../support/mod.rs"]
mod support;
mod view;
mod world;

use coverage::Coverage;
use support::random::number;
use weir_core::protocol::view::RowPosition;

const HISTORIES: u64 = 300;
/// After this many histories every event has occurred.
const ENOUGH: u64 = 3_000;

#[test]
fn every_history_ends_with_each_client_holding_exactly_what_it_requested() {
    let (seed, count) = (number("WEIR_SEED").unwrap_or(1), number("WEIR_HISTORIES").unwrap_or(HISTORIES));
    let mut coverage = Coverage::default();
    for seed in seed..seed + count {
        if let Err(failure) = history::run(seed, &mut coverage) {
            let smallest = history::shrink(seed);
            panic!("seed {seed}: {failure}\nsmallest: {smallest}");
        }
    }
    println!("seeds {seed}..{}\n{coverage}", seed + count);
    // A fault that is planted has to be noticed by what it does, and not by what it leaves out.
    if count >= ENOUGH && std::env::var_os("WEIR_MUTANT").is_none() {
        let missing = coverage.never_reached();
        assert!(missing.is_empty(), "the histories never reached {missing:?}");
    }
}

#[test]
#[ignore = "takes from ten seconds to a minute; core/tests/histories runs it, and so does CI"]
fn a_stage_that_holds_nothing_changes_nothing_wherever_it_stands() {
    for at in [RowPosition::Brakes, RowPosition::Order, RowPosition::Tables] {
        let passed = (1..=ENOUGH / 5).map(|seed| {
            history::run_with_stage(seed, at).unwrap_or_else(|failure| panic!("at {at:?}, seed {seed}: {failure}"))
        });
        assert!(passed.sum::<usize>() > 10_000, "at {at:?}");
    }
}

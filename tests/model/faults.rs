//! Breaks one rule at a time and looks whether the histories notice. A fault that nobody notices is a hole in the tests.

use weir::protocol::faults::{Fault, Faults};

use crate::coverage::Coverage;
use crate::history;

/// How many histories a fault may survive.
const PATIENCE: u64 = 6_000;

#[test]
fn every_planted_fault_is_caught() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        match caught(fault) {
            Some((seed, how)) => println!("{fault:?}: seed {seed}: {}", how.lines().next().unwrap_or_default()),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

fn caught(fault: Fault) -> Option<(u64, String)> {
    (1..=PATIENCE).find_map(|seed| {
        let outcome = history::run(seed, Faults::planted(fault), &mut Coverage::default());
        outcome.err().map(|how| (seed, how))
    })
}

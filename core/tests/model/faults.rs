//! Breaks one rule at a time and checks that the histories notice. A fault that is not noticed is a gap in the tests.

use weir_core::protocol::faults::{Fault, Faults};
use weir_core::protocol::session::Variant;

use crate::coverage::Coverage;
use crate::{fixed, history};

/// How many histories may miss a fault.
const PATIENCE: u64 = 6_000;

#[test]
#[ignore = "takes from ten seconds to a minute; core/tests/histories runs it, and so does CI"]
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
    if fault == Fault::RemoveBeforeCounted {
        // Four events have to coincide; histories find that once in some tens of thousands.
        let how = fixed::a_route_moves_before_interest_is_counted(Variant::Delta, Faults::planted(fault));
        return how.err().map(|how| (0, how));
    }
    // This fault shows in one of some ten thousand histories: the search begins shortly before one of these.
    let first = if fault == Fault::TakePartForWhole { 13_000 } else { 1 };
    (first..first + PATIENCE).find_map(|seed| {
        let outcome = history::run(seed, Faults::planted(fault), &mut Coverage::default());
        outcome.err().map(|how| (seed, how))
    })
}

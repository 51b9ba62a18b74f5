//! What brakes hold is listed with its age and its bound.

use super::*;
use crate::protocol::wait::{WaitKind, WaitList};

/// How many are held, for how long the oldest, and for how long at most, in seconds.
fn waits(bench: &Bench) -> (usize, u64, Option<u64>) {
    let mut list = WaitList::keeping(1);
    bench.view.holds().add_waits(bench.now, &mut list);
    let Some((kind, sum)) = list.sums().next() else { return (0, 0, None) };
    assert_eq!(kind, WaitKind::Brake);
    let bound = list.into_oldest().remove(0).bound;
    (sum.count, sum.oldest.as_secs(), bound.map(|bound| bound.as_secs()))
}

#[test]
fn held_removals_are_listed_until_their_grace_is_over() {
    let mut bench = Bench::new(CDS, 100);
    assert_eq!(waits(&bench), (0, 0, None));
    bench.remove(0..50);
    bench.pass(200);
    assert_eq!(waits(&bench), (50, 200, Some(GRACE)));
    bench.remove(50..55);
    bench.pass(99);
    assert_eq!(waits(&bench), (55, 299, Some(GRACE)));
    bench.pass(1);
    assert_eq!(waits(&bench), (5, 100, Some(GRACE)), "each has its own time");
    bench.pass(GRACE);
    assert_eq!(waits(&bench), (0, 0, None));
}

#[test]
fn while_its_server_is_away_a_held_removal_has_no_bound_and_its_clock_stands() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove(0..50);
    bench.pass(200);
    bench.interrupt();
    bench.pass(10_000);
    assert_eq!(waits(&bench), (50, 200, None));
    bench.settle();
    bench.pass(50);
    assert_eq!(waits(&bench), (50, 250, Some(GRACE)));
}

#[test]
fn removals_from_a_set_that_would_be_empty_have_the_longer_bound() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove(0..100);
    bench.pass(400);
    assert_eq!(waits(&bench), (100, 400, Some(EMPTY_GRACE)));
}

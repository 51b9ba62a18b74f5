//! What later openings, polls and other servers end, and what they do not.

use super::*;

#[test]
fn a_later_opening_that_agrees_ends_the_grace() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.pass(60);
    bench.interrupt();
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (50, 0));
    assert_eq!(bench.releases(), [(ReleaseReason::Agreed, 50)]);
    bench.remove([0]);
    assert_eq!((bench.count(), bench.held()), (49, 0), "what was agreed to is no loss");
}

#[test]
fn the_same_opening_cannot_agree() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.pass(200);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50));
}

#[test]
fn an_opening_right_after_the_first_is_no_agreement() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.pass(59);
    bench.interrupt();
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50));
    bench.pass(200);
    bench.set(0..50);
    assert_eq!(bench.held(), 50, "it is the same opening");
}

#[test]
fn an_opening_that_removes_more_does_not_agree() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.pass(60);
    bench.interrupt();
    bench.set(0..10);
    assert_eq!((bench.count(), bench.held()), (100, 90), "a server that has not read all of its own state yet");
}

#[test]
fn empty_twice_is_no_agreement() {
    let mut bench = Bench::new(CDS, 100);
    for _ in 0..5 {
        bench.set([]);
        bench.pass(120);
        bench.interrupt();
        bench.pass(5);
    }
    bench.set([0]);
    assert_eq!((bench.count(), bench.held()), (100, 99), "nor is a set that is not empty any more");
}

#[test]
fn another_server_that_agrees_ends_the_grace_at_once() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.interrupt();
    bench.origin = Origin { server: 1, rank: 1, ..Origin::default() };
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (50, 0));
    bench.remove([0]);
    assert_eq!((bench.count(), bench.held()), (49, 0), "what was agreed to is no loss");
}

#[test]
fn another_server_that_has_it_cancels_the_removal() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.interrupt();
    bench.origin = Origin { server: 1, rank: 1, ..Origin::default() };
    bench.set(0..100);
    assert_eq!((bench.count(), bench.held()), (100, 0));
}

#[test]
fn a_lower_server_cannot_agree_about_what_it_may_not_remove() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.interrupt();
    bench.origin = Origin { server: 1, rank: 1, holds_missing: true, ..Origin::default() };
    bench.set(0..20);
    assert_eq!((bench.count(), bench.held()), (100, 50));
    bench.pass(GRACE);
    assert_eq!((bench.count(), bench.held()), (50, 0), "the first server has removed these, and only these");
}

#[test]
fn a_later_poll_agrees() {
    let mut bench = Bench::empty(CDS, options());
    bench.origin.is_polled = true;
    bench.set(0..100);
    bench.pass(100);
    bench.set(0..50);
    bench.pass(30);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50), "too soon");
    bench.pass(30);
    bench.apply(vec![Update::Unchanged { kind: bench.kind.clone() }]);
    assert_eq!((bench.count(), bench.held()), (50, 0), "the same answer again");
    bench.set(1..50);
    assert_eq!((bench.count(), bench.held()), (49, 0), "what was agreed to is no loss");
}

#[test]
fn polls_never_agree_about_an_empty_set() {
    let mut bench = Bench::empty(CDS, options());
    bench.origin.is_polled = true;
    bench.set(0..100);
    bench.pass(100);
    for _ in 0..20 {
        bench.set([]);
        bench.pass(20);
        bench.apply(vec![Update::Unchanged { kind: bench.kind.clone() }]);
    }
    assert_eq!(bench.held(), 100);
}

#[test]
fn no_time_passes_while_the_server_is_away() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.pass(20);
    bench.interrupt();
    bench.pass(100 * GRACE);
    assert_eq!((bench.count(), bench.held()), (100, 50));
    bench.settle();
    bench.pass(GRACE - 21);
    assert_eq!(bench.held(), 50, "the server is back and has not said more");
    bench.pass(1);
    assert_eq!((bench.count(), bench.held()), (50, 0));
}

#[test]
fn a_restart_of_the_server_does_not_start_the_time_over() {
    let mut bench = Bench::new(CDS, 100);
    for _ in 0..8 {
        bench.set([]);
        bench.pass(100);
        bench.interrupt();
    }
    assert_eq!(bench.count(), 100);
    bench.set([]);
    bench.pass(99);
    assert_eq!(bench.count(), 100);
    bench.pass(1);
    assert_eq!(bench.count(), 0, "it has stated this for 15 minutes altogether");
}

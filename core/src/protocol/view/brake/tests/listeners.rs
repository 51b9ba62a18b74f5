//! Listeners: what comes with held removals waits with them.

use super::*;

#[test]
fn renamed_listeners_wait_with_the_removals() {
    let mut bench = Bench::new(LDS, 20);
    bench.set(100..110);
    assert_eq!((bench.present(), bench.held()), ((0..20).collect(), 20));
    assert_eq!(bench.view.holds().brakes(0)[0].changes, 10);
    bench.pass(GRACE);
    assert_eq!((bench.present(), bench.held()), ((100..110).collect(), 0));
}

#[test]
fn changes_and_later_additions_wait_too() {
    let mut bench = Bench::new(LDS, 20);
    bench.remove(0..15);
    bench.send(16, "changed");
    bench.send(50, "");
    assert_eq!((bench.count(), bench.content(16).unwrap()), (20, b"".to_vec()));
    bench.pass(GRACE);
    assert_eq!((bench.count(), bench.content(16).unwrap()), (6, b"changed".to_vec()));
}

#[test]
fn all_passes_when_the_server_takes_the_removals_back() {
    let mut bench = Bench::new(LDS, 20);
    bench.set([100]);
    bench.pass(5);
    bench.set((0..20).chain([100]));
    assert_eq!((bench.count(), bench.held()), (21, 0));
    assert!(bench.view.holds().brakes(0).is_empty());
}

#[test]
fn a_waiting_addition_that_is_removed_again_is_dropped() {
    let mut bench = Bench::new(LDS, 20);
    bench.set([100, 101]);
    bench.remove([101]);
    bench.set([100]);
    bench.pass(GRACE);
    assert_eq!(bench.present(), [100].into());
}

#[test]
fn the_set_is_not_complete_while_names_wait() {
    let mut bench = Bench::new(LDS, 20);
    let complete = |bench: &Bench| bench.view.tables().completeness_of(&bench.kind, &Selector::Wildcard);
    assert_eq!(complete(&bench), Completeness::Complete);
    bench.set(0..5);
    assert_eq!(complete(&bench), Completeness::Complete, "it is complete for what it shows");
    bench.set(100..105);
    assert_eq!(complete(&bench), Completeness::Settled, "a client may hold one of the new names");
    bench.pass(GRACE);
    assert_eq!((bench.count(), complete(&bench)), (5, Completeness::Complete));
}

#[test]
fn as_many_others_pass_at_once() {
    let mut bench = Bench::new(LDS, 20);
    bench.set(100..120);
    assert_eq!((bench.present(), bench.held()), ((100..120).collect(), 0));
}

#[test]
fn a_drip_of_removals_does_not_keep_additions_waiting() {
    let mut bench = Bench::new(LDS, 60);
    bench.remove(0..30);
    bench.send(100, "");
    for number in 30..50 {
        bench.pass(GRACE / 10);
        bench.remove([number]);
    }
    assert!(bench.present().contains(&100));
}

#[test]
fn a_change_that_the_server_takes_back_does_not_wait_any_more() {
    for is_whole in [true, false] {
        let mut bench = Bench::new(LDS, 20);
        bench.remove(0..15);
        bench.send(16, "changed");
        bench.pass(5);
        match is_whole {
            true => bench.set(15..20), // as it is served
            false => bench.send(16, ""),
        }
        bench.pass(GRACE);
        assert_eq!((bench.count(), bench.content(16).unwrap()), (5, b"".to_vec()), "whole: {is_whole}");
    }
}

#[test]
fn changes_that_an_operator_releases_pass_though_no_removal_is_released_with_them() {
    let mut bench = Bench::new(LDS, 100);
    bench.remove(0..40);
    bench.send(50, "changed");
    let seen = bench.view.holds().brakes(0)[0].generation;
    bench.remove(60..100);
    (0..40).for_each(|number| bench.send(number, "")); // it takes back what the operator has seen
    assert_eq!((bench.held(), bench.content(50).unwrap()), (40, b"".to_vec()));
    assert_eq!(bench.view.release_brakes(None, None, seen, bench.now), Err(NotReleased::Later));
    assert_eq!(bench.content(50).unwrap(), b"changed");
}

#[test]
fn a_change_waits_no_longer_than_the_removals_that_it_came_after() {
    let mut bench = Bench::new(LDS, 20);
    bench.remove(0..15);
    bench.pass(5);
    bench.send(16, "changed");
    bench.pass(GRACE - 5);
    assert_eq!((bench.count(), bench.content(16).unwrap()), (5, b"changed".to_vec()));
    assert!(bench.view.holds().brakes(0).is_empty());

    let mut bench = Bench::new(LDS, 100);
    bench.remove(0..40);
    let seen = bench.generation();
    bench.remove(40..80);
    bench.send(90, "changed");
    (40..80).for_each(|number| bench.send(number, "")); // it takes back what the operator has not seen
    assert_eq!((bench.held(), bench.content(90).unwrap()), (40, b"".to_vec()));
    assert_eq!(bench.view.release_brakes(None, None, seen, bench.now), Ok(40));
    assert_eq!((bench.count(), bench.content(90).unwrap()), (60, b"changed".to_vec()));
    assert!(bench.view.holds().brakes(0).is_empty());
}

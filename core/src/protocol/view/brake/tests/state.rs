//! Brakes in another process.

use super::*;

/// A view in a new process that has the tables of an old one.
fn restarted(old: &Bench, count: usize) -> Bench {
    let state = old.view.holds().brake_state(old.now);
    let mut bench = Bench::empty(LDS, options());
    bench.kind = old.kind.clone();
    let wanted = InterestChange { kind: bench.kind.clone(), selector: Selector::Wildcard, on: true };
    bench.view.change_interest(SessionId(2), wanted, bench.now);
    bench.now = Moment::START + Duration::from_secs(5);
    let kind = bench.kind.clone();
    let resources = (0..count).map(|number| bench.resource(number, "")).collect();
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::nothing() }]);
    bench.interrupt();
    bench.view.restore_brakes(&state, bench.now);
    bench
}

#[test]
fn the_time_of_a_removal_goes_on() {
    let mut old = Bench::new(CDS, 100);
    old.set(0..50);
    old.pass(40);
    let mut bench = restarted(&old, 100);
    assert_eq!((bench.count(), bench.held(), bench.generation()), (100, 50, old.generation()));
    bench.pass(1000);
    assert_eq!(bench.held(), 50, "no server has stated anything yet");
    bench.set(0..50);
    assert_eq!(bench.held(), 50, "too soon to agree");
    bench.pass(GRACE - 41);
    assert_eq!(bench.held(), 50);
    bench.pass(1);
    assert_eq!((bench.count(), bench.held()), (50, 0));
}

#[test]
fn what_is_held_changes_by_what_is_said_of_it_and_not_by_time_or_by_other_resources() {
    let mut bench = Bench::new(CDS, 100);
    let mut changes = {
        let mut last = bench.view.holds().brake_changes();
        move |bench: &Bench| {
            std::mem::replace(&mut last, bench.view.holds().brake_changes()) != bench.view.holds().brake_changes()
        }
    };
    bench.set(0..50);
    assert!(changes(&bench));
    for round in 0..3 {
        bench.pass(1);
        bench.send(1, &format!("another {round}"));
        bench.settle();
        assert!(!changes(&bench), "in round {round}");
    }
    let is_stopped = |bench: &Bench| bench.view.holds().brake_state(bench.now).sets[0].is_stopped;
    assert!(!is_stopped(&bench));
    bench.interrupt();
    assert!(changes(&bench) && is_stopped(&bench));
    bench.pass(10);
    assert!(!changes(&bench));
    bench.settle();
    assert!(changes(&bench) && !is_stopped(&bench));
    bench.send(70, "");
    assert!(changes(&bench), "one is back");
    bench.set(0..100);
    assert!(changes(&bench) && bench.view.holds().brakes(0).is_empty(), "all are back");
}

#[test]
fn the_time_of_an_empty_set_goes_on() {
    let mut old = Bench::new(CDS, 100);
    old.set([]);
    old.pass(EMPTY_GRACE - 10);
    let mut bench = restarted(&old, 100);
    bench.set([]);
    bench.pass(9);
    assert_eq!(bench.count(), 100);
    bench.pass(1);
    assert_eq!(bench.count(), 0);
}

#[test]
fn a_drip_goes_on_counting() {
    let mut old = Bench::new(CDS, 100);
    old.remove(70..100);
    let mut bench = restarted(&old, 70);
    bench.settle();
    bench.remove([0]);
    assert_eq!((bench.count(), bench.held()), (70, 1));
}

#[test]
fn generations_go_on() {
    let mut old = Bench::new(CDS, 100);
    old.set(0..50);
    let before = old.generation();
    let mut bench = restarted(&old, 100);
    bench.remove([0]);
    assert!(bench.generation() > before);
    assert_eq!(bench.view.release_brakes(None, None, before, bench.now), Ok(50));
    assert_eq!(bench.held(), 1);
}

#[test]
fn what_is_not_present_any_more_is_left_out() {
    let mut old = Bench::new(CDS, 100);
    old.set(0..50);
    let bench = restarted(&old, 60);
    assert_eq!(bench.held(), 10);
}

#[test]
fn any_state_can_be_read() {
    let mut old = Bench::new(CDS, 100);
    old.set(0..50);
    let mut state = old.view.holds().brake_state(old.now);
    for set in &mut state.sets {
        set.sizes = vec![(Duration::MAX, usize::MAX), (Duration::ZERO, 0), (Duration::MAX, 1)];
        (set.start_size, set.empty_for) = (usize::MAX, Some(Duration::MAX));
        set.removals.iter_mut().for_each(|held| (held.age, held.generation) = (Duration::MAX, u64::MAX));
    }
    let mut bench = Bench::new(CDS, 100);
    bench.view.restore_brakes(&state, bench.now);
    bench.set(0..40);
    bench.set([]);
    bench.pass(EMPTY_GRACE);
    assert_eq!(bench.count(), 0);
}

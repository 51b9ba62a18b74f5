//! Which removals are too many, and when they are released.

use std::ops::Range;

use super::*;
use crate::xds::Name;

#[test]
fn what_a_later_set_has_and_cannot_be_read_is_held_no_longer() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50));
    let kind = bench.kind.clone();
    let resources = (0..50).map(|number| bench.resource(number, "")).collect();
    let unread = (50..60).map(|number| format!("r{number}").as_str().into()).collect();
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::These(unread) }]);
    assert_eq!((bench.count(), bench.held()), (100, 40));
}

/// The server sends its whole set, and there is no room for some of it.
fn set_without_room(bench: &mut Bench, fits: Range<usize>, lacks: Range<usize>) {
    let (kind, class) = (bench.kind.clone(), Class::Wildcard);
    let resources = fits.map(|number| bench.resource(number, "")).collect();
    let names: BTreeSet<Name> = lacks.map(|number| format!("r{number}").as_str().into()).collect();
    let without_room = |key: &Name| Update::WithoutRoom { kind: kind.clone(), class, key: key.clone() };
    let without_room: Vec<_> = names.iter().map(without_room).collect();
    let retain = Retain::These(names.clone());
    let set = Update::FullSet { kind: kind.clone(), resources, retain };
    let unreadable = Update::Unreadable { kind: kind.clone(), of: Selector::Wildcard, names };
    bench.apply([set, unreadable].into_iter().chain(without_room).collect());
}

#[test]
fn what_replaces_a_set_and_has_no_room_is_no_loss() {
    let mut bench = Bench::new(CDS, 100);
    set_without_room(&mut bench, 0..0, 100..200);
    assert_eq!((bench.count(), bench.held()), (0, 0), "the set is as large as before");
    set_without_room(&mut bench, 100..150, 150..200);
    assert_eq!((bench.count(), bench.held()), (50, 0), "half of it has room now");
    set_without_room(&mut bench, 101..150, 150..200);
    assert_eq!((bench.count(), bench.held()), (49, 0), "one of a hundred is removed");
    set_without_room(&mut bench, 101..121, 0..0);
    assert_eq!((bench.count(), bench.held()), (49, 29), "a fifth is left, and what is here of the rest is held");
    set_without_room(&mut bench, 101..121, 150..230);
    assert_eq!((bench.count(), bench.held()), (20, 0), "it is whole again, with or without room");
}

#[test]
fn the_end_of_what_had_no_room_holds_nothing_that_is_not_here() {
    let mut bench = Bench::new(CDS, 20);
    set_without_room(&mut bench, 0..20, 100..180);
    bench.pass(100);
    set_without_room(&mut bench, 0..20, 0..0);
    assert_eq!((bench.count(), bench.held(), bench.releases().len()), (20, 0, 0));
    bench.remove([0]);
    assert_eq!((bench.count(), bench.held()), (19, 0), "nor is an ordinary removal held for it");
}

#[test]
fn what_had_no_room_before_a_reopening_hides_no_loss_once_the_set_is_quiet_without_it() {
    let mut bench = Bench::new(CDS, 50);
    set_without_room(&mut bench, 0..50, 100..200);
    let (kind, of, completeness) = (bench.kind.clone(), Selector::Wildcard, Completeness::Settled);
    bench.apply(vec![Update::Interrupted { kind: kind.clone(), of: of.clone() }]);
    bench.apply(vec![Update::Progress { kind, of, completeness }]);
    bench.remove(0..30);
    assert_eq!((bench.count(), bench.held()), (50, 30));
}

#[test]
fn an_empty_push_is_held_for_the_longer_time() {
    let mut bench = Bench::new(CDS, 3);
    bench.set([]);
    assert_eq!((bench.count(), bench.held()), (3, 3));
    bench.pass(EMPTY_GRACE - 1);
    assert_eq!(bench.count(), 3);
    bench.pass(1);
    assert_eq!((bench.count(), bench.held()), (0, 0));
    assert_eq!(bench.releases(), [(ReleaseReason::EmptyGrace, 3)]);
}

#[test]
fn half_a_push_is_held_for_the_grace() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50));
    bench.pass(GRACE - 1);
    assert_eq!(bench.count(), 100);
    bench.pass(1);
    assert_eq!((bench.count(), bench.held()), (50, 0));
    assert_eq!(bench.releases(), [(ReleaseReason::Grace, 50)]);
}

#[test]
fn ordinary_removals_pass() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(30..100);
    assert_eq!((bench.count(), bench.held()), (70, 0));
    let mut few = Bench::new(CDS, 12);
    few.set(0..3);
    assert_eq!(few.count(), 3, "most of it, but fewer than the count");
}

#[test]
fn a_drip_counts_like_one_response() {
    let mut bench = Bench::new(CDS, 100);
    for number in 0..60 {
        bench.remove([number]);
        bench.pass(1);
    }
    assert_eq!((bench.count(), bench.held()), (70, 30));
}

#[test]
fn a_drip_does_not_delay_what_is_held_longer() {
    let mut bench = Bench::new(CDS, 400);
    bench.remove(0..130);
    for number in 130..170 {
        bench.pass(GRACE / 10);
        bench.remove([number]);
    }
    assert_eq!(bench.held(), 10, "each has its own time, and the last ten are younger than the grace");
    bench.pass(GRACE);
    assert_eq!((bench.count(), bench.held()), (230, 0));
}

#[test]
fn what_left_before_the_window_does_not_count() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove(0..30);
    bench.pass(620);
    bench.remove(30..50);
    assert_eq!((bench.count(), bench.held()), (50, 0), "20 of 70");
}

#[test]
fn what_comes_back_counts_back() {
    let mut bench = Bench::new(CDS, 100);
    for number in 0..20 {
        bench.remove([number]);
        bench.send(number, "");
    }
    bench.remove(0..30);
    assert_eq!((bench.count(), bench.held()), (70, 0));
}

#[test]
fn as_many_others_are_no_loss() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(100..200);
    assert_eq!((bench.present(), bench.held()), ((100..200).collect(), 0));
}

#[test]
fn as_many_others_in_one_delta_response_engage_no_brake() {
    let mut bench = Bench::new(CDS, 100);
    let (kind, class) = (bench.kind.clone(), Class::Wildcard);
    let mut updates = Vec::new();
    for number in 100..150 {
        let resource = bench.resource(number, "");
        updates.push(Update::Upsert { kind: kind.clone(), class, key: resource.name.clone(), resource });
    }
    for number in 0..50 {
        let key = format!("r{number}").as_str().into();
        updates.push(Update::Absent { kind: kind.clone(), class, key, evidence: Evidence::Reported });
    }
    bench.apply(updates);
    assert_eq!((bench.present(), bench.held()), ((50..150).collect(), 0));
    assert!(bench.releases().is_empty(), "operators read of no hold");
}

#[test]
fn removals_before_as_many_additions_are_let_go_with_them() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove(0..100);
    assert_eq!(bench.held(), 100);
    (100..171).for_each(|number| bench.send(number, ""));
    assert_eq!((bench.present(), bench.held()), ((100..171).collect(), 0), "the 70th makes it an ordinary loss");
    assert_eq!(bench.releases(), [(ReleaseReason::Recovered, 100)]);
}

#[test]
fn what_the_server_takes_back_is_cancelled() {
    let mut bench = Bench::new(CDS, 100);
    bench.set([]);
    bench.pass(10);
    bench.set(0..100);
    assert_eq!((bench.count(), bench.held()), (100, 0));
    assert_eq!(bench.releases(), [(ReleaseReason::Recovered, 100)]);
    bench.pass(2 * EMPTY_GRACE);
    assert_eq!(bench.count(), 100);
}

#[test]
fn additions_and_changes_pass() {
    let mut bench = Bench::new(CDS, 100);
    bench.set((0..40).chain([1000]));
    bench.send(1, "changed");
    assert_eq!((bench.count(), bench.held()), (101, 60));
    assert_eq!(bench.content(1).unwrap(), b"changed");
}

#[test]
fn a_set_that_becomes_empty_by_a_drip_is_held() {
    let mut bench = Bench::new(CDS, 3);
    (0..3).for_each(|number| bench.remove([number]));
    assert_eq!((bench.present(), bench.held()), ([2].into(), 1));
    bench.pass(EMPTY_GRACE);
    assert_eq!(bench.count(), 0);
}

#[test]
fn what_was_taken_back_does_not_lower_what_a_loss_is_measured_against() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..10);
    bench.pass(20);
    bench.set(0..100);
    bench.pass(595);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50));
}

#[test]
fn all_of_a_set_that_was_empty_a_moment_ago_is_held() {
    let mut bench = Bench::new(CDS, 0);
    bench.set(0..20);
    bench.pass(40);
    bench.set([]);
    assert_eq!((bench.count(), bench.held()), (20, 20));
}

#[test]
fn one_resource_does_not_shorten_the_time_of_an_empty_set() {
    let mut bench = Bench::new(CDS, 100);
    bench.set([]);
    bench.pass(GRACE + 1);
    bench.set([0]);
    assert_eq!((bench.count(), bench.held()), (100, 99), "a server that begins to fill its set");
    bench.pass(EMPTY_GRACE - GRACE);
    assert_eq!(bench.count(), 1);
}

#[test]
fn what_expires_is_neither_held_nor_counted() {
    let mut bench = Bench::new(CDS, 100);
    let names: Vec<_> = bench.view.tables().wildcard_names(&bench.kind).take(60).cloned().collect();
    let refresh = |key: &crate::xds::Name| Update::Refresh {
        kind: bench.kind.clone(),
        class: Class::Wildcard,
        key: key.clone(),
        ttl: Some(Duration::from_secs(5)),
    };
    let updates = names.iter().map(refresh).collect();
    bench.apply(updates);
    bench.pass(6);
    assert_eq!((bench.count(), bench.held()), (40, 0));
    let rest: Vec<_> = bench.present().into_iter().collect();
    bench.remove(rest[..12].iter().copied());
    assert_eq!((bench.count(), bench.held()), (28, 0), "12 of 40 are ordinary");
}

#[test]
fn what_expires_after_a_removal_is_not_counted_with_it() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove([0]);
    let mut updates = Vec::new();
    for number in 1..61 {
        let (kind, key) = (bench.kind.clone(), format!("r{number}").as_str().into());
        updates.push(Update::Refresh { kind, class: Class::Wildcard, key, ttl: Some(Duration::from_secs(5)) });
    }
    bench.apply(updates);
    bench.pass(6);
    assert_eq!((bench.count(), bench.held()), (39, 0));
    bench.remove(61..72);
    assert_eq!((bench.count(), bench.held()), (28, 0), "12 of 40 are ordinary, and 72 of 100 would not be");
}

#[test]
fn an_operator_lets_go_what_was_seen_and_nothing_later() {
    let mut bench = Bench::new(CDS, 100);
    bench.remove(0..50);
    let seen = bench.generation();
    bench.remove(50..80);
    assert_eq!(bench.held(), 80);
    assert_eq!(bench.view.release_brakes(None, None, seen - 1, bench.now), Err(NotReleased::Later));
    assert_eq!(bench.view.release_brakes(None, None, seen, bench.now), Ok(50));
    assert_eq!((bench.count(), bench.held()), (50, 30));
    assert_eq!(bench.view.release_brakes(None, None, seen, bench.now), Err(NotReleased::Later));
    let later = bench.generation();
    assert_eq!(
        bench.view.release_brakes(None, Some(7), later, bench.now),
        Err(NotReleased::NothingHeld),
        "another server"
    );
    assert_eq!(bench.view.release_brakes(None, None, later, bench.now), Ok(30));
    assert_eq!(bench.view.release_brakes(None, None, later, bench.now), Err(NotReleased::NothingHeld));
}

#[test]
fn an_operator_lets_an_empty_set_go() {
    let mut bench = Bench::new(CDS, 100);
    bench.set([]);
    let (kind, generation) = (bench.kind.clone(), bench.generation());
    let of = Some((&kind, &Selector::Wildcard));
    assert_eq!(bench.view.release_brakes(of, Some(0), generation, bench.now), Ok(100));
    assert_eq!((bench.count(), bench.held()), (0, 0));
}

#[test]
fn after_a_release_the_window_starts_over() {
    let mut bench = Bench::new(CDS, 120);
    bench.set(0..100);
    assert_eq!((bench.count(), bench.held()), (100, 0), "20 of 120, within the window of what follows");
    bench.set(0..50);
    assert_eq!(bench.held(), 50);
    bench.pass(GRACE);
    bench.set(0..36);
    assert_eq!((bench.count(), bench.held()), (36, 0), "14 of 50");
    bench.set(0..25);
    assert_eq!((bench.count(), bench.held()), (36, 11), "25 of 50");
}

#[test]
fn files_and_views_within_the_process_have_no_brakes() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    bench.origin.skips_brakes = true;
    bench.set(0..20);
    assert_eq!((bench.count(), bench.held()), (20, 0), "what another server removed too");
}

#[test]
fn a_forgotten_set_has_no_brake() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    let end = InterestChange { kind: bench.kind.clone(), selector: Selector::Wildcard, on: false };
    bench.view.change_interest(SessionId(1), end, bench.now);
    bench.pass(3600);
    assert_eq!((bench.count(), bench.held()), (0, 0));
}

#[test]
fn what_a_brake_holds_is_no_evidence_of_presence() {
    let mut bench = Bench::new(CDS, 100);
    bench.set(0..50);
    let here = |bench: &Bench| bench.view.holds().here(&bench.kind, Class::Wildcard).count();
    assert_eq!(here(&bench), 50);
    bench.interrupt();
    assert_eq!(here(&bench), 100, "the server is asked for it again on another opening");
}

#[test]
fn once_a_set_is_not_empty_any_more_what_is_removed_later_is_held_for_the_shorter_time() {
    let mut bench = Bench::new(CDS, 100);
    bench.set([]);
    bench.pass(10);
    bench.set(0..50);
    assert_eq!((bench.count(), bench.held()), (100, 50), "half of it is back");
    bench.pass(10);
    bench.remove(0..10);
    bench.pass(GRACE - 1);
    assert_eq!((bench.count(), bench.held()), (100, 60));
    bench.pass(1);
    assert_eq!((bench.count(), bench.held()), (90, 50), "the others would have left nothing");
    bench.pass(EMPTY_GRACE - GRACE - 20);
    assert_eq!((bench.count(), bench.held()), (40, 0));
}

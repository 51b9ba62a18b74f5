//! Which types are suspected when the server ends the stream, and how the one is found that it ends the stream for.

use super::*;

#[test]
fn a_type_of_the_table_is_suspected_when_the_stream_ends_and_others_are_not() {
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    assert_eq!(world.request().len(), 2);
    world.end(UNKNOWN);
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    world.refuse(ROUTES);
}

#[test]
fn a_connection_that_is_lost_or_a_server_that_goes_suspects_nothing() {
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    for code in [0, 1, 4, 8, 10, UNAVAILABLE] {
        world.request();
        world.end(code);
        assert_eq!(world.request().len(), 2, "{code}");
    }
    world.pass(PROOF);
    world.end(UNKNOWN);
    assert_eq!(world.request().len(), 2, "it has lasted");
}

#[test]
fn of_several_suspects_those_that_the_server_takes_join_together_or_one_after_another() {
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    world.want(LISTENERS);
    assert_eq!(world.request().len(), 3);
    world.end(UNKNOWN);
    world.request();
    world.answer(CLUSTERS);
    assert_eq!(world.due().len(), 2);
    world.tried(TrialEnd::EndedForAny);
    let first = world.due();
    assert_eq!(first.len(), 1, "by itself");
    world.tried(answered());
    let second = world.due();
    assert!(second.len() == 1 && second != first);
    world.tried(refused());
    assert_eq!(world.request().len(), 2);
}

/// One bad moment of a server costs no client a type: all types are requested again.
#[test]
fn a_first_opening_that_ends_once_is_followed_by_one_with_all_types() {
    for code in [UNKNOWN, UNAUTHENTICATED] {
        let mut world = World::new(&[CLUSTERS, ROUTES, LISTENERS]);
        world.request();
        world.end(code);
        assert_eq!(world.request().len(), 3);
        world.answer(LISTENERS);
        world.pass(PROOF);
        world.end(code);
        assert_eq!(world.request().len(), 3, "{code}");
    }
}

/// The third opening shows that the server takes the view. Trials on it show which type the server refuses.
#[test]
fn of_types_that_are_all_new_on_two_openings_the_third_one_finds_the_refused_one() {
    let mut world = World::new(&[CLUSTERS, ROUTES, LISTENERS]);
    for _ in 0..2 {
        assert_eq!(world.request().len(), 3);
        world.end(UNKNOWN);
    }
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    assert_eq!(world.due().len(), 2);
    world.tried(TrialEnd::EndedForAny);
    let first = world.due();
    world.tried(if first == [ROUTES] { refused() } else { answered() });
    let second = world.due();
    world.tried(if second == [ROUTES] { refused() } else { answered() });
    assert!(world.is_refused(ROUTES) && !world.is_refused(LISTENERS));
    assert_eq!(world.request(), [CLUSTERS, LISTENERS]);
}

/// The view may be the reason, so all types are requested together now and then. One type may be, so each is requested alone.
#[test]
fn a_server_that_ends_each_stream_is_asked_for_all_and_for_each_type_in_turn() {
    let all = [CLUSTERS, ROUTES, LISTENERS];
    let mut world = World::new(&all);
    let mut counts = Vec::new();
    for _ in 0..9 {
        let on = world.request().len();
        counts.push(on);
        world.end(UNKNOWN);
        world.pass(SOON);
    }
    assert_eq!(counts, [3, 3, 1, 1, 1, 3, 1, 1, 1]);
    world.request();
    world.end(UNKNOWN);
    let alone = world.request().first().map(|name| (*name).to_owned()).unwrap();
    world.answer(&alone);
    assert_eq!(world.due().len(), 2, "the others are tried as soon as one is taken");
    world.tried(answered());
    assert_eq!(world.request().len(), 3);
    assert!(!all.iter().any(|name| world.is_refused(name)));
}

#[test]
fn what_other_views_were_given_joins_at_once_and_is_no_suspect() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    let known = Arc::new(BTreeSet::from([world.kind(OWN), world.kind(ROUTES), world.kind(CLUSTERS)]));
    world.trials.on_answered_in_others(&known);
    assert_eq!(world.request(), [CLUSTERS, OWN]);
    world.want(ROUTES);
    world.request();
    world.end(UNKNOWN);
    assert_eq!(world.request().len(), 3);
}

#[test]
fn a_type_that_only_this_view_is_refused_is_found_although_others_are_given_it() {
    let mut world = World::new(&[CLUSTERS, ROUTES]);
    let known = Arc::new(BTreeSet::from([world.kind(CLUSTERS), world.kind(ROUTES)]));
    world.trials.on_answered_in_others(&known);
    for _ in 0..4 {
        assert_eq!(world.request().len(), 2);
        world.answer(CLUSTERS);
        world.pass(SOON);
        world.end(UNKNOWN);
    }
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    world.refuse(ROUTES);
}

#[test]
fn after_a_bad_time_of_the_server_what_it_is_known_to_take_comes_back_at_once() {
    let mut world = World::new(&[CLUSTERS, ROUTES, LISTENERS]);
    world.request();
    for name in [CLUSTERS, ROUTES, LISTENERS] {
        world.answer(name);
    }
    for _ in 0..6 {
        world.request();
        world.end(UNKNOWN);
        world.pass(SOON);
    }
    let alone: Vec<_> = world.request().into_iter().map(str::to_owned).collect();
    assert_eq!(alone.len(), 1);
    world.answer(&alone[0]);
    assert_eq!(world.request().len(), 3);
}

#[test]
fn an_end_that_a_type_or_a_trial_explains_shows_nothing_of_the_view() {
    const DENIED: i32 = 7;
    let may_be_type = |world: &mut World, code| {
        let may_be = world.trials.on_ended(Some(&status(code)), world.now);
        world.trials.on_closed();
        world.opened.clear();
        world.request();
        may_be
    };
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    world.request();
    assert!(may_be_type(&mut world, DENIED), "routes are new");
    assert!(!may_be_type(&mut world, DENIED), "it ends without them");

    let mut world = World::new(&[CLUSTERS, ROUTES]);
    world.request();
    assert!(!may_be_type(&mut world, DENIED), "nothing was taken yet");
    assert!(!may_be_type(&mut world, 14), "the server is away");
    assert!(!may_be_type(&mut world, DENIED), "all were requested once more");
    assert!(may_be_type(&mut world, DENIED), "each has its turn");
    assert!(may_be_type(&mut world, DENIED), "the other one, too");
    assert!(!may_be_type(&mut world, DENIED), "each has had it");

    let mut world = World::live(&[CLUSTERS, OWN]);
    let own = world.kind(OWN);
    let serial = world.trials.begin(vec![own], world.now);
    world.trials.on_begun(serial, world.now);
    assert!(may_be_type(&mut world, DENIED), "it may have been ended for the second stream");
    assert!(!world.trials.on_ended(None, world.now), "it was lost");
}

#[test]
fn it_may_be_the_view_whenever_no_type_that_may_be_why_was_off_however_many_there_are_by_then() {
    const DENIED: i32 = 7;
    let mut world = World::new(&[CLUSTERS, ROUTES]);
    world.want(OWN);
    let mut seen = BTreeSet::new();
    for opening in 0..12 {
        match opening {
            4 | 10 => world.want(LISTENERS),
            7 => {
                let listeners = world.kind(LISTENERS);
                world.wanted.remove(&listeners);
                world.pass(SOON);
            }
            _ => {}
        }
        let on: Vec<_> = world.request().into_iter().map(str::to_owned).collect();
        let of_table = world.wanted.iter().filter(|kind| kind.name() != OWN);
        let are_all_on = of_table.clone().all(|kind| on.iter().any(|name| name == kind.name()));
        let may_be_type = world.trials.on_ended(Some(&status(DENIED)), world.now);
        assert_eq!(may_be_type, !are_all_on, "opening {opening} with {on:?} of {}", of_table.count());
        seen.insert((are_all_on, on.len()));
        world.trials.on_closed();
        world.opened.clear();
    }
    assert!(seen.len() > 2, "{seen:?}");
}

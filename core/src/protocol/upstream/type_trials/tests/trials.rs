//! Trials: which types are tried, when, and what their ends show.

use super::*;

#[test]
fn a_type_outside_of_the_table_is_tried_before_it_joins_others() {
    let mut world = World::new(&[CLUSTERS, OWN]);
    assert_eq!(world.request(), [CLUSTERS]);
    assert!(world.due().is_empty(), "nothing shows that the server takes anything");
    world.answer(CLUSTERS);
    assert_eq!(world.due(), [OWN]);
    assert!(world.due().is_empty(), "one at a time");
    world.tried(answered());
    assert_eq!(world.request(), [CLUSTERS, OWN]);
    assert_eq!(world.trials.take_unshared(), [world.kind(CLUSTERS), world.kind(OWN)]);
}

#[test]
fn a_stream_that_has_nothing_else_takes_it_and_a_silent_stream_is_as_good_as_one_that_answers() {
    let mut world = World::new(&[OWN]);
    assert_eq!(world.request(), [OWN]);
    world.want("own.Other");
    assert_eq!(world.request(), [OWN], "now there is something else");
    world.pass(PROOF);
    assert_eq!(world.due(), ["own.Other"]);
}

#[test]
fn a_type_is_refused_if_its_own_stream_was_ended_by_the_server_and_a_second_stream_is_taken() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    world.refuse(OWN);
    assert_eq!(world.request(), [CLUSTERS]);
    assert!(world.due().is_empty());
    for pause in [30, 60, 120, 240, 480, 600, 600] {
        world.pass(Duration::from_secs(pause) - SOON);
        assert!(world.due().is_empty(), "{pause}");
        world.pass(SOON);
        world.refuse(OWN);
    }
    world.pass(LONGEST_PAUSE);
    assert_eq!(world.due(), [OWN]);
    world.tried(answered());
    assert_eq!(world.request(), [CLUSTERS, OWN], "the server has learned it");
}

#[test]
fn a_state_of_the_server_or_of_the_way_to_it_refuses_nothing() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    for _ in 0..FAILURES {
        assert_eq!(world.due(), [OWN]);
        world.tried(TrialEnd::Lost);
        assert!(world.due().is_empty(), "after a pause");
        world.pass(SHORT_PAUSE);
    }
    assert!(world.due().is_empty() && !world.is_refused(OWN));
    assert_eq!(world.request(), [CLUSTERS, OWN], "where nothing can be shown apart, it is tried on the stream");
}

#[test]
fn the_end_of_a_stream_is_no_word_on_a_trial_that_waits_for_its_turn() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    let kinds = world.trials.due(world.now).unwrap();
    world.trials.begin(kinds, world.now);
    world.want(ROUTES);
    world.request();
    world.end(UNKNOWN);
    assert_eq!(world.request(), [CLUSTERS], "the routes are suspected");
}

/// A trial is given up when other views have made it needless. Its result may still be on its way.
#[test]
fn the_end_of_a_trial_that_was_given_up_counts_for_no_other() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    assert_eq!(world.due(), [OWN]);
    world.want("own.Other");
    world.request();
    let known = Arc::new(BTreeSet::from([world.kind(OWN)]));
    world.trials.on_answered_in_others(&known);
    assert!(!world.trials.is_trying());
    assert_eq!(world.due(), ["own.Other"]);
    world.trials.on_trial_end(world.trials.count - 1, refused(), world.now);
    assert!(world.trials.is_trying() && !world.is_refused("own.Other"));
    assert_eq!(world.request(), [CLUSTERS, OWN]);
}

#[test]
fn who_has_waited_for_longest_is_tried_first_whatever_others_make_up() {
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    world.request();
    world.end(UNKNOWN);
    world.pass(SOON);
    for at in 0..100 {
        world.want(&format!("own.Type{at}"));
    }
    world.request();
    world.answer(CLUSTERS);
    assert_eq!(world.due(), [ROUTES]);
}

#[test]
fn silence_of_a_server_that_hangs_vouches_for_a_type_once_and_tells_other_views_nothing() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    world.due();
    world.tried(TrialEnd::Taken(BTreeSet::new()));
    assert_eq!(world.request().len(), 2);
    assert_eq!(world.trials.take_unshared(), [world.kind(CLUSTERS)]);
    world.pass(PROOF * 2);
    world.end(UNKNOWN);
    assert_eq!(world.request().len(), 2, "it was there for long enough");
    world.end(UNKNOWN);
    assert_eq!(world.request(), [CLUSTERS], "the server goes on");
}

#[test]
fn a_refused_type_that_nobody_wants_is_remembered_and_not_tried() {
    let mut world = World::live(&[CLUSTERS]);
    world.suspect_routes();
    world.refuse(ROUTES);
    let routes = world.kind(ROUTES);
    world.wanted.remove(&routes);
    world.pass(Duration::from_secs(300));
    assert!(world.due().is_empty() && world.trials.next_deadline(world.now).is_none());
    world.want(ROUTES);
    assert_eq!(world.request(), [CLUSTERS], "it never ends the stream of others again");
    world.pass(SOON);
    assert_eq!(world.due(), [ROUTES]);
}

#[test]
fn every_wait_of_a_trial_has_a_deadline() {
    let mut world = World::new(&[CLUSTERS, OWN]);
    world.request();
    assert_eq!(world.trials.next_deadline(world.now), Some(world.now + PROOF));
    world.answer(CLUSTERS);
    assert_eq!(world.trials.next_deadline(world.now), None, "now");
    world.refuse(OWN);
    assert_eq!(world.trials.next_deadline(world.now), Some(world.now + Duration::from_secs(30)));
    world.wanted.clear();
    world.pass(Duration::from_secs(31));
    assert_eq!(world.trials.next_deadline(world.now), None);
}

#[test]
fn a_type_that_has_lasted_counts_as_taken_no_more_once_it_is_suspected() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    let is_taken = |world: &World| world.trials.taken.has_here(&world.kind(OWN));
    assert_eq!(world.due(), [OWN]);
    world.tried(TrialEnd::Taken(BTreeSet::new()));
    assert_eq!(world.request(), [CLUSTERS, OWN]);
    assert!(is_taken(&world));
    world.end(UNKNOWN);
    assert!(!is_taken(&world), "it has not answered, and the stream has ended soon after its request");
    assert_eq!(world.request(), [CLUSTERS]);
}

//! Servers that take no second stream of a node: types are put back on the stream of the view.

use super::*;

#[test]
fn a_server_that_ends_the_stream_for_a_second_one_has_types_put_back_one_by_one() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    assert_eq!(world.due(), [OWN]);
    world.pass(SOON);
    world.end(UNKNOWN);
    world.request();
    world.answer(CLUSTERS);
    assert!(world.due().is_empty(), "no second stream");
    world.pass(SOON);
    assert_eq!(world.request(), [CLUSTERS, OWN], "the one of which it is not known");
    world.end(UNKNOWN);
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    world.pass(SOON);
    assert!(world.is_refused(OWN), "the stream works without it");
    world.pass(Duration::from_secs(31));
    assert_eq!(world.request(), [CLUSTERS], "and is not ended for it");
    world.end(UNAVAILABLE);
    assert_eq!(world.request(), [CLUSTERS, OWN], "but tried when it is opened anyway");
    world.pass(PROOF);
    assert!(!world.is_refused(OWN));
}

/// The server ends each second stream of a node, and has one bad moment while two types are new.
#[test]
fn a_type_is_not_refused_since_it_was_suspected_with_another_where_second_streams_show_nothing() {
    let mut world = World::live(&[CLUSTERS]);
    world.want(ROUTES);
    world.want(LISTENERS);
    assert_eq!(world.request().len(), 3);
    world.end(UNKNOWN);
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    assert_eq!(world.due().len(), 2);
    world.tried(TrialEnd::EndedForAny);
    while world.trials.one_stream_until.is_none() {
        assert_eq!(world.due().len(), 1, "by itself");
        world.tried(TrialEnd::Lost);
        world.pass(SHORT_PAUSE);
    }
    for on in [2, 3] {
        world.pass(SHORT_PAUSE);
        assert!(!world.is_refused(ROUTES) && !world.is_refused(LISTENERS), "neither was shown to be why");
        assert_eq!(world.request().len(), on, "one is put back after the other");
        world.answer(ROUTES);
        world.answer(LISTENERS);
    }
}

/// The type is tried because the stream is opened anyway. An end that shows nothing is no reason to try it at each opening.
#[test]
fn a_refused_type_that_was_put_back_waits_again_whatever_the_end() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    world.refuse(OWN);
    world.trials.use_one_stream(world.now);
    world.pass(Duration::from_secs(30));
    let mut on = 0;
    for _ in 0..10 {
        world.end(UNAVAILABLE);
        on += usize::from(world.request().len() == 2);
        world.pass(SOON);
    }
    assert_eq!(on, 1);
}

#[test]
fn a_server_that_ends_the_first_stream_for_the_second_is_found_by_any_end() {
    for code in [None, Some(0), Some(UNAVAILABLE)] {
        let mut world = World::new(&[CLUSTERS, OWN]);
        for _ in 0..FAILURES {
            world.request();
            world.answer(CLUSTERS);
            world.pass(SHORT_PAUSE);
            assert_eq!(world.due(), [OWN], "{code:?}");
            let code = code.map(status);
            world.trials.on_ended(code.as_ref(), world.now);
            world.trials.on_closed();
            world.opened.clear();
        }
        world.request();
        world.answer(CLUSTERS);
        world.pass(SHORT_PAUSE);
        assert!(world.due().is_empty());
        assert_eq!(world.request(), [CLUSTERS, OWN], "{code:?}");
    }
}

#[test]
fn where_types_are_put_back_one_that_shows_nothing_has_pauses_that_grow() {
    let mut world = World::live(&[CLUSTERS, OWN]);
    world.due();
    world.end(UNKNOWN);
    let mut on = 0;
    for _ in 0..240 {
        let types = world.request().len();
        world.answer(CLUSTERS);
        if types == 2 {
            on += 1;
            world.end(UNAVAILABLE);
        }
        world.pass(Duration::from_secs(1));
    }
    assert!((2..=4).contains(&on), "{on}");
}

/// If the server takes no second stream, each of them would end an opening of all types.
#[test]
fn many_refused_types_are_put_back_by_a_common_pace() {
    let mut world = World::live(&[CLUSTERS]);
    (0..16).for_each(|at| world.want(&made_up(at)));
    world.request();
    for _ in 0..120 {
        match world.due().len() {
            0 => world.pass(Duration::from_secs(1)),
            1 => world.tried(refused()),
            _ => world.tried(TrialEnd::EndedForAny),
        }
    }
    assert!((0..16).all(|at| world.is_refused(&made_up(at))));
    world.trials.use_one_stream(world.now);
    world.pass(Duration::from_secs(400));
    let mut ended = 0;
    for _ in 0..60 {
        if world.request().len() > 1 {
            ended += 1;
            world.end(UNKNOWN);
        } else {
            world.answer(CLUSTERS);
            world.end(UNAVAILABLE);
        }
        world.pass(Duration::from_secs(1));
    }
    assert!((1..=3).contains(&ended), "{ended}");
}

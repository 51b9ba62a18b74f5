//! Types that clients make up, beside those of the table.

use super::*;

/// The server may refuse the first type, and then the stream would have nothing else.
#[test]
fn of_types_outside_of_the_table_alone_each_has_its_turn() {
    let mut world = World::new(&["own.A", "own.B"]);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let on: Vec<_> = world.request().into_iter().map(str::to_owned).collect();
        assert_eq!(on.len(), 1);
        seen.extend(on);
        world.end(UNKNOWN);
        world.pass(SOON);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn i10_clients_that_make_up_types_cost_eight_trials_in_30_s_and_little_memory() {
    let mut world = World::live(&[CLUSTERS]);
    let mut trials = 0;
    for second in 0..60 {
        for at in 0..40 {
            world.want(&format!("own.Type{second}.{at}"));
        }
        world.request();
        for _ in 0..100 {
            match &world.due()[..] {
                [] => break,
                kinds => {
                    trials += 1;
                    world.tried(if kinds.len() == 1 { refused() } else { TrialEnd::EndedForAny });
                }
            }
        }
        let clusters = world.kind(CLUSTERS);
        world.wanted.retain(|kind| *kind == clusters);
        world.pass(Duration::from_secs(1));
    }
    assert!(trials <= 24 && trials > 8, "{trials}");
    assert!(world.trials.apart.len() <= REMEMBERED && !world.trials.taken.has_here(&world.kind("own.Type0.0")));
}

/// A hundred such types are wanted, and the server ends each opening.
#[test]
fn types_that_are_made_up_take_no_turns_from_those_of_the_table() {
    const OF_TABLE: [&str; 3] = [CLUSTERS, ROUTES, LISTENERS];
    let mut world = World::new(&OF_TABLE);
    (0..100).for_each(|at| world.want(&made_up(at)));
    let (mut without, mut since_all) = (0, 0);
    for opening in 0..40 {
        world.want(&made_up(100 + opening));
        let on = owned(world.request());
        let of_table = OF_TABLE.iter().filter(|name| on.iter().any(|other| other == *name)).count();
        assert!(on.len() == of_table || on.len() == 1, "{on:?}");
        without += usize::from(of_table == 0);
        since_all = if of_table == OF_TABLE.len() { 0 } else { since_all + 1 };
        assert!(since_all <= OF_TABLE.len() + 1, "opening {opening}");
        world.end(UNKNOWN);
        world.pass(SOON);
    }
    assert!((1..=5).contains(&without), "{without}");
}

#[test]
fn once_the_server_takes_something_types_of_the_table_are_tried_before_those_that_are_made_up() {
    let mut world = World::new(&[CLUSTERS, ROUTES, LISTENERS]);
    (0..100).for_each(|at| world.want(&made_up(at)));
    for _ in 0..2 {
        assert_eq!(world.request().len(), 3);
        world.end(UNKNOWN);
        world.pass(SOON);
    }
    assert_eq!(world.request(), [CLUSTERS]);
    world.answer(CLUSTERS);
    assert_eq!(world.due().len(), 2, "the others of the table, and nothing with them");
    world.tried(TrialEnd::EndedForAny);
    for _ in 0..2 {
        let one = world.due();
        assert!(one == [ROUTES] || one == [LISTENERS], "{one:?}");
        world.tried(answered());
    }
    assert_eq!(world.request().len(), 3);
    assert_eq!(world.due().len(), TOGETHER, "now those that are made up");
}

/// The made-up types have used up their pace.
#[test]
fn a_type_of_the_table_waits_for_no_pace_of_those_that_are_made_up() {
    let mut world = World::live(&[CLUSTERS]);
    (0..40).for_each(|at| world.want(&made_up(at)));
    world.request();
    while !world.due().is_empty() {
        world.tried(TrialEnd::EndedForAny);
    }
    world.suspect_routes();
    world.refuse(ROUTES);
    assert!(world.due().is_empty());
}

#[test]
fn a_server_that_takes_nothing_of_the_table_is_asked_for_other_types_in_the_end() {
    const GOOD: &str = "own.Good";
    let mut world = World::new(&[CLUSTERS, ROUTES, GOOD]);
    let mut openings = 0;
    while world.request() != [GOOD] {
        world.end(UNKNOWN);
        openings += 1;
        assert!(openings < 12);
        world.want(&made_up(openings));
        world.pass(SOON);
    }
    world.answer(GOOD);
    assert_eq!(world.due().len(), 2, "those of the table");
    world.tried(TrialEnd::EndedForAny);
    for _ in 0..2 {
        assert_eq!(world.due().len(), 1);
        world.tried(refused());
    }
    assert!(world.is_refused(CLUSTERS) && world.is_refused(ROUTES));
    assert_eq!(world.request(), [GOOD]);
}

#[test]
fn an_opening_for_a_type_outside_of_the_table_is_followed_by_one_for_the_table_however_it_ends() {
    for code in [None, Some(UNAVAILABLE), Some(UNKNOWN)] {
        let mut world = World::new(&[CLUSTERS, ROUTES, OWN]);
        let mut openings = 0;
        while world.request() != [OWN] {
            world.end(UNKNOWN);
            openings += 1;
            assert!(openings < 12);
            world.pass(SOON);
        }
        match code {
            Some(code) => world.end(code),
            None => {
                world.trials.on_closed();
                world.opened.clear();
            }
        }
        let on = owned(world.request());
        assert!(on.iter().any(|name| name == CLUSTERS) && !on.iter().any(|name| name == OWN), "{code:?}: {on:?}");
        assert!(on.len() == 2 || code == Some(UNKNOWN), "{code:?}: {on:?}");
    }
}

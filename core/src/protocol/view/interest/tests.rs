use std::time::Duration;

use super::*;
use crate::protocol::view::lingering::VOID;
use crate::xds::TypeTable;

const ONE: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
const NAMES: usize = 1000;
/// With four sessions or more, an equal share of an eighth of it is no more than each may have in any case.
const LIST: usize = 256 << 10;

/// One type of a view, with a limit for its names, or for the bytes of a list of them.
struct World {
    interest: Interest,
    kind: Type,
    now: Moment,
}

impl World {
    fn with_names() -> Self {
        let options = ViewOptions { names_per_view: NAMES, ..ViewOptions::default() };
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        Self { interest: Interest::new(Arc::new(options)), kind, now: Moment::START }
    }

    fn with_list() -> Self {
        let mut world = Self { interest: Interest::new(Arc::default()), ..Self::with_names() };
        world.interest.set_list_limit(Some(LIST));
        world
    }

    fn subscribe(&mut self, session: SessionId, name: &str) -> Result<(), NoRoom> {
        self.interest.subscribe(session, &self.kind, &Selector::Name(name.into()))
    }

    fn prefetch(&mut self, name: &Name) {
        let until = self.now + self.interest.options.linger;
        self.interest.expect(&self.kind, &Selector::Name(name.clone()), until);
    }

    fn unsubscribe(&mut self, session: SessionId, name: &str) {
        self.interest.unsubscribe(
            session,
            &self.kind,
            &Selector::Name(name.into()),
            SubscriptionEnd::BY_REQUEST,
            self.now,
        );
    }

    /// Subscribes to `count` new names, or to as many as there is room for. Returns their number.
    fn fill(&mut self, session: SessionId, prefix: &str, count: usize) -> usize {
        (0..count).take_while(|number| self.subscribe(session, &name(prefix, *number)).is_ok()).count()
    }

    /// Ends what `fill` began, and with it the session.
    fn leave(&mut self, session: SessionId, prefix: &str, count: usize) {
        (0..count).for_each(|number| self.unsubscribe(session, &name(prefix, number)));
        self.interest.on_left(session);
    }

    /// Returns how many names have ended.
    fn later(&mut self) -> usize {
        self.now = self.now + self.interest.options.linger;
        let mut count = 0;
        while self.interest.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            let ended = self.interest.expire(self.now).len();
            assert!((1..=ENDS_AT_ONCE).contains(&ended), "{ended} at a time");
            count += ended;
        }
        count
    }
}

fn name(prefix: &str, number: usize) -> String {
    format!("{prefix}-{number:06}")
}

#[test]
fn sessions_that_left_take_no_part_in_the_shares() {
    for world in [World::with_names, World::with_list] {
        let shares = |ghosts: u64| {
            let mut world = world();
            for ghost in 0..ghosts {
                let session = SessionId(100 + ghost);
                world.subscribe(session, "shared").unwrap();
                world.unsubscribe(session, "shared");
                world.interest.on_left(session);
            }
            world.later();
            [ONE, OTHER].map(|session| world.fill(session, &session.0.to_string(), usize::MAX))
        };
        assert_eq!(shares(50), shares(0));
    }
}

#[test]
fn a_session_that_gave_names_back_has_its_whole_share_again() {
    for world in [World::with_names, World::with_list] {
        let shares = |is_given_back: bool| {
            let mut world = world();
            if is_given_back {
                let count = world.fill(OTHER, "before", 300);
                (0..count).for_each(|number| world.unsubscribe(OTHER, &name("before", number)));
                world.later();
            }
            [ONE, OTHER].map(|session| world.fill(session, &session.0.to_string(), usize::MAX))
        };
        assert_eq!(shares(true), shares(false));
    }
}

#[test]
fn names_that_ended_make_as_much_room_as_they_took() {
    for world in [World::with_names, World::with_list] {
        let mut world = world();
        let first = world.fill(ONE, "round-0", usize::MAX);
        assert!((100..20_000).contains(&first), "{first}");
        world.leave(ONE, "round-0", first);
        assert_eq!(world.later(), first);
        for round in 1..5 {
            let prefix = format!("round-{round}");
            assert_eq!(world.fill(ONE, &prefix, usize::MAX), first);
            // Some linger and are subscribed to again.
            (0..50).for_each(|number| world.unsubscribe(ONE, &name(&prefix, number)));
            (0..50).for_each(|number| world.subscribe(ONE, &name(&prefix, number)).unwrap());
            assert_eq!(world.fill(ONE, "new", usize::MAX), 0, "there is no more room than before");
            world.leave(ONE, &prefix, first);
            assert_eq!(world.later(), first);
        }
    }
}

#[test]
fn with_a_full_cache_new_names_have_no_room_and_nothing_lingers() {
    let mut world = World::with_names();
    world.subscribe(ONE, "cached").unwrap();
    world.interest.set_full_cache(Some(7));
    assert!(matches!(world.subscribe(ONE, "new"), Err(NoRoom::InCache(7))));
    world.subscribe(OTHER, "cached").unwrap();
    world.unsubscribe(ONE, "cached");
    assert_eq!(world.interest.expire(world.now), []);
    world.unsubscribe(OTHER, "cached");
    assert_eq!(world.interest.expire(world.now).len(), 1);
    world.interest.set_full_cache(None);
    world.subscribe(ONE, "new").unwrap();
    world.unsubscribe(ONE, "new");
    assert_eq!(world.interest.expire(world.now + Duration::from_secs(1)), [], "it lingers again");
}

/// Lingering names make room for new ones until their time is over. If they did so after that too, a list would become too long.
#[test]
fn i10_names_that_have_lingered_long_enough_make_no_more_room() {
    let mut world = World::with_list();
    world.subscribe(OTHER, "kept").unwrap();
    let first = world.fill(ONE, "round-0", usize::MAX);
    world.leave(ONE, "round-0", first);
    world.later();
    for round in 1..5 {
        let prefix = format!("round-{round}");
        assert_eq!(world.fill(ONE, &prefix, usize::MAX), first);
        world.leave(ONE, &prefix, first);
        world.later();
    }
}

#[test]
fn beyond_the_limit_for_names_that_linger_the_oldest_end_and_what_is_subscribed_again_is_none_of_them() {
    let mut world = World::with_names();
    world.interest.options = Arc::new(ViewOptions { lingering: 2, ..ViewOptions::default() });
    for number in 0..4 {
        world.subscribe(ONE, &name("n", number)).unwrap();
        world.unsubscribe(ONE, &name("n", number));
        world.now = world.now + Duration::from_secs(1);
    }
    world.subscribe(ONE, &name("n", 0)).unwrap();
    let ended = world.interest.expire(world.now);
    assert_eq!(ended, [(world.kind.clone(), Selector::Name(name("n", 1).as_str().into()))]);
    assert_eq!(world.interest.expire(world.now), []);
    assert!(world.interest.has_name(&world.kind, &name("n", 0).as_str().into()));
}

#[test]
fn fb_6_a_name_that_is_requested_ahead_counts_as_waited_for_until_a_session_has_had_and_left_it() {
    let mut world = World::with_names();
    let (name, selector) = (Name::from("a"), Selector::Name("a".into()));
    world.prefetch(&name);
    assert!(world.interest.awaits(&world.kind, &selector), "a client is about to request it");
    for is_requested_ahead in [false, true] {
        world.subscribe(ONE, "a").unwrap();
        if is_requested_ahead {
            world.prefetch(&name);
        }
        assert!(world.interest.awaits(&world.kind, &selector));
        world.unsubscribe(ONE, "a");
        assert!(!world.interest.awaits(&world.kind, &selector), "it only lingers");
    }
    world.prefetch(&name);
    assert!(world.interest.awaits(&world.kind, &selector));
    assert_eq!(world.later(), 1, "at the end of its time it ends");
}

#[test]
fn when_memory_is_scarce_what_no_client_may_return_to_ends_at_once_and_in_the_end_everything_does() {
    let (here, void) = (
        SubscriptionEnd { with_stream: true, ..SubscriptionEnd::BY_REQUEST },
        SubscriptionEnd { with_stream: true, has_any: false },
    );
    for (memory, how, ends) in [
        (Scarcity::None, SubscriptionEnd::BY_REQUEST, false),
        (Scarcity::None, void, false),
        (Scarcity::Some, SubscriptionEnd::BY_REQUEST, true),
        (Scarcity::Some, void, true),
        (Scarcity::Some, here, false),
        (Scarcity::Full, here, true),
    ] {
        let mut world = World::with_names();
        world.interest.memory = memory;
        world.subscribe(ONE, "a").unwrap();
        world.interest.unsubscribe(ONE, &world.kind.clone(), &Selector::Name("a".into()), how, world.now);
        let is_due = world.interest.next_deadline().is_some_and(|due| due <= world.now);
        assert_eq!(is_due, ends, "{memory:?}, {how:?}");
        assert_eq!(world.interest.expire(world.now).len(), usize::from(ends));
    }
}

#[test]
fn when_memory_is_scarce_a_few_names_that_do_not_exist_linger_for_clients_that_may_return() {
    let void = SubscriptionEnd { with_stream: true, has_any: false };
    let most =
        |is_absent, memory| (0..2 * VOID).take_while(|void_now| void.lingers(is_absent, memory, *void_now)).count();
    assert_eq!([most(true, Scarcity::Some), most(false, Scarcity::Some)], [VOID / 10, 0]);
    assert_eq!([most(true, Scarcity::None), most(false, Scarcity::None)], [VOID, VOID]);
    assert!(!SubscriptionEnd::BY_REQUEST.lingers(true, Scarcity::None, 0), "the client does not want it");
}

#[test]
fn however_scarce_memory_is_what_lingers_ends_in_parts() {
    let mut world = World::with_list();
    let count = world.fill(ONE, "name", 5 * ENDS_AT_ONCE);
    world.leave(ONE, "name", count);
    world.interest.memory = Scarcity::Full;
    let mut parts = Vec::new();
    while world.interest.next_deadline().is_some_and(|due| due <= world.now) {
        parts.push(world.interest.expire(world.now).len());
    }
    assert!(parts.len() > 1 && parts.iter().all(|part| (1..=ENDS_AT_ONCE).contains(part)), "{parts:?}");
    assert_eq!(parts.iter().sum::<usize>(), count);
}

#[test]
fn of_names_of_which_nothing_is_here_a_few_linger_and_those_that_come_back_make_room() {
    let mut world = World::with_list();
    let how = SubscriptionEnd { with_stream: true, has_any: false };
    let leave = |world: &mut World, from: usize, to: usize| {
        for number in from..to {
            let name = Selector::Name(name("n", number).as_str().into());
            world.interest.unsubscribe(ONE, &world.kind.clone(), &name, how, world.now);
        }
    };
    assert_eq!(world.fill(ONE, "n", VOID + 20), VOID + 20);
    leave(&mut world, 0, VOID + 20);
    let ended = world.interest.expire(world.now).len();
    assert_eq!((ended, world.interest.lingering_count()), (20, VOID));
    assert_eq!(world.fill(ONE, "n", 5), 5);
    assert_eq!(world.interest.void, VOID - 5);
    leave(&mut world, 0, 5);
    assert_eq!(world.interest.expire(world.now), []);
    assert_eq!(world.later(), VOID);
    assert_eq!(world.interest.void, 0);
}

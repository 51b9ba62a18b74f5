mod histories;

use super::*;
use crate::xds::TypeTable;

const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const OWN: &str = "own.Debug";

/// One stream, its server, and the time.
struct World {
    trials: TypeTrials,
    table: TypeTable,
    wanted: BTreeSet<Type>,
    opened: BTreeSet<Type>,
    now: Moment,
}

impl World {
    fn new(wanted: &[&str]) -> Self {
        let table = TypeTable::new();
        let wanted = wanted.iter().map(|name| table.resolve(name)).collect();
        Self { trials: TypeTrials::default(), table, wanted, opened: BTreeSet::new(), now: Moment::START }
    }

    /// Like `new`, with a stream on which the server has answered for clusters.
    fn live(wanted: &[&str]) -> Self {
        let mut world = Self::new(wanted);
        world.request();
        world.answer(CLUSTERS);
        world
    }

    /// Lets the server end the stream when routes are new on it, and answer on the next one.
    fn suspect_routes(&mut self) {
        self.want(ROUTES);
        self.request();
        self.end(UNKNOWN);
        self.request();
        self.answer(CLUSTERS);
    }

    fn kind(&self, name: &str) -> Type {
        self.table.resolve(name)
    }

    fn want(&mut self, name: &str) {
        self.wanted.insert(self.kind(name));
    }

    /// Writes what may be requested, and returns the types that are on the stream then.
    fn request(&mut self) -> Vec<&str> {
        let Self { trials, table, wanted, opened, now } = self;
        loop {
            trials.sort(wanted.iter().map(|kind| (kind, opened.contains(kind))), |kind| table.knows(kind.name()), *now);
            let Some(kind) = wanted.iter().find(|kind| !opened.contains(*kind) && !trials.is_apart(kind)) else {
                break;
            };
            trials.on_requested(kind, *now);
            opened.insert(kind.clone());
        }
        opened.iter().map(Type::name).collect()
    }

    fn answer(&mut self, name: &str) {
        self.trials.on_response(&self.kind(name));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let wanted = &self.wanted;
        self.trials.on_time(|kind| wanted.contains(kind), |kind| wanted.contains(kind), self.now);
    }

    /// Lets the server end the stream.
    fn end(&mut self, code: i32) {
        self.trials.on_ended(Some(&status(code)), self.now);
        self.trials.on_closed();
        self.opened.clear();
    }

    /// Begins the trial that is due, and returns its types.
    fn due(&mut self) -> Vec<String> {
        let Some(kinds) = self.trials.due(self.now) else { return Vec::new() };
        assert!(self.trials.compared().is_some());
        let names = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        let serial = self.trials.begin(kinds, self.now);
        self.trials.on_begun(serial, self.now);
        names
    }

    fn tried(&mut self, end: TrialEnd) {
        self.trials.on_trial_end(self.trials.count, end, self.now);
    }

    /// Lets the server, which accepts second streams, end the trial of a type, so that the type is refused.
    fn refuse(&mut self, name: &str) {
        assert_eq!(self.due(), [name]);
        self.tried(refused());
        assert!(self.is_refused(name));
    }

    fn is_refused(&self, name: &str) -> bool {
        self.trials.refusal(&self.kind(name)).is_some()
    }
}

const UNKNOWN: i32 = 2;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

fn refused() -> TrialEnd {
    TrialEnd::Refused(status(UNKNOWN))
}

/// The server has answered the first type, and left the stream open.
fn answered() -> TrialEnd {
    TrialEnd::Taken(BTreeSet::from([0]))
}

fn status(code: i32) -> ServerStatus {
    ServerStatus { code, message: String::new() }
}

const SOON: Duration = Duration::from_millis(10);

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

/// Names the types that clients make up, in the order in which they come.
fn made_up(at: usize) -> String {
    format!("own.MadeUp{at:04}")
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
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

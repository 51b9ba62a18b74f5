use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weir_core::proto::{Any, discovery};
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::view::{HeldRemoval, InterestChange, SavedSet, Selector, SessionId, SetState, Update, View};
use weir_core::xds::{Authority, BodyStore, Resource, Type, TypeTable};

use super::super::Views;
use super::*;
use crate::relay::{views_to, views_to_all, views_to_lists};

const SERVER: &str = "http://server";
const EARLIER: [&str; 3] = ["http://one", "http://two", "http://gone"];
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn resource(kind: &Type, name: &str) -> Arc<Resource> {
    let any = Any { type_url: kind.name().into(), value: Bytes::new() };
    let wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
    Arc::new(Resource::from_wrapper(0, wrapper, kind, &BodyStore::default()).unwrap())
}

/// A set of clusters by name, each from a server.
fn set_of(kind: &Type, names: &[(&str, u16)]) -> SavedSet {
    let of = |(name, server): &(&str, u16)| SavedResource {
        key: (*name).into(),
        resource: resource(kind, name),
        server: *server,
        rank: 7,
    };
    let (settled, past) = Default::default();
    let resources = names.iter().map(of).collect();
    SavedSet { kind: kind.clone(), class: Class::Named, settled, past, has_expired: false, resources }
}

/// Returns the resources of a set: name, server and rank.
fn origins(set: &SavedSet) -> Vec<(&str, u16, u8)> {
    let resources = set.resources.iter();
    let mut origins: Vec<_> = resources.map(|saved| (saved.key.as_str(), saved.server, saved.rank)).collect();
    origins.sort_unstable();
    origins
}

/// What a view leaves. It was loaded from disk a minute ago, an hour after its servers were last heard.
fn left_by(view: &View, servers: &[&str]) -> InheritedView {
    let loaded = Instant::now().checked_sub(MINUTE).unwrap();
    InheritedView {
        snapshot: view.snapshot().clone(),
        brakes: NotedBrakes::default(),
        from_disk: FromDisk { answered: BTreeSet::new(), age: Some(HOUR), loaded: Some(loaded) },
        history: ServerHistory::default(),
        has_responded: false,
        servers: servers.iter().map(ToString::to_string).collect(),
    }
}

fn seed(views: &Views) -> ViewSeed {
    ViewSeed::new(&views.shared, views.keep_inherited)
}

#[tokio::test]
async fn what_a_view_leaves_gets_older_while_no_server_confirms_it() {
    let (views, table) = (views_to(SERVER), Arc::new(TypeTable::new()));
    let set = set_of(&table.clusters(), &[("a", 0)]);
    let mut view = View::new(table, Arc::default());
    let now = views.shared().clock.now();
    view.restore(vec![set], now + HOUR, now);
    let left = seed(&views).view(&left_by(&view, &[SERVER]));
    assert_eq!(SavedSet::all_of(left.view.snapshot(), now).len(), 1);
    assert!(left.from_disk.age.unwrap() >= HOUR + MINUTE);
}

/// Otherwise the relay would report that a server was not heard for an hour, although it has just sent the resource.
#[tokio::test]
async fn what_a_server_has_confirmed_before_a_reload_is_not_as_old_as_the_file() {
    let (views, table) = (views_to(SERVER), Arc::new(TypeTable::new()));
    let kind = table.clusters();
    let mut view = View::new(table, Arc::default());
    let now = views.shared().clock.now();
    view.restore(vec![set_of(&kind, &[("a", 0)])], now + HOUR, now);
    let wanted = InterestChange { kind: kind.clone(), selector: Selector::Name("a".into()), on: true };
    view.change_interest(SessionId(1), wanted, now);
    let confirmed =
        Update::Upsert { kind: kind.clone(), class: Class::Named, key: "a".into(), resource: resource(&kind, "a") };
    view.apply(vec![confirmed], now);
    view.publish();
    let left = seed(&views).view(&left_by(&view, &[SERVER]));
    assert_eq!((left.view.tables().loaded_from_disk(), left.from_disk.age), (1, None));
}

#[tokio::test]
async fn a_view_counts_for_readiness_after_a_reload_if_a_server_has_responded_or_it_did_before() {
    let (views, table) = (views_to(SERVER), Arc::new(TypeTable::new()));
    let kind = table.clusters();
    let mut view = View::new(table, Arc::default());
    let now = views.shared().clock.now();
    view.restore(vec![set_of(&kind, &[("a", 0)])], now + HOUR, now);
    let of_names = BTreeSet::from([Authority::TopLevel]);
    for (has_responded, answered_before) in [(false, false), (false, true), (true, false)] {
        let mut inherited = left_by(&view, &[SERVER]);
        inherited.has_responded = has_responded;
        inherited.from_disk.answered = if answered_before { of_names.clone() } else { BTreeSet::new() };
        let left = seed(&views).view(&inherited);
        let counts = has_responded || answered_before;
        assert_eq!(left.from_disk.answered, if counts { of_names.clone() } else { BTreeSet::new() });
    }
}

#[tokio::test]
async fn a_server_is_known_by_its_name_though_its_place_in_the_list_is_another() {
    let (views, table) = (views_to_all(&["http://two", "http://new", "http://one"]), Arc::new(TypeTable::new()));
    let kind = table.clusters();
    let mut view = View::new(table, Arc::default());
    let now = views.shared().clock.now();
    view.restore(vec![set_of(&kind, &[("a", 0), ("b", 1), ("c", 2)])], now + HOUR, now);
    let left = seed(&views).view(&left_by(&view, &EARLIER));
    let sets = SavedSet::all_of(left.view.snapshot(), now);
    assert_eq!(origins(&sets[0]), [("a", 2, 2), ("b", 0, 0), ("c", GONE.0, GONE.1)]);
}

/// With another server in front of it, a server that is away may be left although everything is cached.
#[test]
fn fb_31_the_lowest_open_server_of_an_authority_has_its_rank_in_the_list_that_follows() {
    let lowest = |servers: &[&'static str], of: LowestOpen| {
        let history = ServerHistory { lowest: BTreeMap::from([(Authority::TopLevel, of)]), ..ServerHistory::default() };
        let placed = placed_history(&history, &views_to_all(servers).shared().places_of(EARLIER));
        let LowestOpen { server, rank } = placed.lowest[&Authority::TopLevel];
        (server, rank)
    };
    let [first, second] = [0, 1].map(|at| LowestOpen { server: at, rank: at as u8 });
    assert_eq!(lowest(&EARLIER, first), (0, 0));
    assert_eq!(lowest(&["http://new", "http://one"], first), (1, 1), "there is another one in front of it");
    assert_eq!(lowest(&["http://new", "http://two"], first), (GONE.0, 0), "it is gone, and had none in front of it");
    assert_eq!(lowest(&EARLIER, second), (1, 1));
    assert_eq!(lowest(&["http://two", "http://one"], second), (0, 0), "it is the first one now");
    assert_eq!(lowest(&["http://one", "http://new"], second), (GONE.0, 1), "it is gone, and the first one was away");
}

/// They may have the same URI and other settings.
#[tokio::test]
async fn boot_9_what_is_left_of_servers_with_one_name_stays_with_each_of_them() {
    const OF_OTHER: &str = "xdstp://other/envoy.config.cluster.v3.Cluster/x";
    let table = Arc::new(TypeTable::new());
    let kind = table.clusters();
    let types = BTreeSet::from([kind.clone()]);
    let mut history = ServerHistory { refused: BTreeMap::from([(1, types.clone())]), ..ServerHistory::default() };
    history.note_held(BTreeMap::from([(1, Moment::START)]));
    let of_authority = history.recoveries[&1_u16];
    history.recoveries.insert(0, Recovery::default());
    for (top, place, rank) in [(&[SERVER][..], 0_u16, 0), (&["http://new", SERVER][..], 1, 1)] {
        let views = views_to_lists(top, &[("other", SERVER)]);
        let mut view = View::new(table.clone(), Arc::default());
        let now = views.shared().clock.now();
        view.restore(vec![set_of(&kind, &[("a", 0), (OF_OTHER, 1)])], now + HOUR, now);
        let inherited = InheritedView { history: history.clone(), ..left_by(&view, &[SERVER, SERVER]) };
        let left = seed(&views).view(&inherited);
        let sets = SavedSet::all_of(left.view.snapshot(), now);
        assert_eq!(origins(&sets[0]), [("a", place, rank), (OF_OTHER, place + 1, 0)]);
        let recoveries = BTreeMap::from([(place, Recovery::default()), (place + 1, of_authority)]);
        assert_eq!(left.history.recoveries, recoveries);
        assert_eq!(left.history.refused, BTreeMap::from([(usize::from(place) + 1, types.clone())]));
    }
    let of_one_list = views_to_all(&[SERVER, SERVER]).shared().places_of([SERVER, SERVER]);
    assert_eq!(of_one_list.of_resource(1, Class::Named, &"a".into()), Some((1, 1)));
}

#[test]
fn a_server_that_was_away_is_known_by_its_name_too() {
    let recoveries = BTreeMap::from([(0, Recovery::default()), (2, Recovery::default())]);
    let refused =
        [TypeTable::new().clusters(), TypeTable::new().resolve("own.Debug")].map(|kind| BTreeSet::from([kind]));
    let [of_first, of_gone] = refused;
    let refused = BTreeMap::from([(0, of_first.clone()), (1, BTreeSet::new()), (2, of_gone)]);
    let history = ServerHistory { lowest: BTreeMap::new(), recoveries, refused };
    let views = views_to_all(&["http://two", "http://new", "http://one"]);
    let placed = placed_history(&history, &views.shared().places_of(EARLIER));
    assert_eq!(placed.recoveries.into_keys().collect::<Vec<_>>(), [2], "and nothing of one that is gone");
    assert_eq!(placed.refused, BTreeMap::from([(0, BTreeSet::new()), (2, of_first)]));
}

#[tokio::test]
async fn what_brakes_hold_goes_on_for_the_servers_that_are_left() {
    let views = views_to_all(&["http://two", "http://new", "http://one"]);
    let held = |name: &str, server| HeldRemoval {
        name: name.into(),
        age: HOUR,
        generation: 7,
        emptied: true,
        server,
        rank: 7,
    };
    let set = SetState {
        is_stopped: false,
        type_name: "a.B".into(),
        glob: None,
        sizes: vec![(2 * HOUR, 9)],
        start_size: 30,
        empty_for: Some(3 * HOUR),
        removals: vec![held("a", 0), held("b", 1), held("c", 2)],
    };
    let state = BrakeState { sets: vec![set] }.into();
    let noted = NotedBrakes { state, at: Instant::now().checked_sub(MINUTE), changes: 1 };
    let state = placed_brakes(&noted, &views.shared().places_of(EARLIER));
    let [set] = &state.sets[..] else { panic!("{state:?}") };
    let places: Vec<_> = set.removals.iter().map(|held| (held.name.as_str(), held.server, held.rank)).collect();
    assert_eq!(places, [("a", 2, 2), ("b", 0, 0)], "what a server that is gone has removed is not held for it");
    let ages = [(set.removals[1].age, HOUR), (set.sizes[0].0, 2 * HOUR), (set.empty_for.unwrap(), 3 * HOUR)];
    for (age, before) in ages {
        assert!((before + MINUTE..before + 2 * MINUTE).contains(&age), "{age:?}");
    }
    assert_eq!((set.start_size, set.removals[0].generation), (30, 7));
}

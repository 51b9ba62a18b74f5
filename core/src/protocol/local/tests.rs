use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proto::Any;
use crate::proto::discovery::Resource;
use crate::xds::Name;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
const BEGIN: Moment = Moment::START;

/// A source, and the resources that its client holds.
struct Bench {
    table: Arc<TypeTable>,
    snapshot: Arc<SourceSnapshot>,
    server: Server,
    alone: bool,
    held: BTreeMap<(Type, Name), String>,
    absent: BTreeSet<(Type, Name)>,
}

impl Bench {
    fn new(alone: bool) -> Self {
        let (table, snapshot) = (Arc::new(TypeTable::new()), Arc::new(SourceSnapshot::default()));
        let server = Server::new(table.clone(), snapshot.clone(), alone);
        Self { table, snapshot, server, alone, held: BTreeMap::new(), absent: BTreeSet::new() }
    }

    /// Replaces the files; each entry is `type name content`.
    fn hold(&mut self, resources: &[(&str, &str, &str)], complete: bool) {
        let mut items: BTreeMap<Type, Items> = BTreeMap::new();
        for (url, name, content) in resources {
            let kind = self.table.resolve(url);
            let (name, item) = item(&kind, name, content.as_bytes(), |_| {});
            items.entry(kind).or_default().insert(name, item);
        }
        self.take(items, complete);
    }

    fn take(&mut self, items: BTreeMap<Type, Items>, complete: bool) {
        self.snapshot = Arc::new(self.snapshot.next(items, complete));
        self.server.on_snapshot(self.snapshot.clone());
    }

    fn ask(&mut self, url: &str, on: &[&str], off: &[&str]) {
        let text = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        self.server.on_request(DeltaDiscoveryRequest {
            type_url: url.into(),
            resource_names_subscribe: text(on),
            resource_names_unsubscribe: text(off),
            ..Default::default()
        });
        for name in off {
            let kind = self.table.resolve(url);
            self.held.remove(&(kind.clone(), Name::canonical(name)));
            self.absent.remove(&(kind, Name::canonical(name)));
        }
    }

    /// The client opens a new stream.
    fn reconnect(&mut self) {
        self.server = Server::new(self.table.clone(), self.snapshot.clone(), self.alone);
    }

    /// The first request for a type on the stream, with the versions that the client holds.
    fn state(&mut self, url: &str, on: &[&str]) {
        let kind = self.table.resolve(url);
        let held = self.held.iter().filter(|((of, _), _)| *of == kind);
        self.server.on_request(DeltaDiscoveryRequest {
            type_url: url.into(),
            resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
            initial_resource_versions: held.map(|((_, name), version)| (name.to_string(), version.clone())).collect(),
            ..Default::default()
        });
    }

    fn next(&mut self, now: Moment) -> Option<DeltaDiscoveryResponse> {
        loop {
            match self.server.step(now) {
                Step::Response(response) => return Some(*response),
                Step::Busy => {}
                Step::Idle => return None,
            }
        }
    }

    /// Every response that is due.
    fn said(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.say()).collect()
    }

    /// Formats a response as `type +names -names`, with `...` while more of a `*` set is to come, and applies it to the client.
    fn say(&mut self) -> Option<String> {
        let response = self.next(BEGIN)?;
        let kind = self.table.resolve(&response.type_url);
        let letter = kind.name().rsplit('.').next().unwrap().chars().next().unwrap();
        let mut text = vec![letter.to_string()];
        for resource in response.resources {
            text.push(format!("+{}", resource.name));
            let key = (kind.clone(), Name::from(resource.name));
            self.absent.remove(&key);
            self.held.insert(key, resource.version);
        }
        for name in response.removed_resources {
            text.push(format!("-{name}"));
            let key = (kind.clone(), Name::from(name));
            self.held.remove(&key);
            self.absent.insert(key);
        }
        text.extend((!response.resource_errors.is_empty()).then(|| "...".to_owned()));
        Some(text.join(" "))
    }
}

fn item(kind: &Type, name: &str, content: &[u8], change: impl FnOnce(&mut Resource)) -> (Name, Item) {
    let any = Any { type_url: format!("x/{}", kind.name()), value: content.to_vec().into() };
    let mut wrapper = Resource { resource: Some(any), ..Default::default() };
    change(&mut wrapper);
    let name = Name::canonical(name);
    (name.clone(), Item::new(kind, &name, wrapper))
}

#[test]
fn fs_4_everything_of_a_type_is_sent_at_once_and_later_only_what_differs() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &[], &[]);
    assert_eq!(bench.said(), ["C +a +b ...", "C -weir.incomplete"]);
    bench.hold(&[(CDS, "a", "2"), (CDS, "c", "1"), (RDS, "r", "2")], true);
    assert_eq!(bench.said(), ["C +a +c", "C -b"]);
    bench.hold(&[(CDS, "a", "2"), (CDS, "c", "1"), (RDS, "r", "3")], true);
    assert_eq!(bench.said(), [""; 0], "nothing that was asked for has changed");
}

#[test]
fn a_type_of_which_there_is_nothing_is_known_to_be_empty_at_once() {
    let mut bench = Bench::new(true);
    bench.hold(&[(RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    assert_eq!(bench.said(), ["C -weir.incomplete"]);
    bench.hold(&[], true);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn names_are_sent_as_absent_and_as_present_and_again_when_they_are_requested_again() {
    let mut bench = Bench::new(true);
    bench.hold(&[(RDS, "a", "1")], true);
    bench.ask(RDS, &["a", "b"], &[]);
    assert_eq!(bench.said(), ["R +a", "R -b"]);
    bench.hold(&[(RDS, "b", "1")], true);
    assert_eq!(bench.said(), ["R +b", "R -a"]);
    bench.ask(RDS, &["a", "b"], &[]);
    assert_eq!(bench.said(), ["R +b", "R -a"]);
    bench.ask(RDS, &[], &["b"]);
    bench.hold(&[(RDS, "b", "2")], true);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn what_has_changed_of_a_set_that_was_left_is_not_sent() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1")], true);
    bench.ask(CDS, &["*", "b"], &[]);
    bench.said();
    bench.hold(&[(CDS, "a", "2"), (CDS, "b", "2")], true);
    bench.ask(CDS, &[], &["*"]);
    assert_eq!(bench.said(), ["C +b"]);
}

#[test]
fn fs_6_beside_other_sources_nothing_is_ever_absent_and_no_set_whole() {
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, "a", "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r", "s"], &[]);
    assert_eq!(bench.said(), ["C +a ...", "R +r"]);
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C +b ..."]);
    let mut none = Bench::new(false);
    none.hold(&[(RDS, "r", "1")], true);
    none.ask(CDS, &["*"], &[]);
    assert_eq!(none.said(), [""; 0], "nothing of the type here says nothing");
}

#[test]
fn nothing_is_absent_until_everything_has_been_read_once() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1")], false);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r"], &[]);
    assert_eq!(bench.said(), ["C +a ..."]);
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C +b ...", "R -r", "C -a -weir.incomplete"]);
    bench.hold(&[], false);
    assert_eq!(bench.said(), ["C -b"], "what was complete once is not in doubt for a file that comes later");
}

#[test]
fn ord_4_additions_go_in_the_order_of_types_and_removals_behind_all_of_them_the_other_way_round() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "old", "1"), (RDS, "gone", "1"), (RDS, "r", "to old")], true);
    bench.ask(RDS, &["r", "gone"], &[]);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    bench.hold(&[(CDS, "new", "1"), (RDS, "r", "to new")], true);
    assert_eq!(bench.said(), ["C +new", "R +r", "R -gone", "C -old"]);
}

#[test]
fn a_client_that_reconnects_is_sent_the_difference_and_removals() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    bench.hold(&[(CDS, "a", "1"), (CDS, "c", "1")], true);
    bench.reconnect();
    bench.state(CDS, &[]);
    assert_eq!(bench.said(), ["C +c ...", "C -b -weir.incomplete"]);
}

#[test]
fn name_6_a_file_and_a_client_may_spell_a_name_differently() {
    let mut bench = Bench::new(true);
    let kind = "envoy.config.cluster.v3.Cluster";
    bench.hold(&[(CDS, &format!("xdstp://x/{kind}/a?k=1&b=2"), "1")], true);
    bench.ask(CDS, &[&format!("xdstp://x/{kind}/%61?b=2&k=1")], &[]);
    assert_eq!(bench.said(), [format!("C +xdstp://x/{kind}/a?b=2&k=1")]);
}

#[test]
fn coll_14_to_coll_19_a_collection_is_what_the_set_has_of_it() {
    let mut bench = Bench::new(true);
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, a, b, deeper, beside] = ["*", "a", "b", "a/b", "c?k=v"].map(|id| format!("{folder}/{id}"));
    bench.hold(&[(CDS, &a, "1"), (CDS, &deeper, "1"), (CDS, &beside, "1"), (CDS, "old", "1")], true);
    bench.ask(CDS, &[&glob], &[]);
    assert_eq!(bench.said(), [format!("C +{a}")]);
    bench.hold(&[(CDS, &a, "2"), (CDS, &b, "1"), (CDS, "old", "2")], true);
    assert_eq!(bench.said(), [format!("C +{a} +{b}")]);
    bench.hold(&[(CDS, &b, "1")], true);
    assert_eq!(bench.said(), [format!("C -{a}")]);
    bench.reconnect();
    bench.held.insert((bench.table.resolve(CDS), Name::canonical(&a)), "1".into());
    bench.state(CDS, &[&glob]);
    assert_eq!(bench.said(), [format!("C -{a}")], "it is told what is gone, and not again what it holds");
    bench.ask(CDS, &[&glob], &[]);
    assert_eq!(bench.said(), [format!("C +{b}")], "asked for again is told again");
    bench.ask(CDS, &[&b], &[&glob]);
    bench.hold(&[(CDS, &a, "1"), (CDS, &b, "2")], true);
    assert_eq!(bench.said(), [format!("C +{b}")], "it was left, but for what is asked for by itself");
}

#[test]
fn coll_15_a_collection_of_nothing_is_sent_by_its_own_name_where_nobody_else_is_asked() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, a] = ["*", "a"].map(|id| format!("{folder}/{id}"));
    let mut bench = Bench::new(true);
    bench.hold(&[], true);
    bench.ask(CDS, &[&glob], &[]);
    assert_eq!(bench.said(), [format!("C -{glob}")]);
    bench.hold(&[(CDS, &a, "1")], true);
    assert_eq!(bench.said(), [format!("C +{a}")]);
    let mut bench = Bench::new(false);
    bench.hold(&[], true);
    bench.ask(CDS, &[&glob], &[]);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn a_large_set_goes_out_in_pieces_and_ends_once() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let items = |content: &str| -> BTreeMap<Type, Items> {
        let numbered =
            |number: u32| item(&kind, &format!("c{number:05}"), format!("{content}{number}").as_bytes(), |_| {});
        [(kind.clone(), (0..5_000).map(numbered).collect())].into()
    };
    bench.take(items(""), true);
    bench.ask(CDS, &["*"], &[]);
    let said = bench.said();
    assert_eq!((said.len(), bench.held.len()), (6, 5_000));
    assert!(said[..5].iter().all(|said| said.ends_with("...")) && said[5] == "C -weir.incomplete");
    let (one, mut rest) = (bench.snapshot.set(&kind).items().clone(), items("x"));
    let big = ["c00001", "c00002"].map(|name| item(&kind, name, &[7; 1 << 20], |_| {}));
    rest.get_mut(&kind).unwrap().extend(big);
    bench.take(rest, true);
    assert_eq!(bench.said().len(), 7, "a piece ends behind a megabyte");
    bench.take([(kind, one)].into(), true);
    bench.take(BTreeMap::new(), true);
    assert_eq!(bench.said().len(), 5, "5000 removals");
    assert_eq!(bench.held.len(), 0);
}

#[test]
fn what_has_an_end_is_sent_again_for_as_long_as_it_is_there() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let mortal = |wrapper: &mut Resource| wrapper.ttl = Some(prost_types::Duration { seconds: 10, nanos: 0 });
    bench.take([(kind.clone(), [item(&kind, "a", b"1", mortal)].into())].into(), true);
    bench.ask(CDS, &["a"], &[]);
    let first = bench.next(BEGIN).unwrap();
    assert_eq!(first.resources[0].ttl.map(|ttl| ttl.seconds), Some(10));
    let half = BEGIN + Duration::from_secs(5);
    assert_eq!((bench.next(BEGIN), bench.server.next_deadline()), (None, Some(half)));
    bench.server.on_time(half);
    assert_eq!(bench.next(half).unwrap().resources, first.resources);
    bench.hold(&[], true);
    bench.server.on_time(half + Duration::from_secs(5));
    assert_eq!(bench.said(), ["C -a"]);
    assert_eq!(bench.server.next_deadline(), None);
}

#[test]
fn delta_22_what_is_requested_by_another_name_comes_under_its_own_and_once() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(VHDS);
    let aliased = |content: &[u8], alias: &str| {
        item(&kind, "r/host", content, |wrapper| wrapper.aliases = vec![alias.to_owned()])
    };
    bench.take([(kind.clone(), [aliased(b"1", "r/a.example")].into())].into(), true);
    bench.ask(VHDS, &["r/a.example", "r/host", "r/b.example"], &[]);
    assert_eq!(bench.said(), ["V +r/host", "V -r/b.example"]);
    bench.take([(kind.clone(), [aliased(b"2", "r/b.example")].into())].into(), true);
    assert_eq!(bench.said(), ["V +r/host", "V -r/a.example"]);
}

#[test]
fn xlat_2_a_version_is_another_if_and_only_if_something_is() {
    let kind = TypeTable::new().resolve(CDS);
    let version = |content: &[u8], change: &dyn Fn(&mut Resource)| item(&kind, "a", content, change).1.version;
    let plain = version(b"1", &|_| {});
    assert_eq!(plain, version(b"1", &|wrapper| wrapper.version = "of the file".into()));
    let differs: [&dyn Fn(&mut Resource); 3] = [
        &|wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        &|wrapper| wrapper.aliases = vec!["b".into()],
        &|wrapper| wrapper.metadata = Some("m".into()),
    ];
    assert!(differs.iter().all(|change| version(b"1", change) != plain) && version(b"2", &|_| {}) != plain);
}

/// Subscribes to clusters by `*` and to routes by name, on one stream.
#[derive(Debug, Clone)]
enum Act {
    Hold(Vec<(bool, usize, usize)>),
    Ask(usize),
    Leave(usize),
    Star(bool),
    Return,
    Say(usize),
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prop::collection::vec((any::<bool>(), 0..5usize, 0..3usize), 0..8).prop_map(Act::Hold),
        3 => (0..5usize).prop_map(Act::Ask),
        2 => (0..5usize).prop_map(Act::Leave),
        1 => any::<bool>().prop_map(Act::Star),
        1 => Just(Act::Return),
        3 => (0..3usize).prop_map(Act::Say),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn in_the_end_a_client_holds_exactly_what_it_requested_and_is_there(acts in prop::collection::vec(act(), 0..40)) {
        let mut bench = Bench::new(true);
        let (clusters, routes) = (bench.table.resolve(CDS), bench.table.resolve(RDS));
        let (mut wildcard, mut names) = (false, BTreeSet::new());
        bench.hold(&[], true);
        for act in acts {
            match act {
                Act::Hold(resources) => {
                    let kind = |kind| if kind { CDS } else { RDS };
                    let resources = resources.iter().map(|(of, name, body)| (kind(*of), NAMES[*name], NAMES[*body]));
                    bench.hold(&resources.collect::<Vec<_>>(), true);
                }
                Act::Ask(name) => {
                    names.insert(NAMES[name]);
                    bench.ask(RDS, &[NAMES[name]], &[]);
                }
                Act::Leave(name) if names.remove(NAMES[name]) => bench.ask(RDS, &[], &[NAMES[name]]),
                Act::Star(true) if !wildcard => {
                    wildcard = true;
                    bench.ask(CDS, &["*"], &[]);
                }
                Act::Star(false) if wildcard => {
                    wildcard = false;
                    bench.ask(CDS, &[], &["*"]);
                    bench.held.retain(|(kind, _), _| *kind != clusters);
                }
                Act::Return => {
                    bench.reconnect();
                    let names: Vec<_> = names.iter().copied().collect();
                    if !names.is_empty() {
                        bench.state(RDS, &names);
                    }
                    if wildcard {
                        bench.state(CDS, &["*"]);
                    }
                }
                Act::Say(limit) => (0..limit).for_each(|_| drop(bench.say())),
                Act::Leave(_) | Act::Star(_) => {}
            }
        }
        bench.said();
        let mut expected = BTreeMap::new();
        for (kind, wanted) in [(&clusters, None), (&routes, Some(&names))] {
            for (name, item) in bench.snapshot.set(kind).items() {
                if wanted.map_or(wildcard, |names| names.contains(name.as_str())) {
                    expected.insert((kind.clone(), name.clone()), item.version.to_string());
                }
            }
        }
        prop_assert_eq!(&bench.held, &expected);
        for name in names {
            let key = (routes.clone(), name.into());
            prop_assert!(bench.held.contains_key(&key) || bench.absent.contains(&key), "nothing is known of {}", name);
        }
        prop_assert_eq!(bench.said(), [""; 0], "and it goes quiet");
    }
}

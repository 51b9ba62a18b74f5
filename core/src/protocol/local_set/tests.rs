use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::proto::{Any, discovery};
use crate::protocol::upstream::RequestState;
use crate::protocol::view::{Completeness, SessionId};
use crate::xds::{BodyStore, Resource, TypeTable};

mod settling;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
const BEGIN: Moment = Moment::START;

/// A local set that is reachable, and its view.
struct Bench {
    table: Arc<TypeTable>,
    snapshot: Arc<SourceSnapshot>,
    set: LocalSet,
    view: View,
}

impl Bench {
    fn new(authoritative: bool) -> Self {
        let (table, snapshot) = (Arc::new(TypeTable::new()), Arc::new(SourceSnapshot::default()));
        let view = View::new(table.clone(), Arc::default());
        let mut bench = Self { table, snapshot, set: LocalSet::new(authoritative, Arc::default()), view };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let epoch = self.set.opened();
        self.set.on_snapshot(epoch, self.snapshot.clone());
    }

    /// Replaces the resources; each entry is `(type URL, name, content)`.
    fn hold(&mut self, resources: &[(&str, &str, &str)], complete: bool) {
        let mut items: BTreeMap<Type, Items> = BTreeMap::new();
        for (url, name, content) in resources {
            let kind = self.table.resolve(url);
            let (name, resource) = resource(&kind, name, content.as_bytes(), |_| {});
            items.entry(kind).or_default().insert(name, resource);
        }
        self.take(items, complete);
    }

    fn take(&mut self, items: BTreeMap<Type, Items>, complete: bool) {
        self.snapshot = Arc::new(self.snapshot.next(items, complete));
        if self.set.is_open() {
            self.set.on_snapshot(self.set.epoch, self.snapshot.clone());
        }
    }

    fn ask(&mut self, url: &str, on: &[&str], off: &[&str]) {
        let changes = off.iter().map(|name| (name, false)).chain(on.iter().map(|name| (name, true)));
        for (name, on) in changes {
            let selector = if *name == "*" { Selector::Wildcard } else { Selector::Name(Name::canonical(name)) };
            let change = InterestChange { kind: self.table.resolve(url), selector, on };
            self.view.change_interest(SessionId(1), change.clone(), BEGIN);
            self.set.want(change);
        }
    }

    fn end(&mut self) {
        let updates = self.set.ended(self.set.epoch, &self.view);
        self.view.apply(updates, BEGIN);
        assert!(self.set.next_parts(&self.view, BEGIN).is_empty() && self.set.next_deadline().is_none());
    }

    /// Returns everything that is due, as [`Self::say`] formats it.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while self.set.next_deadline() == Some(BEGIN) {
            said.extend(self.say(BEGIN));
        }
        said
    }

    /// Lets the view apply the next part. Returns it as `type +names -names`: with a star at the type if it is of `*`, with `...` if more of a
    /// set is to come, and with `all` at its end.
    fn say(&mut self, now: Moment) -> Option<String> {
        let part = self.set.next_part(&self.view, now).filter(|part| !part.updates.is_empty())?;
        let kind = part.summary.kind.name();
        let letter = kind.rsplit('.').next().unwrap().chars().next().unwrap();
        let mut text = vec![letter.to_string()];
        for update in &part.updates {
            if let Some((Class::Wildcard, _)) | None = update.subject().1 {
                text[0] = format!("{letter}*");
            }
            text.extend(match update {
                Update::Upsert { key, .. } => Some(format!("+{key}")),
                Update::Absent { key, .. } => Some(format!("-{key}")),
                Update::Progress { completeness: Completeness::Complete, .. } => Some("all".into()),
                Update::Progress { of, .. } => {
                    let known = self.view.tables().completeness_of(&part.summary.kind, of);
                    (known < Completeness::Complete).then(|| "...".into()) // it was complete before, and stays complete
                }
                Update::WithoutRoom { key, .. } => Some(format!("?{key}")),
                Update::Unreadable { names, .. } => Some(format!("lacks {}", names.len())),
                other => panic!("{other:?}"),
            });
        }
        self.view.apply(part.updates, now);
        Some(text.join(" "))
    }

    /// Returns the names of a type that the view has.
    fn names(&self, url: &str, class: Class) -> Vec<String> {
        let kind = self.table.resolve(url);
        self.view.holds().here(&kind, class).map(|(name, _)| name.to_string()).collect()
    }
}

fn resource(
    kind: &Type,
    name: &str,
    content: &[u8],
    change: impl FnOnce(&mut discovery::Resource),
) -> (Name, Arc<Resource>) {
    let any = Any { type_url: format!("x/{}", kind.name()), value: content.to_vec().into() };
    let mut wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
    change(&mut wrapper);
    let resource = Resource::from_wrapper(0, wrapper, kind, &BodyStore::default()).unwrap();
    (Name::canonical(name), Arc::new(resource))
}

#[test]
fn fs_4_everything_of_a_type_is_reported_at_once_and_later_only_what_differs() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    assert_eq!(bench.said(), ["C* +a +b ...", "C* all"]);
    bench.hold(&[(CDS, "a", "2"), (CDS, "c", "1"), (RDS, "r", "2")], true);
    assert_eq!(bench.said(), ["C* +a +c", "C* -b"]);
    bench.hold(&[(CDS, "a", "2"), (CDS, "c", "1"), (RDS, "r", "3")], true);
    assert_eq!(bench.said(), [""; 0], "nothing that is wanted has changed");
}

#[test]
fn what_has_no_room_is_not_absent_no_set_is_whole_without_it_and_it_comes_when_there_is_room() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let items = [(kind.clone(), Items::from([resource(&kind, "a", b"1", |_| {})]))].into();
    let lacking = [(kind.clone(), NamesWithoutRoom::from([("b".into(), ())]))].into();
    bench.snapshot = Arc::new(bench.snapshot.next_lacking(items, lacking, true));
    bench.set.on_snapshot(bench.set.epoch, bench.snapshot.clone());
    bench.ask(CDS, &["*", "b", "c"], &[]);
    assert_eq!(bench.said(), ["C* lacks 1 ?b", "C* +a ...", "C ?b", "C -c", "C* all"]);
    bench.view.publish();
    let snapshot = bench.view.snapshot().clone();
    let table = snapshot.resources(&kind, Class::Wildcard).unwrap();
    assert!(!table.coverage().is_readable(), "no client takes this for the whole set");
    bench.ask(CDS, &["b"], &[]);
    assert_eq!(bench.said(), ["C ?b"], "nor does asking again make it absent");
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C* lacks 0 +b", "C +b"]);
    bench.hold(&[(CDS, "a", "1")], true);
    assert_eq!(bench.said(), ["C -b", "C* -b"], "it has been removed since");
}

#[test]
fn a_type_of_which_there_is_nothing_is_known_to_be_empty_at_once() {
    let mut bench = Bench::new(true);
    bench.hold(&[(RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    assert_eq!(bench.said(), ["C* all"]);
    bench.hold(&[], true);
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn names_are_reported_as_absent_and_as_present_and_again_when_they_are_wanted_again() {
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
fn what_has_changed_of_a_set_that_was_left_is_not_reported() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1")], true);
    bench.ask(CDS, &["*", "b"], &[]);
    bench.said();
    bench.hold(&[(CDS, "a", "2"), (CDS, "b", "2")], true);
    bench.ask(CDS, &[], &["*"]);
    assert_eq!(bench.said(), ["C +b"]);
}

#[test]
fn fs_6_beside_other_sources_nothing_is_ever_absent_and_no_set_complete() {
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, "a", "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r", "s"], &[]);
    assert_eq!(bench.said(), ["C* +a ...", "R +r"]);
    let asked = |bench: &Bench, name: &str| bench.set.request_of(&bench.table.resolve(RDS), &name.into());
    assert_eq!(asked(&bench, "s").map(|of| of.state), Some(RequestState::Waiting(None)));
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C* +b ..."]);
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
    assert_eq!(bench.said(), ["C* +a ..."]);
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C* +b ...", "R -r", "C* -a all"]);
    bench.hold(&[], false);
    assert_eq!(bench.said(), ["C* -b"], "what was complete once is not in doubt for a file that comes later");
}

#[test]
fn ord_4_additions_go_in_the_order_of_types_and_removals_behind_all_of_them_the_other_way_round() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "old", "1"), (RDS, "gone", "1"), (RDS, "r", "to old")], true);
    bench.ask(RDS, &["r", "gone"], &[]);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    bench.hold(&[(CDS, "new", "1"), (RDS, "r", "to new")], true);
    assert_eq!(bench.said(), ["C* +new", "R +r", "R -gone", "C* -old"]);
}

#[test]
fn after_the_source_was_unreachable_everything_is_reported_again_and_what_is_removed() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, member, other] = ["*", "m", "n"].map(|id| format!("{folder}/{id}"));
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1"), (CDS, &member, "1")], true);
    bench.ask(CDS, &["*", &glob], &[]);
    bench.said();
    bench.end();
    bench.hold(&[(CDS, "a", "1"), (CDS, "c", "1"), (CDS, &other, "1")], true);
    bench.open();
    let c = format!("C* +a +c +{other} ...");
    assert_eq!(
        bench.said(),
        [c, format!("C +{other} ..."), format!("C -{member} all"), format!("C* -b -{member} all")]
    );
    assert_eq!(bench.names(CDS, Class::Named), [other]);
}

#[test]
fn what_others_gave_of_a_set_is_removed_when_all_is_known() {
    let mut bench = Bench::new(true);
    bench.ask(CDS, &["*"], &[]);
    let kind = bench.table.resolve(CDS);
    let (key, of_others) = resource(&kind, "other", b"1", |_| {});
    bench.view.apply(vec![Update::Upsert { kind, class: Class::Wildcard, key, resource: of_others }], BEGIN);
    bench.hold(&[(CDS, "a", "1")], false);
    assert_eq!(bench.said(), ["C* +a ..."]);
    bench.hold(&[(CDS, "a", "1")], true);
    assert_eq!(bench.said(), ["C* -other all"]);
}

#[test]
fn name_6_a_source_and_a_client_may_spell_a_name_differently() {
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
    assert_eq!(bench.said(), [format!("C +{a} ..."), "C all".into()]);
    bench.hold(&[(CDS, &a, "2"), (CDS, &b, "1"), (CDS, "old", "2")], true);
    assert_eq!(bench.said(), [format!("C +{a} +{b}")]);
    bench.hold(&[(CDS, &b, "1")], true);
    assert_eq!(bench.said(), [format!("C -{a}")]);
    bench.ask(CDS, &[&glob], &[]);
    assert_eq!(bench.said(), [format!("C +{b}"), "C all".into()], "wanted again is reported again");
    bench.ask(CDS, &[&b], &[&glob]);
    bench.hold(&[(CDS, &a, "1"), (CDS, &b, "2")], true);
    assert_eq!(bench.said(), [format!("C +{b}")], "it was left, but for what is wanted by itself");
}

#[test]
fn coll_15_a_collection_of_nothing_is_reported_by_its_own_name_where_nobody_else_is_asked() {
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
fn a_large_set_is_reported_in_parts_and_ends_once() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let items = |content: &str| -> BTreeMap<Type, Items> {
        let numbered =
            |number: u32| resource(&kind, &format!("c{number:05}"), format!("{content}{number}").as_bytes(), |_| {});
        [(kind.clone(), (0..5_000).map(numbered).collect())].into()
    };
    bench.take(items(""), true);
    bench.ask(CDS, &["*"], &[]);
    let said = bench.said();
    assert_eq!((said.len(), bench.names(CDS, Class::Wildcard).len()), (6, 5_000));
    assert!(said[..5].iter().all(|said| said.ends_with("...")) && said[5] == "C* all");
    let (one, mut rest) = (bench.snapshot.set(&kind).items().clone(), items("x"));
    let big = ["c00001", "c00002"].map(|name| resource(&kind, name, &[7; 1 << 20], |_| {}));
    rest.get_mut(&kind).unwrap().extend(big);
    bench.take(rest, true);
    assert_eq!(bench.said().len(), 7, "a part ends behind a megabyte");
    bench.take([(kind, one)].into(), true);
    bench.take(BTreeMap::new(), true);
    assert_eq!(bench.said().len(), 5, "5000 removals");
    assert_eq!(bench.names(CDS, Class::Wildcard), [""; 0]);
}

#[test]
fn delta_22_what_is_wanted_by_another_name_is_reported_under_each() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(VHDS);
    let aliased = |content: &[u8], alias: &str| {
        resource(&kind, "r/host", content, |wrapper| wrapper.aliases = vec![alias.to_owned()])
    };
    bench.take([(kind.clone(), [aliased(b"1", "r/a.example")].into())].into(), true);
    bench.ask(VHDS, &["r/a.example", "r/host", "r/b.example"], &[]);
    assert_eq!(bench.said(), ["V +r/a.example +r/host", "V -r/b.example"]);
    bench.take([(kind.clone(), [aliased(b"2", "r/b.example")].into())].into(), true);
    assert_eq!(bench.said(), ["V +r/b.example +r/host", "V -r/a.example"]);
}

#[test]
fn a_name_that_turns_into_an_alias_of_another_resource_is_removed_from_sets_and_stays_for_whoever_wants_it() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(VHDS);
    bench.take([(kind.clone(), [resource(&kind, "r/a", b"1", |_| {})].into())].into(), true);
    bench.ask(VHDS, &["*", "r/a"], &[]);
    assert_eq!(bench.said(), ["V* +r/a ...", "V +r/a", "V* all"]);
    let other = resource(&kind, "r/b", b"2", |wrapper| wrapper.aliases = vec!["r/a".to_owned()]);
    bench.take([(kind.clone(), [other].into())].into(), true);
    assert_eq!(bench.said(), ["V* +r/b", "V +r/a", "V* -r/a"]);
}

#[test]
fn what_was_reported_as_absent_is_in_doubt_once_the_source_is_unreachable_also_if_it_has_come_meanwhile() {
    let mut bench = Bench::new(true);
    bench.hold(&[], true);
    bench.ask(RDS, &["n"], &[]);
    assert_eq!(bench.said(), ["R -n"]);
    bench.hold(&[(RDS, "n", "1")], true);
    let updates = bench.set.ended(bench.set.epoch, &bench.view);
    assert!(matches!(&updates[..], [Update::Interrupted { of: Selector::Name(name), .. }] if name.as_str() == "n"));
}

#[test]
fn ord_1_names_that_are_requested_later_do_not_count_as_routing_that_was_not_reported() {
    let mut bench = Bench::new(true);
    bench.end();
    bench.hold(&[(RDS, "r", "1")], true);
    bench.ask(RDS, &["r", "first"], &[]);
    assert!(!bench.set.has_reported_routing());
    bench.open();
    assert!(!bench.set.has_reported_routing());
    bench.said();
    for (complete, authoritative) in [(true, true), (false, true), (true, false)] {
        let mut all = Bench::new(authoritative);
        all.end();
        all.hold(&[(RDS, "r", "1")], complete);
        all.ask(RDS, &["r"], &[]);
        all.open();
        assert_eq!((all.said(), all.set.has_reported_routing()), (vec!["R +r".to_owned()], true), "{complete}");
    }
    let mut incomplete = Bench::new(true);
    incomplete.end();
    incomplete.hold(&[(RDS, "r", "1")], false);
    incomplete.ask(RDS, &["r", "first"], &[]);
    incomplete.open();
    assert_eq!(incomplete.said(), ["R +r"]);
    assert!(incomplete.set.has_reported_routing(), "of what could not be read nobody knows when it can be");
    for round in 0..10 {
        assert!(bench.set.has_reported_routing(), "{round}");
        bench.ask(RDS, &[&format!("late{round}")], &[]);
        assert!(bench.set.has_reported_routing(), "{round}");
        bench.said();
    }
}

#[test]
fn removals_do_not_wait_for_clients_that_request_new_names_all_the_time() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    bench.hold(&[], true);
    bench.ask(RDS, &["new"], &[]);
    let parts = bench.set.next_parts(&bench.view, BEGIN);
    assert_eq!(parts.iter().map(|part| part.summary.removed).sum::<usize>(), 2);
    assert_eq!(bench.set.next_deadline(), None);
}

#[test]
fn the_ends_of_many_collections_are_reported_in_parts() {
    let mut bench = Bench::new(true);
    bench.hold(&[], true);
    let globs: Vec<_> = (0..2_500).map(|at| format!("xdstp://x/envoy.config.cluster.v3.Cluster/f{at:04}/*")).collect();
    bench.ask(CDS, &globs.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let parts: Vec<_> = bench.said().iter().map(|part| part.split(' ').count() - 1).collect();
    assert_eq!(parts, [1_000, 1_000, 500]);
}

#[test]
fn what_comes_from_an_earlier_opening_changes_nothing() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    let earlier = bench.set.epoch;
    bench.end();
    bench.open();
    bench.said();
    bench.set.on_snapshot(earlier, Arc::default());
    assert!(bench.set.ended(earlier, &bench.view).is_empty() && bench.set.is_open());
    assert_eq!((bench.said(), bench.names(CDS, Class::Wildcard)), (vec![], vec!["a".to_owned()]));
}

#[test]
fn xlat_2_a_resource_is_reported_again_if_and_only_if_something_is_different() {
    let kind = TypeTable::new().resolve(CDS);
    let is_reported = |content: &[u8], change: fn(&mut discovery::Resource)| {
        let mut bench = Bench::new(true);
        bench.hold(&[(CDS, "a", "1")], true);
        bench.ask(CDS, &["a"], &[]);
        bench.said();
        bench.take([(kind.clone(), [resource(&kind, "a", content, change)].into())].into(), true);
        !bench.said().is_empty()
    };
    assert!(!is_reported(b"1", |_| {}) && !is_reported(b"1", |wrapper| wrapper.version = "of the file".into()));
    let differs: [fn(&mut discovery::Resource); 3] = [
        |wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        |wrapper| wrapper.aliases = vec!["b".into()],
        |wrapper| wrapper.metadata = Some("m".into()),
    ];
    assert!(differs.into_iter().all(|change| is_reported(b"1", change)) && is_reported(b"2", |_| {}));
}

#[test]
fn what_is_known_of_names_and_what_waits_for_a_source_that_is_unreachable_is_shown() {
    let mut bench = Bench::new(true);
    bench.hold(&[(RDS, "a", "1")], true);
    bench.ask(RDS, &["a", "b"], &[]);
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f/*";
    bench.ask(CDS, &["*", folder], &[]);
    bench.said();
    let state = |bench: &Bench, url: &str, name: &str| {
        bench.set.request_of(&bench.table.resolve(url), &name.into()).map(|of| of.state)
    };
    assert_eq!(state(&bench, RDS, "a"), Some(RequestState::Given));
    assert_eq!(state(&bench, RDS, "b"), Some(RequestState::Absent));
    assert_eq!((state(&bench, RDS, "c"), state(&bench, CDS, "c")), (None, Some(RequestState::OfWildcard)));
    let types: Vec<_> = bench.set.types().map(|of| (of.wildcard, of.names)).collect();
    assert_eq!(types, [(true, 0), (false, 1), (false, 2)]);
    let waits = |bench: &Bench| {
        let mut list = WaitList::keeping(10);
        bench.set.add_waits(0, &bench.view, BEGIN, &mut list);
        list.sums().map(|(kind, sum)| (kind, sum.count)).collect::<Vec<_>>()
    };
    assert_eq!(waits(&bench), []);
    bench.set.ended(bench.set.epoch, &bench.view);
    assert_eq!(waits(&bench), [(WaitKind::Name, 2), (WaitKind::Set, 1)]);
}

/// What happens to a view that wants clusters by `*` and routes by name.
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
    fn in_the_end_a_view_has_exactly_what_it_wants_and_is_there(acts in prop::collection::vec(act(), 0..40)) {
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
                }
                Act::Return => {
                    bench.end();
                    bench.open();
                }
                Act::Say(limit) => (0..limit).for_each(|_| drop(bench.say(BEGIN))),
                Act::Leave(_) | Act::Star(_) => {}
            }
        }
        bench.said();
        let tables = bench.view.tables();
        if wildcard {
            let held: Vec<_> = bench.view.holds().here(&clusters, Class::Wildcard).collect();
            let set = bench.snapshot.set(&clusters);
            prop_assert_eq!(held.len(), set.items().len());
            for (name, entry) in held {
                let resource = entry.resource();
                prop_assert!(resource.zip(set.get(name)).is_some_and(|(held, there)| held.is_same(there)), "{}", name);
            }
            prop_assert_eq!(tables.completeness_of(&clusters, &Selector::Wildcard), Completeness::Complete);
        }
        for name in names {
            let (set, name) = (bench.snapshot.set(&routes), name.into());
            let entry = tables.entry(&routes, Class::Named, &name);
            prop_assert!(entry.is_some(), "nothing is known of {}", name);
            let held = entry.and_then(|entry| entry.resource());
            prop_assert_eq!(held.is_some(), set.get(&name).is_some());
            prop_assert!(held.zip(set.get(&name)).is_none_or(|(held, there)| held.is_same(there)), "{}", name);
        }
        prop_assert_eq!(bench.said(), [""; 0], "and it goes quiet");
    }
}

//! Names and collections that are wanted one by one.

use super::*;

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
fn the_ends_of_many_collections_are_reported_in_parts() {
    let mut bench = Bench::new(true);
    bench.hold(&[], true);
    let globs: Vec<_> = (0..2_500).map(|at| format!("xdstp://x/envoy.config.cluster.v3.Cluster/f{at:04}/*")).collect();
    bench.ask(CDS, &globs.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let parts: Vec<_> = bench.said().iter().map(|part| part.split(' ').count() - 1).collect();
    assert_eq!(parts, [1_000, 1_000, 500]);
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

#[test]
fn each_name_that_waits_for_a_source_counts_however_few_waits_are_listed() {
    let mut bench = Bench::new(true);
    bench.ask(RDS, &["a", "b", "c"], &[]);
    bench.end();
    for kept in [0, 1, 10] {
        let mut list = WaitList::keeping(kept);
        bench.set.add_waits(0, &bench.view, BEGIN, &mut list);
        let sums: Vec<_> = list.sums().map(|(kind, sum)| (kind, sum.count)).collect();
        assert_eq!(sums, [(WaitKind::Name, 3)], "{kept}");
    }
}

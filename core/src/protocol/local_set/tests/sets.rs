//! Sets of a type: what is reported of them, in which order, and in parts.

use super::*;

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

/// The thread has other views to serve in between.
#[test]
fn parts_that_are_taken_together_are_no_larger_than_one_large_part() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let big = ["a", "b", "c"].map(|name| resource(&kind, name, &[7; 1 << 20], |_| {}));
    bench.take([(kind, Items::from(big))].into(), true);
    bench.ask(CDS, &["a", "b", "c"], &[]);
    let parts = bench.set.next_parts(&bench.view, BEGIN);
    assert_eq!(parts.iter().map(|part| part.summary.resources).sum::<usize>(), 1);
    assert_eq!(bench.set.next_deadline(), Some(BEGIN), "the others are due");
}

#[test]
fn type_10_resources_with_another_name_in_the_body_are_counted_by_type() {
    let mut bench = Bench::new(true);
    let clusters = [(CDS, "a", "\n\x01x"), (CDS, "b", "\n\x01y"), (CDS, "c", "\n\x01c")];
    bench.hold(&[&clusters[..], &[(RDS, "r", "\n\x01r")]].concat(), true);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r"], &[]);
    let misnamed: Vec<_> = bench.set.types().map(|of| of.misnamed).collect();
    assert_eq!(misnamed, [2, 0]);
}

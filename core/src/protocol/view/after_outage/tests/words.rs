//! What is held of a server that has just come back, for how long, and what ends it.

use super::*;

#[test]
fn half_a_set_takes_nothing_if_the_rest_comes_in_time() {
    for kind in [CDS, LDS, SRDS] {
        let mut bench = Bench::back(kind, &["a", "b", "c"], options());
        bench.set(kind, &["a"]);
        assert_eq!(bench.present(kind), names(&["a", "b", "c"]), "{kind}");
        assert!(bench.is_complete(kind), "it is complete with what is held");
        bench.pass(4_000);
        bench.set(kind, &["a", "b"]);
        assert_eq!((bench.present(kind), bench.waits()), (names(&["a", "b", "c"]), vec![4_000]), "{kind}");
        bench.set(kind, &["a", "b", "c"]);
        assert_eq!(bench.waits(), [0; 0], "{kind}");
        bench.pass(60_000);
        assert_eq!(bench.present(kind), names(&["a", "b", "c"]), "{kind}");
    }
}

#[test]
fn removals_of_delta_are_held_and_taken_back() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.remove(CDS, "a");
    bench.remove(CDS, "b");
    bench.pass(4_000);
    bench.send(CDS, "a", b"");
    bench.pass(5_999);
    assert_eq!(bench.present(CDS), names(&["a", "b"]));
    bench.pass(1);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a"]), vec![]));
}

#[test]
fn what_is_meant_passes_after_the_time_however_often_it_is_said_again() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    for _ in 0..10 {
        bench.set(CDS, &["a"]);
        bench.pass(1_000);
    }
    assert_eq!(bench.present(CDS), names(&["a"]));
}

#[test]
fn what_comes_later_is_believed_at_once() {
    let mut bench = Bench::back(CDS, &["a", "b", "c"], options());
    bench.pass(14_999);
    bench.remove(CDS, "a");
    assert_eq!(bench.present(CDS), names(&["a", "b", "c"]));
    bench.pass(1);
    bench.remove(CDS, "b");
    assert_eq!(bench.present(CDS), names(&["a", "c"]));
    bench.remove(CDS, "a");
    bench.pass(9_998);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a", "c"]), vec![9_999]), "the same again keeps its time");
    bench.pass(1);
    assert_eq!(bench.present(CDS), names(&["c"]));
}

#[test]
fn other_types_other_ranks_and_a_time_of_zero_hold_nothing() {
    let mut secrets = Bench::back(SDS, &["a", "b"], options());
    secrets.remove(SDS, "a");
    assert_eq!(secrets.present(SDS), names(&["b"]));
    let mut fallback = Bench::back(CDS, &["a", "b"], options());
    fallback.origin.rank = 1;
    fallback.remove(CDS, "a");
    assert_eq!(fallback.present(CDS), names(&["b"]));
    let mut local = Bench::back(CDS, &["a", "b"], options());
    local.origin.skips_brakes = true;
    local.remove(CDS, "a");
    assert_eq!(local.present(CDS), names(&["b"]));
    let mut off = Bench::back(CDS, &["a", "b"], ViewOptions { brakes: BrakeRules::default(), ..options() });
    off.remove(CDS, "a");
    assert_eq!(off.present(CDS), names(&["b"]));
    let mut never_away = Bench::with(options());
    never_away.set(CDS, &["a", "b"]);
    never_away.set(CDS, &["b"]);
    assert_eq!(never_away.present(CDS), names(&["b"]));
}

#[test]
fn additions_and_changes_of_clusters_pass() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.set(CDS, &["a", "new"]);
    bench.send(CDS, "a", b"changed");
    assert_eq!((bench.present(CDS), bench.waits().len()), (names(&["a", "b", "new"]), 1));
    assert_eq!(bench.body(CDS, Class::Wildcard, "a"), b"changed");
}

#[test]
fn the_last_usable_host_of_a_cluster_stays_until_the_next_word() {
    let mut bench = Bench::new();
    bench.assign("web", USABLE);
    bench.assign("api", USABLE);
    bench.outage(EDS);
    bench.assign("web", DRAINED);
    bench.assign("api", b"");
    assert_eq!((bench.assigned("web"), bench.assigned("api")), (USABLE.to_vec(), USABLE.to_vec()));
    bench.pass(4_000);
    let other = [USABLE, USABLE].concat();
    bench.assign("web", &other);
    bench.assign("api", DRAINED);
    assert_eq!(
        (bench.assigned("web"), bench.waits()),
        (other.clone(), vec![4_000]),
        "one that is as bad keeps its time"
    );
    bench.pass(6_000);
    assert_eq!((bench.assigned("web"), bench.assigned("api")), (other, DRAINED.to_vec()), "and the newest one passes");
}

/// A removed assignment and an assignment without a host are the same word, also if the server says them in turn.
#[test]
fn an_assignment_with_a_usable_host_that_is_removed_stays_until_the_next_word() {
    let mut bench = Bench::new();
    bench.assign("web", USABLE);
    bench.assign("api", USABLE);
    bench.outage(EDS);
    for _ in 0..2 {
        for name in ["web", "api"] {
            let absent = bench.absent(EDS, Class::Named, name);
            bench.apply(vec![absent]);
        }
        bench.pass(2_000);
        bench.assign("web", DRAINED);
        bench.pass(2_000);
        assert_eq!((bench.assigned("web"), bench.assigned("api")), (USABLE.to_vec(), USABLE.to_vec()));
    }
    assert_eq!(bench.waits(), [8_000, 8_000]);
    bench.assign("api", USABLE);
    bench.apply(vec![Update::Interrupted { kind: bench.kind(EDS), of: Selector::Name("web".into()) }]);
    bench.outage(EDS);
    bench.pass(5_000);
    bench.assign("web", DRAINED);
    assert_eq!(bench.waits(), [8_000], "the time goes on");
    bench.pass(2_000);
    assert_eq!((bench.assigned("web"), bench.assigned("api")), (DRAINED.to_vec(), USABLE.to_vec()));
}

#[test]
fn an_assignment_that_had_no_usable_host_is_not_held() {
    let mut bench = Bench::new();
    bench.assign("web", DRAINED);
    bench.outage(EDS);
    bench.assign("web", b"");
    bench.assign("api", b"");
    assert_eq!((bench.assigned("web"), bench.waits()), (Vec::new(), vec![]));
    let absent = bench.absent(EDS, Class::Named, "web");
    bench.apply(vec![absent]);
    assert!(bench.view.tables().entry(&bench.kind(EDS), Class::Named, &"web".into()).unwrap().resource().is_none());
}

#[test]
fn listeners_that_may_exclude_what_is_held_wait_with_it() {
    for kind in [LDS, SRDS] {
        let mut bench = Bench::back(kind, &["a", "b", "c"], options());
        bench.set(kind, &["b", "c", "new"]);
        assert_eq!(bench.present(kind), names(&["a", "b", "c"]), "{kind}");
        assert!(!bench.is_complete(kind), "a new name of it waits");
        bench.pass(2_000);
        bench.send(kind, "b", b"changed");
        assert_eq!((bench.body(kind, Class::Wildcard, "b"), bench.waits()), (Vec::new(), vec![2_000, 2_000, 0]));
        bench.pass(7_999);
        assert_eq!(bench.present(kind), names(&["a", "b", "c"]), "{kind}");
        bench.pass(1);
        assert_eq!(bench.present(kind), names(&["b", "c", "new"]), "{kind}");
        assert_eq!((bench.body(kind, Class::Wildcard, "b"), bench.waits()), (b"changed".to_vec(), vec![]));
        assert!(bench.is_complete(kind), "{kind}");
    }
}

#[test]
fn listeners_that_wait_go_on_when_what_they_wait_for_is_back_and_are_dropped_when_a_set_lacks_them() {
    let mut bench = Bench::back(LDS, &["a", "b"], options());
    bench.set(LDS, &["b", "new", "gone"]);
    bench.pass(1_000);
    bench.set(LDS, &["b", "new"]);
    assert_eq!(bench.waits(), [1_000, 1_000]);
    bench.set(LDS, &["a", "b", "new"]);
    assert_eq!((bench.present(LDS), bench.waits()), (names(&["a", "b", "new"]), vec![]));
    assert!(bench.is_complete(LDS));
}

#[test]
fn a_name_of_a_set_that_cannot_be_read_or_has_an_error_is_there() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.set(CDS, &[]);
    let (kind, retain) = (bench.kind(CDS), Retain::These(BTreeSet::from(["a".into()])));
    bench.apply(vec![Update::FullSet { kind, resources: Vec::new(), retain }]);
    assert_eq!(bench.waits(), [0]);
    let (kind, class, key) = (bench.kind(CDS), Class::Wildcard, Name::from("b"));
    bench.apply(vec![Update::Refresh { kind, class, key, ttl: None }]);
    assert_eq!(bench.waits(), [0; 0], "a heartbeat says that it is there");
}

#[test]
fn a_collection_that_is_removed_keeps_its_members_for_the_time() {
    let mut bench = Bench::new();
    let glob = "xdstp://one/envoy.config.cluster.v3.Cluster/web/*";
    let member = "xdstp://one/envoy.config.cluster.v3.Cluster/web/a";
    let (kind, of) = (bench.kind(CDS), Selector::Name(glob.into()));
    let wanted = InterestChange { kind: kind.clone(), selector: of.clone(), on: true };
    bench.view.change_interest(SessionId(1), wanted, bench.now);
    bench.apply(vec![bench.upsert(CDS, Class::Named, member, b"")]);
    bench.apply(vec![Update::Progress { kind: kind.clone(), of: of.clone(), completeness: Completeness::Complete }]);
    bench.outage(CDS);
    let gone = bench.absent(CDS, Class::Named, glob);
    bench.apply(vec![gone]);
    let is_there = |bench: &Bench| bench.view.tables().members(&kind, &glob.into()).count() == 1;
    assert!(is_there(&bench) && bench.waits().len() == 1);
    bench.pass(9_999);
    assert!(is_there(&bench));
    bench.pass(1);
    assert!(!is_there(&bench) && bench.waits().is_empty());
}

/// Two collections may be of different servers: what waits of one says nothing of the other, and what is held of one does not delay the
/// other.
#[test]
fn what_is_held_of_a_collection_is_no_matter_to_another_one() {
    let mut bench = Bench::new();
    let kind = bench.kind(LDS);
    let [one, two] = ["one", "two"].map(|authority| format!("xdstp://{authority}/{LDS}/web/*"));
    let (in_one, in_two) = (|name: &str| one.replace('*', name), |name: &str| two.replace('*', name));
    let of = |glob: &str| Selector::Name(glob.into());
    let complete = |glob: &str| {
        let (kind, of) = (kind.clone(), of(glob));
        vec![Update::Progress { kind, of, completeness: Completeness::Complete }]
    };
    for glob in [&one, &two] {
        let wanted = InterestChange { kind: kind.clone(), selector: of(glob), on: true };
        bench.view.change_interest(SessionId(1), wanted, bench.now);
    }
    bench.apply(vec![bench.upsert(LDS, Class::Named, &in_one("a"), b"")]);
    bench.apply(complete(&one));
    bench.outage(LDS);
    let gone = bench.absent(LDS, Class::Named, &in_one("a"));
    bench.apply(vec![gone]);
    bench.apply(vec![bench.upsert(LDS, Class::Named, &in_one("b"), b"")]);
    assert_eq!(bench.waits().len(), 2, "the second may have the address of the first");

    bench.origin = Origin { server: 1, ..Origin::default() };
    bench.apply(vec![bench.upsert(LDS, Class::Named, &in_two("x"), b"")]);
    bench.apply(complete(&two));
    assert_eq!(bench.waits().len(), 2);
    let completeness = |bench: &Bench, glob: &str| bench.view.tables().completeness_of(&kind, &of(glob));
    assert_eq!(completeness(&bench, &two), Completeness::Complete);
    assert_ne!(completeness(&bench, &one), Completeness::Complete, "a name of it waits");
    bench.pass(10_000);
    assert_eq!((bench.waits().len(), completeness(&bench, &one)), (0, Completeness::Complete));
}

#[test]
fn an_event_under_a_hold_costs_what_it_concerns() {
    let all: Vec<String> = (0..2_000).map(|number| format!("c{number:04}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut bench = Bench::back(CDS, &all, options());
    bench.set(CDS, &all[..1]);
    assert_eq!(bench.waits().len(), 1_999);
    take_visits();
    bench.send(CDS, "c1000", b"");
    bench.remove(CDS, "c0000");
    let visits = take_visits();
    assert!(visits < 100, "{visits}");
}

/// A delta response lists removals last. A listener that takes over an address must not go ahead of the removal of the one that leaves it.
#[test]
fn what_a_response_adds_waits_for_what_the_same_response_removes() {
    let mut bench = Bench::back(LDS, &["a", "b"], options());
    let both = vec![bench.upsert(LDS, Class::Wildcard, "new", b""), bench.absent(LDS, Class::Wildcard, "a")];
    bench.apply(both);
    assert_eq!((bench.present(LDS), bench.waits().len()), (names(&["a", "b"]), 2));
    bench.pass(10_000);
    assert_eq!(bench.present(LDS), names(&["b", "new"]));
}

#[test]
fn a_removal_by_an_error_arrives_like_any_other() {
    let mut bench = Bench::new();
    bench.assign("web", USABLE);
    bench.outage(EDS);
    let (kind, key, error) = (bench.kind(EDS), "web".into(), Arc::new(NamedError::not_found()));
    let unit = vec![bench.absent(EDS, Class::Named, "web"), Update::Error { kind, key, error }];
    bench.apply(unit);
    assert_eq!(bench.waits().len(), 1);
    bench.pass(10_000);
    assert!(bench.assigned("web").is_empty() && bench.waits().is_empty());
}

#[test]
fn what_waits_outlives_the_end_of_the_ttl_of_what_it_replaces() {
    let mut bench = Bench::back(LDS, &["a", "b"], options());
    let (kind, class, ttl) = (bench.kind(LDS), Class::Wildcard, Some(Duration::from_secs(3)));
    bench.apply(vec![Update::Refresh { kind, class, key: "b".into(), ttl }]);
    bench.remove(LDS, "a");
    bench.send(LDS, "b", b"changed");
    bench.pass(3_000);
    assert_eq!(bench.present(LDS), names(&["a"]), "it has expired");
    bench.pass(7_000);
    assert_eq!(bench.body(LDS, class, "b"), b"changed");
}

/// A listener that is requested by its name has no address.
#[test]
fn a_listener_that_is_requested_by_name_waits_for_no_other() {
    let mut bench = Bench::new();
    for name in ["a", "b"] {
        let (kind, selector) = (bench.kind(LDS), Selector::Name(name.into()));
        bench.view.change_interest(SessionId(1), InterestChange { kind, selector, on: true }, bench.now);
    }
    bench.apply(vec![bench.upsert(LDS, Class::Named, "a", b"")]);
    bench.outage(LDS);
    let gone = bench.absent(LDS, Class::Named, "a");
    bench.apply(vec![gone]);
    bench.apply(vec![bench.upsert(LDS, Class::Named, "b", b"new")]);
    assert_eq!((bench.body(LDS, Class::Named, "b"), bench.waits().len()), (b"new".to_vec(), 1));
}

/// The server has the resource, in an unusable form.
#[test]
fn a_resource_that_came_and_cannot_be_read_ends_the_hold_of_its_removal() {
    let mut bench = Bench::back(CDS, &["a", "b", "c"], options());
    bench.remove(CDS, "b");
    bench.remove(CDS, "c");
    assert_eq!(bench.waits().len(), 2);
    let unread = [Name::from("b")].into();
    bench.apply(vec![Update::Unreadable { kind: bench.kind(CDS), of: Selector::Wildcard, names: unread }]);
    assert_eq!(bench.waits().len(), 1);
    bench.pass(60_000);
    assert_eq!(bench.present(CDS), names(&["a", "b"]));
}

/// This is asked after each event.
#[test]
fn until_when_something_is_held_of_a_server_is_known_without_a_look_at_each_name() {
    let many: Vec<String> = (0..1_000).map(|at| format!("c{at:04}")).collect();
    let all: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut bench = Bench::back(CDS, &all, options());
    bench.set(CDS, &all[500..]);
    bench.pass(1_000);
    bench.set(CDS, &all[999..]);
    let ends = BTreeMap::from([(bench.origin.server, bench.now + HOLD)]);
    take_visits();
    assert_eq!((bench.view.holds().held_of_servers(), take_visits()), (ends.clone(), 1), "of one server");
    bench.pass(1_000);
    bench.interrupt(CDS);
    assert_eq!(bench.view.holds().held_of_servers(), ends, "it may say the same again");
    bench.set(CDS, &all);
    assert!(bench.view.holds().held_of_servers().is_empty());
}

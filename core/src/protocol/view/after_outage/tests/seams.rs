//! The hold after an outage together with the order, another server, another outage, and what was loaded from disk.

use super::*;
use crate::protocol::members::Members;
use crate::protocol::view::{Recovering, SavedSet};
use crate::xds::KeyRule;

#[test]
fn another_servers_word_ends_it() {
    let mut bench = Bench::back(CDS, &["a", "b", "c"], options());
    bench.set(CDS, &["a"]);
    bench.origin.server = 1;
    bench.remove(CDS, "b");
    assert_eq!((bench.present(CDS), bench.waits().len()), (names(&["a", "c"]), 1));
    bench.send(CDS, "c", b"");
    bench.pass(60_000);
    assert_eq!(bench.present(CDS), names(&["a", "c"]));
    bench.origin.server = 0;
    bench.outage(CDS);
    bench.set(CDS, &["a"]);
    bench.origin.server = 1;
    bench.set(CDS, &["a"]);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a"]), vec![]));
}

/// XLAT-19: nothing is concluded from a server that is away. When it is back, it says again what it has and what it does not have.
#[test]
fn when_the_stream_is_lost_again_nothing_is_held_of_it_and_nothing_goes() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.assign("web", USABLE);
    bench.outage(EDS);
    bench.remove(CDS, "b");
    bench.assign("web", b"");
    assert_eq!(bench.waits().len(), 2);
    bench.interrupt(CDS);
    bench.apply(vec![Update::Interrupted { kind: bench.kind(EDS), of: Selector::Name("web".into()) }]);
    bench.pass(60_000);
    assert_eq!((bench.present(CDS), bench.assigned("web")), (names(&["a", "b"]), USABLE.to_vec()));
    bench.outage(CDS);
    bench.remove(CDS, "b");
    bench.pass(9_999);
    assert_eq!(bench.present(CDS), names(&["a", "b"]));
    bench.pass(1);
    assert_eq!(bench.present(CDS), names(&["a"]));
}

/// The relay opens a stream again when a client needs to know the end of a set. That is no outage, and the server says again what it lacks.
#[test]
fn a_stream_that_the_relay_opens_again_makes_the_time_neither_shorter_nor_longer() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.assign("web", USABLE);
    bench.pass(14_000);
    bench.remove(CDS, "b");
    bench.assign("web", DRAINED);
    bench.pass(2_000); // the time after the outage is over
    bench.interrupt(CDS);
    bench.apply(vec![Update::Interrupted { kind: bench.kind(EDS), of: Selector::Name("web".into()) }]);
    bench.pass(1_000);
    bench.remove(CDS, "b");
    bench.assign("web", DRAINED);
    assert_eq!(bench.waits(), [2_000, 2_000]);
    bench.pass(7_999);
    assert_eq!((bench.present(CDS), bench.assigned("web")), (names(&["a", "b"]), USABLE.to_vec()));
    bench.pass(1);
    assert_eq!((bench.present(CDS), bench.assigned("web")), (names(&["a"]), DRAINED.to_vec()));
}

#[test]
fn what_is_said_again_long_after_the_stream_was_opened_again_is_believed_at_once() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.pass(14_000);
    bench.remove(CDS, "b");
    bench.pass(2_000);
    bench.interrupt(CDS);
    bench.pass(10_000);
    assert_eq!(bench.present(CDS), names(&["a", "b"]));
    bench.remove(CDS, "b");
    assert_eq!(bench.present(CDS), names(&["a"]));
}

/// What the end of a stream cancels is requested again. Otherwise the server would not say it any more.
#[test]
fn what_is_held_is_known_by_its_server() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.assign("web", USABLE);
    bench.remove(CDS, "b");
    bench.assign("web", b"");
    let said = |server, kind: &str, of: Selector| {
        let (holds, kind) = (bench.view.holds(), bench.kind(kind));
        holds.said_by(server, &kind, &of).map(Name::to_string).collect::<Vec<_>>()
    };
    assert_eq!(said(0, CDS, Selector::Wildcard), ["b"]);
    assert_eq!(said(0, EDS, Selector::Name("web".into())), ["web"]);
    assert_eq!(said(0, EDS, Selector::Name("api".into())), [""; 0]);
    assert_eq!(said(1, CDS, Selector::Wildcard), [""; 0]);
    let kind = bench.kind(CDS);
    let here: Vec<_> = bench.view.holds().here(&kind, Class::Wildcard).map(|(name, _)| name.to_string()).collect();
    assert_eq!(here, ["a"], "it is no evidence that the server has it");
    let held = bench.view.holds().of_name(&kind, &"b".into()).after_outage.unwrap();
    assert_eq!((held.since, held.until), (Some(bench.now), Some(bench.now + HOLD)));
}

#[test]
fn the_end_of_a_ttl_ends_it() {
    let mut bench = Bench::new();
    let kind = bench.kind(CDS);
    bench.set(CDS, &["a", "b"]);
    let (class, ttl) = (Class::Wildcard, Some(Duration::from_secs(3)));
    bench.apply(vec![Update::Refresh { kind, class, key: "b".into(), ttl }]);
    bench.outage(CDS);
    bench.remove(CDS, "b");
    bench.pass(3_000);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a"]), vec![]));
}

#[test]
fn what_was_loaded_from_disk_is_held_too_and_counts_as_removed_for_those_who_may_hold_something_newer() {
    let mut before = Bench::new();
    before.set(CDS, &["a", "b"]);
    let mut bench = Bench::new();
    let (sets, until) = (SavedSet::all_of(before.view.snapshot(), before.now), bench.now + HOLD * 100);
    bench.view.restore(sets, until, bench.now);
    bench.outage(CDS);
    bench.set(CDS, &["a"]);
    let kind = bench.kind(CDS);
    let origin = |bench: &Bench| bench.view.tables().entry(&kind, Class::Wildcard, &"b".into()).unwrap().origin;
    assert!(origin(&bench).is_removed && origin(&bench).from_disk);
    bench.pass(10_000);
    assert_eq!(bench.present(CDS), names(&["a"]));
}

/// ORD-1: when the removal of a cluster is released, the order keeps the cluster for the routes that refer to it.
#[test]
fn the_order_keeps_a_cluster_for_routing_after_that() {
    let mut bench = Bench::back(CDS, &["a", "b"], ViewOptions { reference_hold: HOLD, ..options() });
    let routes = "envoy.config.route.v3.RouteConfiguration";
    let wanted = InterestChange { kind: bench.kind(routes), selector: Selector::Wildcard, on: true };
    bench.view.change_interest(SessionId(1), wanted, bench.now);
    // A virtual host with one route to the cluster.
    let route = [0x12, 7, 0x1a, 5, 0x12, 3, 0x0a, 1, b'b'];
    bench.send(routes, "r", &route);
    bench.remove(CDS, "b");
    bench.pass(10_000);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a", "b"]), vec![]));
    let kind = bench.kind(CDS);
    assert!(bench.view.holds().of_name(&kind, &"b".into()).deferred_removal.is_some());
    bench.send(CDS, "b", b"");
    bench.pass(60_000);
    assert_eq!(bench.present(CDS), names(&["a", "b"]), "it is back");
}

#[test]
fn what_nobody_wants_is_not_held() {
    let mut bench = Bench::back(CDS, &["a", "b"], options());
    bench.remove(CDS, "b");
    let (kind, selector) = (bench.kind(CDS), Selector::Wildcard);
    bench.view.change_interest(SessionId(1), InterestChange { kind, selector, on: false }, bench.now);
    bench.pass(40_000);
    assert_eq!(bench.waits(), [0; 0]);
}

/// The server sends the member to the collection, and has no reason to send it once more.
#[test]
fn a_new_member_of_a_collection_still_waits_when_no_client_requests_it_by_its_name_any_more() {
    let (mut bench, glob) = (Bench::new(), format!("xdstp://one/{LDS}/web/*"));
    let (kind, class) = (bench.kind(LDS), Class::Named);
    let [old, new] = ["old", "new"].map(|name| glob.replace('*', name));
    let change = |name: &str, on| InterestChange { kind: kind.clone(), selector: Selector::Name(name.into()), on };
    bench.view.change_interest(SessionId(1), change(&glob, true), bench.now);
    bench.view.change_interest(SessionId(2), change(&new, true), bench.now);
    let of = Selector::Name(glob.as_str().into());
    let complete = Update::Progress { kind: kind.clone(), of: of.clone(), completeness: Completeness::Complete };
    let first = vec![bench.upsert(LDS, class, &old, b""), complete, bench.absent(LDS, class, &new)];
    bench.apply(first);
    bench.outage(LDS);
    let second = vec![bench.absent(LDS, class, &old), bench.upsert(LDS, class, &new, b"new")];
    bench.apply(second);
    assert_eq!(bench.waits().len(), 2);
    bench.view.change_interest(SessionId(2), change(&new, false), bench.now);
    bench.pass(9_999);
    assert_eq!(bench.waits().len(), 2, "a client requests the collection");
    bench.pass(1);
    assert_eq!((bench.body(LDS, class, &new), bench.body(LDS, class, &old)), (b"new".to_vec(), Vec::new()));
    let members: Vec<_> = bench.view.tables().members(&kind, &glob.as_str().into()).map(Name::to_string).collect();
    assert_eq!(members, [new]);
    assert_eq!(bench.view.tables().completeness_of(&kind, &of), Completeness::Complete);
}

#[test]
fn a_name_that_waits_outside_of_a_collection_is_not_held_when_no_client_requests_it_any_more() {
    let mut bench = Bench::new();
    let (kind, class) = (bench.kind(LDS), Class::Named);
    let [old, new] = ["old", "new"].map(|name| format!("xdstp://one/{LDS}/web/{name}"));
    let change = |name: &str, on| InterestChange { kind: kind.clone(), selector: Selector::Name(name.into()), on };
    [&old, &new].into_iter().for_each(|name| bench.view.change_interest(SessionId(1), change(name, true), bench.now));
    let first = vec![bench.upsert(LDS, class, &old, b""), bench.absent(LDS, class, &new)];
    bench.apply(first);
    bench.outage(LDS);
    let second = vec![bench.absent(LDS, class, &old), bench.upsert(LDS, class, &new, b"new")];
    bench.apply(second);
    assert_eq!(bench.waits().len(), 2);
    bench.view.change_interest(SessionId(1), change(&new, false), bench.now);
    bench.pass(1);
    assert_eq!(bench.waits().len(), 1);
}

/// Servers are shown one client of a view. What they take away with it is not believed before they are shown the next one.
#[test]
fn what_is_taken_away_from_a_client_that_has_left_waits_for_the_next_one() {
    let node = |id: &str| {
        let encoded = [&[0x0a, u8::try_from(id.len()).unwrap()], id.as_bytes()].concat();
        KeyRule::of(Vec::new()).key(&encoded).unwrap().member_node(&encoded).unwrap()
    };
    let (mut bench, mut members) = (Bench::new(), Members::none());
    bench.set(CDS, &["a", "b", "c"]);
    bench.set(SDS, &["s", "t"]);
    members.join(SessionId(1), node("one"), bench.now, bench.now);
    members.join(SessionId(2), node("two"), bench.now, bench.now);
    bench.pass(60_000);
    members.leave(SessionId(1), bench.now);
    let until = members.removals_wait_until().map(|until| (bench.origin.server, until));
    bench.view.note_recovering(until.into_iter().collect::<BTreeMap<_, _>>());
    bench.remove(CDS, "b");
    bench.remove(SDS, "s");
    assert_eq!(bench.present(SDS), names(&["t"]), "secrets go at once");
    assert_eq!(bench.present(CDS), names(&["a", "b", "c"]));
    bench.interrupt(CDS);
    bench.view.note_recovering(BTreeMap::from([(bench.origin.server, bench.now)]));
    bench.set(CDS, &["a", "b", "c"]);
    bench.pass(60_000);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a", "b", "c"]), vec![]));
    bench.remove(CDS, "b");
    assert_eq!(bench.present(CDS), names(&["a", "c"]), "the next one is believed");
}

#[test]
fn what_is_taken_away_from_a_client_that_has_left_goes_in_the_end_if_no_other_is_shown() {
    let mut bench = Bench::new();
    bench.set(CDS, &["a", "b"]);
    bench.view.note_recovering(BTreeMap::from([(bench.origin.server, bench.now + HOLD)]));
    bench.remove(CDS, "b");
    bench.pass(9_999);
    assert_eq!(bench.present(CDS), names(&["a", "b"]));
    bench.pass(1);
    assert_eq!(bench.present(CDS), names(&["a"]));
}

/// Otherwise what the server said last to a client that has left would take effect for the next client.
#[test]
fn without_a_client_nothing_goes_until_the_next_one_was_there_for_the_time() {
    let mut bench = Bench::new();
    bench.set(CDS, &["a", "b", "c"]);
    let note = |bench: &mut Bench, is_attended: bool| {
        let servers = BTreeMap::from([(bench.origin.server, bench.now + HOLD)]);
        bench.view.note_recovering(Recovering { until: servers, is_unattended: !is_attended, ..Recovering::default() });
    };
    note(&mut bench, true);
    bench.remove(CDS, "a");
    bench.pass(9_000);
    note(&mut bench, false);
    bench.remove(CDS, "b");
    bench.pass(60_000);
    assert_eq!(bench.present(CDS), names(&["a", "b", "c"]));
    note(&mut bench, true);
    bench.pass(9_999);
    assert_eq!(bench.present(CDS), names(&["a", "b", "c"]));
    // Clients that poll come and go, so the time of each word starts over only once.
    note(&mut bench, false);
    bench.pass(5_000);
    note(&mut bench, true);
    bench.pass(0);
    assert_eq!(bench.present(CDS), names(&["c"]));
}

/// The stream is opened again with the next client as soon as that client is there. What the server then repeats was held without a client.
#[test]
fn without_a_client_a_word_whose_stream_is_opened_again_for_the_next_one_waits_for_it_and_does_so_once() {
    let mut bench = Bench::new();
    bench.set(CDS, &["a", "b"]);
    let note = |bench: &mut Bench, is_attended: bool| {
        let servers = BTreeMap::from([(bench.origin.server, bench.now + HOLD)]);
        bench.view.note_recovering(Recovering { until: servers, is_unattended: !is_attended, ..Recovering::default() });
    };
    note(&mut bench, false);
    bench.remove(CDS, "b");
    bench.pass(60_000);
    note(&mut bench, true);
    bench.interrupt(CDS);
    bench.pass(0);
    let ends = BTreeMap::from([(bench.origin.server, bench.now + HOLD)]);
    assert_eq!(bench.view.holds().held_of_servers(), ends, "it may say the same again");
    bench.remove(CDS, "b");
    bench.pass(5_000);
    assert_eq!(bench.present(CDS), names(&["a", "b"]), "the first client has come a moment ago");

    // Another client comes when the first one has left, and so on: none stays for as long as a removal waits.
    note(&mut bench, false);
    bench.pass(1_000);
    note(&mut bench, true);
    bench.interrupt(CDS);
    bench.pass(0);
    bench.remove(CDS, "b");
    bench.pass(3_999);
    assert_eq!(bench.present(CDS), names(&["a", "b"]), "the time goes on that had passed");
    bench.pass(1);
    assert_eq!(bench.present(CDS), names(&["a"]));
}

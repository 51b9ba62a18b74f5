//! Counts and ages: what a session has to send, since when, and how many names it could not request.

use super::*;
use crate::protocol::view::{Completeness, InterestChange, Selector};
use crate::protocol::visits::take_visits;

#[test]
fn an_estimate_is_what_the_client_lacks_and_nothing_once_it_was_sent() {
    let size = |world: &World| world.session.report().estimate(world.view.snapshot());
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut world = World::plain(variant);
        world.subscribe(CDS, &["*"], &[]);
        assert_eq!(size(&world), Estimate::default(), "{variant:?}");
        world.whole(CDS, &["a", "b", "c"]);
        let one = world.resource(CDS, "a", "1").body.bytes().len();
        assert_eq!(size(&world), Estimate { bytes: 3 * one, is_first: true }, "{variant:?}");
        world.take_replies();
        assert_eq!(size(&world), Estimate::default(), "{variant:?}");
        world.later(1_000);
        world.apply(vec![Update::Upsert {
            kind: world.kind(CDS),
            class: Class::Wildcard,
            key: "b".into(),
            resource: world.resource(CDS, "b", "2"),
        }]);
        let bytes = if variant == Variant::Sotw { 3 * one } else { one };
        assert_eq!(size(&world), Estimate { bytes, is_first: false }, "{variant:?}: a change");
        world.take_replies();
        world.subscribe(EDS, &["e", "f"], &[]);
        world.set(EDS, "e", "1");
        let bytes = world.resource(EDS, "e", "1").body.bytes().len();
        assert_eq!(size(&world), Estimate { bytes, is_first: true }, "{variant:?}: nothing is known of f");
        world.take_replies();
        assert_eq!(size(&world), Estimate::default(), "{variant:?}");
        world.later(1_000);
        world.set(EDS, "e", "2");
        assert_eq!(size(&world), Estimate { bytes, is_first: false }, "{variant:?}: a change of a name");
        assert_eq!(world.session.report().subscribed_bytes(world.view.snapshot()), 3 * one + bytes, "{variant:?}");
    }
}

#[test]
fn a_client_that_states_what_it_holds_is_estimated_at_nothing_until_it_was_answered() {
    let mut world = World::plain(Variant::Sotw);
    let Request::Sotw(request) = world.made(CDS, &[], &[], "", None) else { unreachable!() };
    world.request(Request::Sotw(DiscoveryRequest { version_info: "7".into(), ..request }));
    world.whole(CDS, &["a"]);
    assert_eq!(world.session.report().estimate(world.view.snapshot()).bytes, 0);
    world.take_replies().unwrap();
    world.later(1_000);
    world.whole(CDS, &["a", "b"]);
    assert!(
        world.session.report().estimate(world.view.snapshot()).bytes > 0,
        "from then on it is a client like others"
    );
}

#[test]
fn a_client_is_behind_since_the_oldest_change_that_it_has_not_been_sent_or_has_not_answered() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut world = World::plain(variant);
        let behind = |world: &World| {
            let summary = world.session.report().summaries(world.view.snapshot(), world.now).next().unwrap();
            (summary.behind_since.map(|since| (since - Moment::START).as_secs()), summary.has_unsent)
        };
        world.later(1_000);
        world.subscribe(CDS, &["*"], &[]);
        world.later(1_000);
        world.whole(CDS, &["a", "b"]);
        assert_eq!(behind(&world), (Some(1), true), "{variant:?}: since its request");
        world.later(1_000);
        let nonce = world.take_replies().unwrap();
        assert_eq!(behind(&world), (Some(1), false), "{variant:?}: unanswered");
        world.answer(CDS, &["*"], nonce, None);
        assert_eq!(behind(&world), (None, false), "{variant:?}");
        world.later(7_000);
        world.set(CDS, "a", "2");
        world.later(5_000);
        let nonce = world.take_replies().unwrap();
        world.set(CDS, "b", "2");
        assert_eq!(behind(&world), (Some(10), true), "{variant:?}: the older of the two");
        world.answer(CDS, &["*"], nonce, None);
        assert_eq!(behind(&world), (Some(15), true), "{variant:?}: only the later one is left");
        let nonce = world.take_replies().unwrap();
        world.answer(CDS, &["*"], nonce, Some("no"));
        assert_eq!(behind(&world), (None, false), "{variant:?}: a NACK is an answer");
    }
}

#[test]
fn a_client_has_all_that_it_requested_only_while_nothing_of_that_is_unknown() {
    let mut world = World::plain(Variant::Delta);
    let has_all = |world: &World| world.session.report().has_sent_all_requested(world.view.snapshot(), world.now);
    world.take_replies();
    assert!(!has_all(&world), "it has requested nothing");
    world.subscribe(EDS, &["a", "b"], &[]);
    world.set(EDS, "a", "1");
    world.take_replies();
    assert!(!has_all(&world), "b is unknown");
    world.remove(EDS, "b");
    world.take_replies();
    assert!(has_all(&world), "a name that does not exist is an answer");
    world.subscribe(CDS, &["*"], &[]);
    world.take_replies();
    assert!(!has_all(&world));
    world.whole(CDS, &[]);
    world.take_replies();
    assert!(has_all(&world));
    let folder = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/folder";
    let glob = format!("{folder}/*");
    world.subscribe(EDS, &[glob.as_str()], &[]);
    world.set(EDS, &format!("{folder}/member"), "1");
    world.take_replies();
    assert!(!has_all(&world), "the collection may have more members");
    let (of, completeness) = (Selector::Name(glob.as_str().into()), Completeness::Settled);
    world.apply(vec![Update::Progress { kind: world.kind(EDS), of, completeness }]);
    world.take_replies();
    assert!(has_all(&world));
}

#[test]
fn a_name_without_room_counts_once_and_has_no_error_any_more_once_it_has_room() {
    for is_sent in [false, true] {
        let client = Client { errors: true, ..Client::plain(Variant::Sotw) };
        let mut world = World::with(client, ViewOptions { names_per_view: 3, ..ViewOptions::default() });
        let (kind, other, all) = (world.kind(EDS), SessionId(2), ["a", "b", "c"]);
        let of_other = |on| InterestChange { kind: kind.clone(), selector: Selector::Name("x".into()), on };
        let kept = |world: &World| world.session.report().kept_names();
        let expected = KeptNames { names: 3, unsent: 3, bytes: 3 + 2 * EDS.len() };
        world.view.change_interest(other, of_other(true), world.now);
        world.subscribe(EDS, &all, &[]);
        assert_eq!(kept(&world), expected, "there is no room for c");
        if is_sent {
            assert_eq!(world.poll().map(|reply| reply.errors.len()), Some(1));
        }
        world.subscribe(EDS, &all, &[]);
        assert_eq!(kept(&world), expected, "there still is no room for c");
        assert!(!is_sent || world.poll().is_none(), "it has this error");
        world.view.on_session_left(other, vec![of_other(false)], world.now);
        world.subscribe(EDS, &all, &[]);
        assert_eq!(kept(&world), expected, "there is room for c");
        assert!(world.poll().is_none());
        world.set(EDS, "c", "1");
        assert_eq!(world.poll().map(|reply| reply.resources.len()), Some(1));
    }
}

#[test]
fn i10_the_texts_of_the_urls_and_every_type_after_the_first_are_kept_bytes() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut world = World::plain(variant);
        let kept = |world: &World| world.session.report().kept_names().bytes;
        let prefix = "p".repeat(10_000);
        for (types, url) in [(1, format!("{prefix}/own.A")), (2, format!("{prefix}/own.B")), (3, CDS.to_owned())] {
            let before = kept(&world);
            world.subscribe(&url, &["*"], &[]);
            let added = kept(&world) - before;
            assert!(added >= 2 * url.len(), "{variant:?}: {added} bytes for {types} types");
            assert_eq!(added > 2 * url.len(), types > 1, "{variant:?}: a session costs as much as one with one type");
        }
        let before = kept(&world);
        world.subscribe(&format!("{prefix}/envoy.config.cluster.v3.Cluster"), &["*"], &[]);
        assert_eq!(kept(&world), before, "{variant:?}: the first spelling is kept");
    }
}

#[test]
fn names_without_room_cost_nothing_when_another_is_counted() {
    let client = Client { errors: true, ..Client::plain(Variant::Delta) };
    let mut world = World::with(client, ViewOptions { names_per_view: 1, ..ViewOptions::default() });
    let names: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
    world.subscribe(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    take_visits();
    world.subscribe(EDS, &["another"], &[]);
    let visits = take_visits();
    assert!(visits < 100, "{visits}");
}

#[test]
fn a_name_that_cannot_be_requested_counts_once_however_often_a_list_repeats_it() {
    let [one, other, third] = ["xdstp://x/1", "xdstp://x/2", "xdstp://x/3"];
    let mut world = World::plain(Variant::Sotw);
    let mut refused = |names: &[&str]| {
        world.subscribe(CDS, names, &[]);
        world.session.take_rejected_names()
    };
    let counts =
        [&[one, other][..], &[one, other], &[one, other, third], &[one], &[one], &[one, other]].map(&mut refused);
    assert_eq!(counts, [2, 0, 1, 0, 0, 1]);
    let mut world = World::plain(Variant::Delta);
    let mut refused = |on: &[&str], off: &[&str]| {
        world.subscribe(CDS, on, off);
        world.session.take_rejected_names()
    };
    assert_eq!([refused(&[one, other], &[]), refused(&["a"], &[one]), refused(&[one], &[])], [2, 0, 1]);
}

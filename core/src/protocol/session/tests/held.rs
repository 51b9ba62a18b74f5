//! What a client was sent and how it answered, against a snapshot, and NACKs that begin and end.

use super::*;
use crate::proto::discovery::resource::CacheControl;
use crate::protocol::session::InRejected;
use crate::protocol::view::{InterestChange, Selector};

impl World {
    /// Returns each resource of a type as `name state`, sorted. One of `*` that is requested by name too comes twice.
    fn held(&self, url: &str) -> Vec<String> {
        let holdings = self.session.report().holdings();
        let kind = self.kind(url);
        let of = holdings.types.iter().find(|of| of.kind == kind).unwrap();
        let mut all = Vec::new();
        holdings.each(of, self.view.snapshot(), |held| all.push(format!("{} {:?}", held.name, held.state)));
        all.sort();
        all
    }
}

#[test]
fn a_resource_is_accepted_only_in_the_version_that_the_client_accepted() {
    for (on, variant) in
        [(["*"], Variant::Sotw), (["a"], Variant::Sotw), (["*"], Variant::Delta), (["a"], Variant::Delta)]
    {
        let mut world = World::plain(variant);
        world.subscribe(CDS, &on, &[]);
        world.whole(CDS, &["a"]);
        world.set(CDS, "a", "1");
        assert_eq!(world.held(CDS), ["a NotSent"], "{on:?} {variant:?}");
        for (content, reason) in [("2", None), ("3", Some("no")), ("4", None), ("5", None)] {
            let nonce = world.take_replies().unwrap();
            assert_eq!(world.held(CDS), ["a Unanswered"], "{on:?} {variant:?}, before {content}");
            world.answer(CDS, &on, nonce, reason);
            let state = if reason.is_some() { "a Rejected" } else { "a Accepted" };
            assert_eq!(world.held(CDS), [state], "{on:?} {variant:?}, before {content}");
            world.set(CDS, "a", content);
            assert_eq!(world.held(CDS), ["a NotSent"], "{on:?} {variant:?}: {content}");
        }
        let unanswered = world.take_replies().unwrap();
        world.remove(CDS, "a");
        assert_eq!(world.held(CDS), if on == ["*"] { vec![] } else { vec!["a NotSent"] }, "{on:?} {variant:?}");
        world.answer(CDS, &on, unanswered, None);
    }
}

#[test]
fn a_nack_rejects_what_its_reason_quotes_or_else_what_changed_since_the_last_ack() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a", "b", "c"]);
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, None);
    world.set(CDS, "a", "2");
    world.set(CDS, "b", "2");
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, Some("no"));
    assert_eq!(world.held(CDS), ["a Rejected", "b Rejected", "c Accepted"]);
    world.set(CDS, "b", "3");
    world.set(CDS, "c", "3");
    let nonce = world.take_replies().unwrap();
    assert_eq!(world.held(CDS), ["a Rejected", "b Unanswered", "c Unanswered"], "the NACK is not of that");
    world.answer(CDS, &[], nonce, Some("'b' is bad"));
    assert_eq!(world.held(CDS), ["a Rejected", "b Rejected", "c Rejected"], "the client has accepted nothing newer");
    world.set(CDS, "d", "1");
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, None);
    assert_eq!(
        world.held(CDS),
        ["a Rejected", "b Rejected", "c Accepted", "d Accepted"],
        "c is not quoted, and a is in no reply that was accepted since"
    );
}

#[test]
fn what_was_rejected_stays_so_when_a_reply_without_it_is_accepted_also_in_the_set_as_a_whole() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    let of_set = |world: &World| world.session.report().set_answer(&world.kind(CDS), world.view.snapshot(), world.now);
    assert_eq!(of_set(&world), AckState::None);
    let answer = |world: &mut World, reason: Option<&str>| {
        let nonce = world.take_replies().unwrap();
        world.answer(CDS, &[], nonce, reason);
    };
    answer(&mut world, None);
    world.set(CDS, "b", "1");
    world.set(CDS, "c", "1");
    assert_eq!(of_set(&world), AckState::Accepted, "of what was sent");
    answer(&mut world, Some("no"));
    assert!(matches!(of_set(&world), AckState::Nacked { .. }));
    world.set(CDS, "z", "1");
    answer(&mut world, None);
    assert!(world.session.report().answers().all(|of| of.nack.is_none()), "no NACK stands");
    assert_eq!(world.held(CDS), ["a Accepted", "b Rejected", "c Rejected", "z Accepted"]);
    let nacked = AckState::Nacked { reason: "no".into(), since: world.now, of: InRejected::Unknown };
    assert_eq!(of_set(&world), nacked);
    world.set(CDS, "b", "2");
    answer(&mut world, None);
    assert_eq!(world.held(CDS), ["a Accepted", "b Accepted", "c Rejected", "z Accepted"]);
    assert_eq!(of_set(&world), nacked, "the other has not come again");
    world.remove(CDS, "c");
    world.take_replies();
    assert_ne!(of_set(&world), nacked, "it is in the set no more");
}

#[test]
fn what_may_be_in_a_newer_reply_that_was_accepted_is_not_rejected_on_account_of_a_large_one() {
    let mut world = World::plain(Variant::Delta);
    let options = SessionOptions { reply_bytes: 100_000, ..SessionOptions::default() };
    world.session = Session::new(Client::plain(Variant::Delta), world.table.clone(), Arc::new(options));
    world.subscribe(CDS, &["*"], &[]);
    let all: Vec<_> = (10_000..20_000).map(|number: u32| number.to_string()).collect();
    world.whole(CDS, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let replies: Vec<_> = std::iter::from_fn(|| world.poll()).collect();
    assert!(replies.len() > 1 && replies[0].resources.len() > 1_100, "more than the filter has room for");
    let rejected = |world: &World| world.held(CDS).iter().filter(|held| held.ends_with("Rejected")).count();
    for (number, reply) in replies.iter().enumerate() {
        world.answer(CDS, &[], reply.nonce, (number == 0).then_some("no"));
        assert_eq!(rejected(&world) > 0, number == 0, "after {number}");
    }
}

#[test]
fn the_rest_of_a_reply_whose_reason_quotes_a_resource_is_rejected_until_a_newer_one_is_accepted() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    let all: Vec<_> = (100..600).map(|number: u32| number.to_string()).collect();
    world.whole(CDS, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let rejected =
        |world: &World| -> Vec<_> { world.held(CDS).into_iter().filter(|held| held.ends_with("Rejected")).collect() };
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, Some("'300' is bad"));
    assert_eq!(rejected(&world).len(), all.len(), "the client has rejected the reply");
    world.set(CDS, "z", "1");
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, None);
    assert_eq!(rejected(&world), ["300 Rejected"]);
}

#[test]
fn the_rest_of_a_reply_is_rejected_with_what_is_quoted_if_the_reason_quotes_more_than_is_kept() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a", "b", "c"]);
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, Some(&format!("'a' is bad {}", "and more ".repeat(1_000))));
    world.set(CDS, "z", "1");
    let nonce = world.take_replies().unwrap();
    world.answer(CDS, &[], nonce, None);
    assert_eq!(world.held(CDS), ["a Rejected", "b Rejected", "c Rejected", "z Accepted"]);
}

#[test]
fn a_set_is_rejected_until_all_of_a_large_rejected_reply_is_accepted() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    let all: Vec<_> = (10..50).map(|number: u32| number.to_string()).collect();
    world.whole(CDS, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let first = world.poll().unwrap();
    world.answer(CDS, &[], first.nonce, Some("no"));
    for (part, is_rejected) in [(&first.resources[..16], true), (&first.resources[16..], false)] {
        part.iter().for_each(|resource| world.set(CDS, resource.name.as_str(), "2"));
        let nonce = world.take_replies().unwrap();
        world.answer(CDS, &[], nonce, None);
        let of_set = world.session.report().set_answer(&world.kind(CDS), world.view.snapshot(), world.now);
        assert_eq!(matches!(of_set, AckState::Nacked { .. }), is_rejected, "{} are accepted", part.len());
    }
}

#[test]
fn what_a_client_had_accepted_is_not_rejected_with_a_full_set_that_has_it_too() {
    let mut world = World::plain(Variant::Sotw);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    for (name, reason) in [("b", None), ("c", Some("no"))] {
        let nonce = world.take_replies().unwrap();
        world.answer(CDS, &["*"], nonce, None);
        world.set(CDS, name, "1");
        let nonce = world.take_replies().unwrap();
        world.answer(CDS, &["*"], nonce, reason);
        world.set(CDS, "a", name);
    }
    world.take_replies();
    assert_eq!(world.held(CDS), ["a Unanswered", "b Accepted", "c Rejected"]);
}

#[test]
fn sotw_12_names_that_change_twice_under_the_nonce_of_a_rejected_reply_accept_nothing() {
    let mut world = World::plain(Variant::Sotw);
    world.subscribe(EDS, &["a"], &[]);
    world.set(EDS, "a", "1");
    let nonce = world.take_replies().unwrap();
    world.answer(EDS, &["a"], nonce, Some("no"));
    for names in [&["b"][..], &["b", "c"]] {
        world.answer(EDS, names, nonce, None);
        assert!(world.session.report().answers().all(|of| of.accepted.is_none()), "{names:?}");
    }
}

#[test]
fn a_change_beside_the_body_is_none_for_a_client_that_reads_bodies_alone() {
    for (wrappers, state) in [(false, "a Accepted"), (true, "a NotSent")] {
        for on in ["*", "a"] {
            let mut world = World::new(Client { wrappers, ..Client::plain(Variant::Sotw) });
            world.subscribe(CDS, &[on], &[]);
            world.set(CDS, "a", "1");
            world.whole(CDS, &["a"]);
            let nonce = world.take_replies().unwrap();
            world.answer(CDS, &[on], nonce, None);
            world.put(
                CDS,
                world.of_wrapper(CDS, "a", "1", |wrapper| {
                    wrapper.cache_control = Some(CacheControl { do_not_cache: true });
                }),
            );
            assert_eq!(world.held(CDS), [state], "{on} with wrappers: {wrappers}");
        }
    }
}

#[test]
fn each_nack_is_news_when_it_begins_when_another_version_takes_its_place_and_when_it_ends() {
    let ends: [fn(&mut World); 2] = [|world| world.session.close(), |world| world.subscribe(CDS, &[], &["b"])];
    let variants = [Variant::Sotw, Variant::Delta];
    for (variant, end) in variants.into_iter().flat_map(|variant| ends.map(|end| (variant, end))) {
        let mut world = World::plain(variant);
        world.subscribe(CDS, &["a"], &[]);
        let send = |world: &mut World, content: &str| {
            world.later(1_000);
            world.set(CDS, "a", content);
            let reply = world.poll().unwrap();
            (reply.nonce, reply.version)
        };
        let changes = |world: &mut World| -> Vec<_> {
            world
                .session
                .take_nack_changes()
                .into_iter()
                .map(|change| [change.ended, change.began].map(|of| of.map(|of| of.version)))
                .collect()
        };
        let (nonce, _) = send(&mut world, "1");
        world.answer(CDS, &["a"], nonce, None);
        assert!(changes(&mut world).is_empty(), "{variant:?}: an ACK");
        let (nonce, bad) = send(&mut world, "2");
        world.answer(CDS, &["a"], nonce, Some("no"));
        assert_eq!(changes(&mut world), [[None, Some(bad)]], "{variant:?}");
        world.answer(CDS, &["a"], nonce, Some("no"));
        assert!(changes(&mut world).is_empty(), "{variant:?}: the same again");
        let (nonce, worse) = send(&mut world, "3");
        world.answer(CDS, &["a"], nonce, Some("no"));
        assert_eq!(changes(&mut world), [[Some(bad), Some(worse)]], "{variant:?}");
        let (nonce, _) = send(&mut world, "4");
        world.answer(CDS, &["a"], nonce, None);
        assert_eq!(changes(&mut world), [[Some(worse), None]], "{variant:?}");
        let (nonce, last) = send(&mut world, "5");
        world.answer(CDS, &["a"], nonce, Some("no"));
        changes(&mut world);
        let is_over = [[Some(last), None]];
        match variant {
            Variant::Sotw => {
                world.subscribe(CDS, &["b"], &[]);
                assert!(changes(&mut world).is_empty(), "a NACK without a quoted name is of all that it wants");
                end(&mut world);
                assert_eq!(changes(&mut world), is_over, "with the stream or the last subscription");
            }
            Variant::Delta => {
                world.subscribe(CDS, &["b"], &["a"]);
                assert_eq!(changes(&mut world), is_over, "with the one resource of the reply");
                end(&mut world);
                assert!(changes(&mut world).is_empty(), "once");
            }
        }
    }
}

#[test]
fn the_nack_of_a_forgotten_reply_stands_until_what_its_reason_quotes_is_accepted() {
    let mut world = World::plain(Variant::Delta);
    let nacks = |world: &World| world.session.report().answers().filter(|of| of.nack.is_some()).count();
    let answer = |world: &World, name: &str| {
        let (report, kind) = (world.session.report(), world.kind(CDS));
        report.explain(&kind, &name.into(), world.view.snapshot(), world.now).answer
    };
    world.subscribe(EDS, &["e"], &[]);
    world.set(EDS, "e", "1");
    let of_endpoints = world.take_replies().unwrap();
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a", "bad"]);
    let bad = world.take_replies().unwrap();
    let change = |content: u32| {
        world.set(CDS, "a", &content.to_string());
        world.take_replies().unwrap()
    };
    let later: Vec<_> = (2..14).map(change).collect();
    world.answer(CDS, &[], of_endpoints, Some("'bad' is bad"));
    assert_eq!((nacks(&world), world.session.take_nack_changes()), (0, Vec::new()), "a nonce of another type");
    world.answer(CDS, &[], bad, Some("'bad' is bad"));
    assert_eq!((nacks(&world), world.session.take_nack_changes().len()), (1, 1));
    later.iter().for_each(|nonce| world.answer(CDS, &[], *nonce, None));
    assert_eq!(nacks(&world), 1, "none of them had it");
    let of = |of| AckState::Nacked { reason: "'bad' is bad".into(), since: world.now, of };
    assert_eq!(answer(&world, "bad"), of(InRejected::Quoted));
    assert_eq!(answer(&world, "a"), of(InRejected::Not { is_pending: false }));
    world.set(CDS, "bad", "2");
    let mended = world.take_replies().unwrap();
    world.answer(CDS, &[], mended, None);
    assert_eq!((nacks(&world), world.session.take_nack_changes().len()), (0, 1));
    assert_eq!(answer(&world, "bad"), AckState::Accepted);
}

#[test]
fn the_nack_of_a_forgotten_reply_ends_if_what_its_reason_quotes_was_mended_in_another_forgotten_one() {
    for before in [2, 30] {
        let mut world = World::plain(Variant::Delta);
        let nacks = |world: &World| world.session.report().answers().filter(|of| of.nack.is_some()).count();
        world.subscribe(CDS, &["*"], &[]);
        world.whole(CDS, &["a", "bad"]);
        let bad = world.take_replies().unwrap();
        let mut change = |name: &str, content: usize| {
            world.set(CDS, name, &content.to_string());
            world.take_replies().unwrap()
        };
        let mut later: Vec<_> = (0..before).map(|content| change("a", 2 + content)).collect();
        later.push(change("bad", 2));
        later.extend((0..12).map(|content| change("a", 100 + content)));
        world.answer(CDS, &[], bad, Some("'bad' is bad"));
        assert_eq!(nacks(&world), 1, "{before}");
        later.iter().for_each(|nonce| world.answer(CDS, &[], *nonce, None));
        assert_eq!(nacks(&world), 0, "the client has accepted all since: {before}");
    }
}

#[test]
fn a_client_that_leaves_takes_back_all_that_it_subscribed_to_and_no_members_of_collections() {
    let (glob, member) = ("xdstp://x/envoy.config.cluster.v3.Cluster/*", "xdstp://x/envoy.config.cluster.v3.Cluster/m");
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*", "a", glob], &[]);
    world.subscribe(EDS, &["e"], &[]);
    world.set(CDS, member, "1");
    world.take_replies();
    world.session.close();
    let left = world.session.take_interest();
    assert!(left.iter().all(|change| !change.on));
    let text = |change: &InterestChange| match &change.selector {
        Selector::Wildcard => "*".to_owned(),
        Selector::Name(name) => name.to_string(),
    };
    assert_eq!(left.iter().map(text).collect::<Vec<_>>(), ["*", "a", glob, "e"]);
}

/// The view is given a large request in parts.
#[test]
fn i7_changes_of_interest_go_in_parts_in_their_order_and_removals_wait_until_all_are_counted() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["gone"], &[]);
    world.set(CDS, "gone", "1");
    world.take_replies();
    world.session.on_request(world.made(CDS, &["a", "b", "c"], &[], "", None), world.now);
    world.remove(CDS, "gone");
    let mut asked = Vec::new();
    for part in [2, 1] {
        assert_eq!(world.take_replies(), None, "{part} are to come");
        let changes = world.session.take_interest_part(2);
        assert_eq!(changes.len(), part);
        for change in changes {
            asked.push(change.selector.clone());
            world.view.change_interest(ME, change, world.now);
        }
        world.publish();
        world.session.on_interest_applied();
    }
    assert_eq!(asked, ["a", "b", "c"].map(|name| Selector::Name(name.into())));
    assert_eq!(world.session.take_interest_part(2), []);
    assert_eq!(names(&world.poll().unwrap().removed), ["gone"]);
}

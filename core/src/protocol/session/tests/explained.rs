//! What operators are shown of one name, and of the differences between a client and its view.

use super::*;
use crate::proto::code::UNAVAILABLE;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::session::InRejected;
use crate::protocol::session::acks::AckTracker;
use crate::protocol::session::carried::ReplyAge;
use crate::protocol::session::delays::DelayReason;
use crate::protocol::session::rejections::SentResource;
use crate::protocol::session::reply::SentReply;
use crate::protocol::view::ViewOptions;
use crate::protocol::view::{AbsenceEvidence, NamedError, Revision};
use crate::xds::{Access, AccessRule, NamePattern};

impl World {
    fn book(&self, url: &str, name: &str) -> NameBook {
        self.session.report().explain(&self.kind(url), &name.into(), self.view.snapshot(), self.now)
    }

    fn sent(&self, url: &str, name: &str) -> LastSent {
        self.book(url, name).sent
    }

    fn delay(&self, url: &str, name: &str) -> Option<(DelayReason, Option<Moment>)> {
        self.book(url, name).delay.map(|delay| (delay.reason, delay.until))
    }

    /// The names that are missing, outdated, surplus and unknown.
    fn differences(&self, url: &str) -> [String; 4] {
        let kind = self.kind(url);
        let mut all = self.session.report().differences(self.view.snapshot(), 9, self.now);
        let (_, of) = all.find(|(of, _)| **of == kind).unwrap();
        [&of.missing, &of.outdated, &of.surplus, &of.unknown].map(|list| {
            assert_eq!(list.first.len(), list.count);
            names(&list.first).join(",")
        })
    }
}

/// For `*` and for single names, in both variants.
fn each(url: &'static str) -> impl Iterator<Item = (World, bool)> {
    let kinds = [Variant::Sotw, Variant::Delta].into_iter().flat_map(|variant| [(variant, true), (variant, false)]);
    kinds.map(move |(variant, is_wildcard)| {
        let mut world = World::plain(variant);
        world.subscribe(url, if is_wildcard { &["*"] } else { &["a", "b", "c", "d"] }, &[]);
        (world, is_wildcard)
    })
}

#[test]
fn what_a_client_was_sent_of_a_name_is_known_after_each_change_of_it() {
    for (mut world, is_wildcard) in each(CDS) {
        let case = (world.variant, is_wildcard);
        assert_eq!(world.sent(CDS, "a"), LastSent::Nothing, "{case:?}");
        world.set(CDS, "a", "1");
        world.whole(CDS, &["a", "b"]);
        assert_eq!(world.sent(CDS, "a"), LastSent::Nothing, "{case:?}: it is cached and not sent");
        world.take_replies();
        for round in ["2", "3"] {
            assert_eq!(world.sent(CDS, "a"), LastSent::Current, "{case:?}");
            world.later(10_000);
            world.set(CDS, "a", round);
            assert_eq!(world.sent(CDS, "a"), LastSent::Earlier, "{case:?}: version {round} is not sent");
            world.take_replies();
            assert_eq!(world.sent(CDS, "a"), LastSent::Current, "{case:?}");
            world.later(10_000);
            world.remove(CDS, "a");
            assert_eq!(world.sent(CDS, "a"), LastSent::Earlier, "{case:?}: it has the resource still");
            world.take_replies();
            assert_eq!(world.sent(CDS, "a"), LastSent::Current, "{case:?}: the removal");
            world.later(10_000);
            world.set(CDS, "a", round);
            assert_eq!(world.sent(CDS, "a"), LastSent::Nothing, "{case:?}: what came after the removal");
            world.take_replies();
        }
        world.later(10_000);
        world.remove(CDS, "a");
        world.set(CDS, "a", "4");
        assert_eq!(world.sent(CDS, "a"), LastSent::Earlier, "{case:?}: it was sent no removal");
    }
}

#[test]
fn differences_are_the_names_of_which_something_is_to_be_sent_and_none_after_it_was() {
    for (mut world, is_wildcard) in each(CDS) {
        let case = (world.variant, is_wildcard);
        let unknown = if is_wildcard { "" } else { "a,b,c,d" };
        assert_eq!(world.differences(CDS), ["", "", "", unknown], "{case:?}");
        ["a", "b", "c"].iter().for_each(|name| world.set(CDS, name, "1"));
        world.whole(CDS, &["a", "b", "c"]);
        world.remove(CDS, "d");
        assert_eq!(world.differences(CDS), ["a,b,c", "", "", ""], "{case:?}");
        world.take_replies();
        assert_eq!(world.differences(CDS), ["", "", "", ""], "{case:?}");
        world.later(10_000);
        world.set(CDS, "a", "2");
        world.remove(CDS, "b");
        world.set(CDS, "d", "1");
        assert_eq!(world.differences(CDS), ["d", "a", "b", ""], "{case:?}");
        (0..3).for_each(|_| {
            world.take_replies();
            world.later(10_000);
        });
        assert_eq!(world.differences(CDS), ["", "", "", ""], "{case:?}");
        world.set(CDS, "b", "2");
        assert_eq!(world.differences(CDS), ["b", "", "", ""], "{case:?}: it was sent the removal");
    }
}

#[test]
fn differences_leave_out_what_a_client_may_not_have_and_name_only_the_first() {
    let rule = AccessRule { types: vec![EDS_NAME.into()], names: vec![NamePattern::parse("secret*")], peers: vec![] };
    let clearance = Access::of(vec![rule]).clearance(None);
    let mut world = World::new(Client { clearance, ..Client::plain(Variant::Delta) });
    world.subscribe(EDS, &["*"], &[]);
    world.whole(EDS, &["a", "b", "c", "secret"]);
    assert_eq!(world.differences(EDS), ["a,b,c", "", "", ""]);
    let (_, of) = world.session.report().differences(world.view.snapshot(), 2, world.now).next().unwrap();
    assert_eq!((names(&of.missing.first), of.missing.count), (vec!["a", "b"], 3));
    world.take_replies();
    world.whole(EDS, &["a"]);
    assert_eq!(world.differences(EDS), ["", "", "b,c", ""]);
}

const EDS_NAME: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

#[test]
fn what_keeps_a_change_from_a_client_is_shown_with_its_end_and_no_longer_than_it_does() {
    let mut world = World::plain(Variant::Sotw);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a", "b"]);
    let nonce = world.take_replies().unwrap();
    assert_eq!(world.delay(CDS, "a"), None);
    world.set(CDS, "a", "2");
    world.take_replies();
    let until = world.now + Duration::from_millis(500);
    assert_eq!(world.delay(CDS, "a"), Some((DelayReason::Unanswered, Some(until))));
    assert_eq!(world.delay(EDS, "a"), None, "another type waits for nothing");
    world.answer(CDS, &["*"], nonce, None);
    assert_eq!(world.take_replies(), Some(nonce + 1));
    assert_eq!(world.delay(CDS, "a"), None);
    world.remove(CDS, "b");
    world.take_replies();
    assert_eq!(world.delay(CDS, "b"), Some((DelayReason::Unanswered, Some(until))), "a removal waits too");
    world.answer(CDS, &["*"], nonce + 1, None);
    assert_eq!(world.take_replies(), Some(nonce + 2));
    assert_eq!(world.delay(CDS, "b"), None);
}

#[test]
fn a_removal_is_said_to_wait_for_the_additions_of_other_types_and_an_addition_is_not() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.subscribe(EDS, &["e"], &[]);
    world.subscribe(RDS, &["r"], &[]);
    world.whole(CDS, &["a", "b"]);
    world.set(RDS, "r", "1");
    world.set(EDS, "e", "1");
    world.take_replies();
    world.later(10_000);
    world.put(
        CDS,
        world.of_wrapper(CDS, "new", "1", |wrapper| {
            let any = wrapper.resource.as_mut().unwrap();
            any.value = [any.value.as_ref(), &[0x1a, 4, 0x0a, 2, 0x1a, 0]].concat().into(); // its endpoints come over ADS
        }),
    );
    world.set(RDS, "r", "to new");
    world.remove(CDS, "b");
    world.take_replies();
    let until = Some(world.now + Duration::from_secs(2));
    assert_eq!(world.delay(RDS, "r"), Some((DelayReason::RoutingHold, until)));
    assert_eq!(world.delay(CDS, "b"), Some((DelayReason::AdditionsFirst, until)));
    assert_eq!(world.delay(CDS, "a"), None, "it is present");
    world.later(2_000);
    world.take_replies();
    assert_eq!((world.delay(RDS, "r"), world.delay(CDS, "b")), (None, None));
}

#[test]
fn what_is_known_of_a_name_is_known_enough_for_who_holds_it_only_by_a_report() {
    let mut world = World::plain(Variant::Delta);
    let Request::Delta(request) = world.made(EDS, &["a", "b"], &[], "", None) else { unreachable!() };
    let stated = [("a".to_owned(), "1".to_owned())].into();
    world.request(Request::Delta(DeltaDiscoveryRequest { initial_resource_versions: stated, ..request }));
    assert_eq!(world.book(EDS, "a").known, NameInView::Unknown);
    assert_eq!((world.sent(EDS, "a"), world.sent(EDS, "b")), (LastSent::HeldBefore, LastSent::Nothing));
    for name in ["a", "b"] {
        let (kind, class, evidence) = (world.kind(EDS), Class::Named, Evidence::Silence);
        world.apply(vec![Update::Absent { kind, class, key: name.into(), evidence }]);
    }
    let absent = |suffices| NameInView::Absent { evidence: AbsenceEvidence::Silence, since: Moment::START, suffices };
    assert_eq!((world.book(EDS, "a").known, world.book(EDS, "b").known), (absent(false), absent(true)));
    assert_eq!(world.differences(EDS)[3], "a", "for a client that holds it nothing is known");
    world.take_replies();
    assert_eq!((world.sent(EDS, "a"), world.sent(EDS, "b")), (LastSent::HeldBefore, LastSent::Current));
    world.remove(EDS, "a");
    assert_eq!(world.differences(EDS)[2], "a");
    world.take_replies();
    assert_eq!(world.sent(EDS, "a"), LastSent::Current);
}

#[test]
fn a_name_has_the_answer_of_its_type_and_a_suspected_one_its_nack() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["a", "b"], &[]);
    world.set(CDS, "a", "1");
    assert_eq!(world.book(CDS, "a").answer, AckState::None, "nothing was sent");
    let nonce = world.take_replies().unwrap();
    assert_eq!((world.book(CDS, "a").answer, world.book(CDS, "b").answer), (AckState::Pending, AckState::None));
    world.set(CDS, "b", "1");
    world.answer(CDS, &[], nonce, None);
    assert_eq!(world.book(CDS, "a").answer, AckState::Accepted);
    let nonce = world.take_replies().unwrap();
    world.later(5_000);
    world.answer(CDS, &[], nonce, Some("cluster 'b' is bad"));
    let nacked = |of, since| AckState::Nacked { reason: "cluster 'b' is bad".into(), since, of };
    let elsewhere = InRejected::Not { is_pending: false };
    assert_eq!(world.book(CDS, "a").answer, nacked(elsewhere, world.now), "it was accepted before");
    assert_eq!(world.book(CDS, "b").answer, nacked(InRejected::Quoted, world.now));
    world.set(CDS, "b", "2");
    let nonce = world.take_replies().unwrap();
    assert_eq!(world.book(CDS, "b").answer, nacked(InRejected::Quoted, world.now), "it is sent, and not accepted");
    world.answer(CDS, &[], nonce, None);
    assert_eq!(world.book(CDS, "b").answer, AckState::Accepted);
}

#[test]
fn a_rejected_reply_of_one_resource_is_about_that_one_whatever_it_removes() {
    let mut acks = AckTracker::default();
    let options = SessionOptions::default();
    let world = World::plain(Variant::Delta);
    let kind = world.kind(CDS);
    let reply =
        Reply { removed: vec!["gone".into()], ..Reply::sample(kind.clone(), vec![world.resource(CDS, "a", "1")]) };
    let (version, revision, carried) = (reply.version, reply.revision, ReplyAge::default());
    let sent = SentReply { nonce: 1, version, revision, is_full_set: false, sent: world.now, carried };
    acks.sent(sent, world.now, &options);
    acks.note_content(sent, ReplyNames::of(["a".into(), "gone".into()].iter()), &reply, &options);
    acks.answer("1", Some((3, "no".into())), world.now);
    let of =
        |name: &str| acks.in_rejected(&SentResource::of(&kind, &name.into(), None, Revision::ZERO)).map(|of| of.of);
    assert_eq!(of("a"), Some(InRejected::Alone));
    assert_eq!(of("gone"), Some(InRejected::Among { quotes_others: false }));
}

#[test]
fn an_error_of_a_name_without_a_value_is_no_reason_to_show_it_as_sent() {
    let mut world = World::new(Client { errors: true, ..Client::plain(Variant::Delta) });
    world.subscribe(EDS, &["a"], &[]);
    let error = Arc::new(NamedError { code: UNAVAILABLE, message: "later".into() });
    world.apply(vec![Update::Error { kind: world.kind(EDS), key: "a".into(), error }]);
    assert!(world.poll().is_some_and(|reply| reply.errors.len() == 1));
    world.take_replies();
    assert_eq!((world.book(EDS, "a").known, world.sent(EDS, "a")), (NameInView::Unknown, LastSent::Nothing));
    assert_eq!(world.differences(EDS), ["", "", "", "a"]);
}

#[test]
fn how_a_client_subscribes_to_a_name_and_what_keeps_the_name_from_it_follows_its_requests() {
    let glob = "xdstp://x/envoy.config.cluster.v3.Cluster/f/*";
    let member = "xdstp://x/envoy.config.cluster.v3.Cluster/f/m";
    let mut world =
        World::with(Client::plain(Variant::Delta), ViewOptions { names_per_view: 2, ..ViewOptions::default() });
    let by = |world: &World, name: &str| {
        let of = world.book(CDS, name).subscribed;
        (of.by_name, of.by_wildcard, of.by_collection.is_some(), of.similar.map(|name| name.to_string()))
    };
    let obstacle = |world: &World, name: &str| world.book(CDS, name).obstacle;
    assert!(!world.book(CDS, "a").subscribed.to_type);
    world.subscribe(CDS, &["cluster", glob], &[]);
    assert_eq!(by(&world, "cluster"), (true, false, false, None));
    assert_eq!(by(&world, "clutser"), (false, false, false, Some("cluster".into())));
    assert_eq!(by(&world, "another"), (false, false, false, None));
    assert_eq!(by(&world, member), (false, false, true, None));
    world.set(CDS, member, "1");
    world.take_replies();
    assert_eq!(by(&world, member), (false, false, true, None), "it was sent, and is no name of its own");
    world.subscribe(CDS, &["more"], &[]);
    assert_eq!(obstacle(&world, "more"), Some(Obstacle::NoRoom));
    assert_eq!(obstacle(&world, "cluster"), None);
    world.subscribe(CDS, &["*"], &[glob]);
    assert_eq!(by(&world, "clutser"), (false, true, false, None));
    assert_eq!(by(&world, member), (false, true, false, None));
    world.later(60_000);
    world.view.on_time(world.now);
    world.subscribe(CDS, &["more"], &[]);
    assert_eq!(obstacle(&world, "more"), None, "there is room, and it was requested again");
    assert!(matches!(obstacle(&world, "xdstp://y/envoy.config.cluster.v3.Cluster/a"), Some(Obstacle::Rejected(_))));
}

#[test]
fn a_complete_wildcard_set_says_nothing_of_names_of_other_authorities() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    assert!(world.book(CDS, "other").is_outside);
    let book = world.book(CDS, "xdstp://x/envoy.config.cluster.v3.Cluster/other");
    assert_eq!((book.is_outside, book.known), (false, NameInView::Unknown));
}

/// The body has another name, which only the wrapper corrects.
#[test]
fn a_resource_that_a_client_cannot_read_is_said_to_be_so_and_only_to_that_client() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut world = World::plain(variant);
        world.subscribe(CDS, &["plain", "renamed"], &[]);
        world.set(CDS, "plain", "1");
        let renamed = world.of_wrapper(CDS, "other", "1", |wrapper| wrapper.name = "renamed".into());
        world.put(CDS, renamed);
        let obstacles = ["plain", "renamed"].map(|name| world.book(CDS, name).obstacle);
        assert_eq!(obstacles, [None, (variant == Variant::Sotw).then_some(Obstacle::Unreadable)]);
        world.take_replies();
        let sent = if variant == Variant::Sotw { LastSent::Nothing } else { LastSent::Current };
        assert_eq!((world.sent(CDS, "plain"), world.sent(CDS, "renamed")), (LastSent::Current, sent));
    }
}

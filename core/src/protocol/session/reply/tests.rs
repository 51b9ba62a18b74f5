use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper, Status};
use crate::proto::{Any, Request};
use crate::protocol::session::{AnswerEffect, Client, Reply, Session, Step, Variant};
use crate::protocol::view::{Class, Evidence, Leases, NameChanged, Origin, Retain, SessionId, Update, View};
use crate::xds::{BodyStore, Clearance, Resource, Type, TypeTable};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const ME: SessionId = SessionId(1);

/// A view and one client, in virtual seconds.
struct Bench {
    view: View,
    session: Session,
    leases: Leases,
    table: Arc<TypeTable>,
    store: BodyStore,
    variant: Variant,
}

fn at(seconds: f64) -> Moment {
    Moment::START + Duration::from_secs_f64(seconds)
}

fn after(seconds: f64) -> Option<Duration> {
    Some(Duration::from_secs_f64(seconds))
}

impl Bench {
    fn new(variant: Variant) -> Self {
        let table = Arc::new(TypeTable::new());
        let client = Client { clearance: Clearance::default(), ..Client::of_node(&[], variant, None) };
        let session = Session::new(client, table.clone(), Arc::default());
        let (view, leases) = (View::new(table.clone(), Arc::default()), Leases::new(Arc::default()));
        Self { view, session, leases, table, store: BodyStore::default(), variant }
    }

    fn kind(&self, url: &str) -> Type {
        self.table.resolve(url)
    }

    fn resource(&self, url: &str, name: &str, content: &str) -> Arc<Resource> {
        // The body starts with the name, without which a SotW client could not be sent the resource. A field that no type has follows.
        let mut value = vec![0x0a, name.len() as u8];
        value.extend(name.bytes().chain([0xc2, 0x3e, content.len() as u8]).chain(content.bytes()));
        let body = Any { type_url: url.into(), value: Bytes::from(value) };
        let wrapper = Wrapper { name: name.into(), resource: Some(body), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind(url), &self.store).unwrap())
    }

    fn subscribe(&mut self, url: &str, names: &[&str], now: f64) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let request = match self.variant {
            Variant::Sotw => {
                Request::Sotw(DiscoveryRequest { type_url: url.into(), resource_names: names, ..Default::default() })
            }
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                type_url: url.into(),
                resource_names_subscribe: names,
                ..Default::default()
            }),
        };
        self.session.on_request(request, at(now));
        for change in self.session.take_interest() {
            self.view.change_interest(ME, change, at(now));
        }
        self.session.on_interest_applied();
        self.publish();
    }

    fn publish(&mut self) {
        let marks: Vec<NameChanged> = self.view.publish().0.into_values().flatten().collect();
        marks.iter().for_each(|mark| self.session.on_name_changed(mark));
    }

    /// Lets the server send a resource, which is applied at once.
    fn set(&mut self, url: &str, name: &str, content: &str, now: f64) {
        let (kind, state) = (self.kind(url), self.view.snapshot());
        let has_wildcard = self.session.report().summaries(state, at(now)).any(|of| *of.kind == kind && of.wildcard);
        let class = if has_wildcard { Class::Wildcard } else { Class::Named };
        let resource = self.resource(url, name, content);
        let update = Update::Upsert { kind: self.kind(url), class, key: name.into(), resource };
        self.apply(vec![update], now, now);
    }

    fn whole(&mut self, url: &str, all: &[(&str, &str)], now: f64) {
        let resources = all.iter().map(|(name, content)| self.resource(url, name, content)).collect();
        self.apply(vec![Update::FullSet { kind: self.kind(url), resources, retain: Retain::nothing() }], now, now);
    }

    fn apply(&mut self, updates: Vec<Update>, received: f64, now: f64) {
        self.view.apply_received(Origin::default(), updates, at(received), at(now));
        self.publish();
    }

    fn reply(&mut self, now: f64) -> Option<Reply> {
        let newest = self.view.snapshot().clone();
        match self.session.poll(&newest, &mut self.leases, at(now)) {
            Step::Reply(reply) => Some(*reply),
            Step::Idle(_) => None,
            Step::End(end) => panic!("{end}"),
        }
    }

    fn lag(&mut self, now: f64) -> ReplyLag {
        match self.reply(now) {
            Some(reply) => reply.lag,
            None => panic!("no reply at {now}: {:#?} {:#?}", self.session, self.view.snapshot()),
        }
    }

    fn answer(&mut self, url: &str, nonce: u64, is_nack: bool, now: f64) -> Option<AnswerEffect> {
        let nonce = nonce.to_string();
        let error_detail = is_nack.then(Status::default);
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                type_url: url.into(),
                response_nonce: nonce,
                error_detail,
                resource_names: vec![if url == CDS { "*" } else { "a" }.into()],
                ..Default::default()
            }),
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                type_url: url.into(),
                response_nonce: nonce,
                error_detail,
                ..Default::default()
            }),
        };
        self.session.on_request(request, at(now));
        self.session.take_answered()
    }
}

/// Returns a client of `*` that was sent its first reply.
fn steady(variant: Variant) -> Bench {
    let mut bench = Bench::new(variant);
    bench.subscribe(CDS, &["*"], 1.0);
    bench.whole(CDS, &[("a", "1"), ("b", "1")], 2.0);
    let first = bench.reply(2.5).unwrap();
    assert_eq!(first.lag, ReplyLag { request: after(1.5), change: None }, "it answers the request");
    bench.answer(CDS, first.nonce, false, 2.5);
    assert!(bench.reply(2.5).is_none());
    bench
}

#[test]
fn a_change_is_as_old_as_the_response_that_brought_it() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = steady(variant);
        let resource = bench.resource(CDS, "a", "2");
        let update = Update::Upsert { kind: bench.kind(CDS), class: Class::Wildcard, key: "a".into(), resource };
        bench.apply(vec![update], 10.0, 10.5);
        assert_eq!(bench.lag(11.0), ReplyLag { change: after(1.0), request: None });
    }
}

#[test]
fn what_is_merged_into_a_reply_is_as_old_as_its_oldest_change_even_of_one_resource() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = steady(variant);
        bench.set(CDS, "a", "2", 10.0);
        bench.set(CDS, "b", "2", 20.0);
        bench.set(CDS, "a", "3", 30.0);
        assert_eq!(bench.lag(31.0).change, after(21.0));
        bench.set(CDS, "a", "4", 40.0);
        assert_eq!(bench.lag(41.0).change, after(1.0));
    }
}

#[test]
fn a_removal_is_as_old_as_its_response() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = steady(variant);
        let kind = bench.kind(CDS);
        let gone = Update::Absent { kind, class: Class::Wildcard, key: "a".into(), evidence: Evidence::Reported };
        bench.apply(vec![gone], 10.0, 10.0);
        bench.view.on_time(at(10.2)); // a removed cluster stays until the server has been quiet
        bench.publish();
        assert_eq!(bench.lag(13.0), ReplyLag { change: after(3.0), request: None });
    }
}

#[test]
fn a_removal_of_a_name_is_as_old_as_its_response() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        bench.subscribe(EDS, &["a"], 1.0);
        bench.set(EDS, "a", "1", 2.0);
        let first = bench.reply(2.0).unwrap();
        bench.answer(EDS, first.nonce, false, 2.0);
        let gone = |evidence| Update::Absent { kind: bench.kind(EDS), class: Class::Named, key: "a".into(), evidence };
        bench.apply(vec![gone(Evidence::Reported)], 10.0, 10.0);
        match variant {
            Variant::Delta => assert_eq!(bench.lag(13.0), ReplyLag { change: after(3.0), request: None }),
            Variant::Sotw => assert!(bench.reply(13.0).is_none(), "SotW has no removal of it"),
        }
    }
}

#[test]
fn a_name_is_as_old_as_its_request_and_then_as_its_oldest_unsent_change() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        bench.subscribe(EDS, &["a"], 1.0);
        assert!(bench.reply(1.0).is_none());
        bench.set(EDS, "a", "1", 4.0);
        assert_eq!(bench.lag(5.0), ReplyLag { request: after(4.0), change: None });
        bench.answer(EDS, 1, false, 5.0);
        bench.set(EDS, "a", "2", 10.0);
        bench.set(EDS, "a", "3", 20.0);
        assert_eq!(bench.lag(21.0), ReplyLag { change: after(11.0), request: None });
    }
}

#[test]
fn a_name_of_which_the_view_reports_an_old_change_is_no_old_change() {
    let mut bench = Bench::new(Variant::Delta);
    bench.subscribe(EDS, &["a"], 1.0);
    bench.set(EDS, "a", "1", 2.0);
    let old = NameChanged {
        kind: bench.kind(EDS),
        name: "a".into(),
        revision: bench.view.snapshot().revision,
        is_absent: false,
        claimed: None,
    };
    assert_eq!(bench.lag(3600.0).request, after(3599.0));
    bench.session.on_name_changed(&old); // the view counts its interest only now
    bench.set(EDS, "a", "2", 3601.0);
    assert_eq!(bench.lag(3602.0), ReplyLag { change: after(1.0), request: None });
}

#[test]
fn an_ack_counts_once_for_all_that_its_reply_carried_and_a_nack_does_not_count() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = steady(variant);
        bench.set(CDS, "a", "2", 10.0);
        bench.set(CDS, "b", "2", 12.0);
        let reply = bench.reply(12.0).unwrap();
        assert_eq!(reply.begins_wait, Some(at(12.0)));
        let answered = bench.answer(CDS, reply.nonce, false, 15.0).unwrap();
        assert_eq!((answered.is_ack, answered.lag.change), (true, after(5.0)));
        assert_eq!((answered.waited_since, answered.waits_since), (Some(at(12.0)), None));
        let again = bench.answer(CDS, reply.nonce, false, 16.0).unwrap();
        assert!(!again.is_ack && again.lag == ReplyLag::default());
        bench.set(CDS, "a", "3", 20.0);
        let reply = bench.reply(20.0).unwrap();
        let answered = bench.answer(CDS, reply.nonce, true, 21.0).unwrap();
        assert!(!answered.is_ack && answered.lag == ReplyLag::default());
        assert_eq!(answered.waited_since, Some(at(20.0)), "it is an answer");
    }
}

#[test]
fn a_client_that_ends_its_subscription_owes_no_answer() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.subscribe(EDS, &["a"], 1.0);
    bench.set(EDS, "a", "1", 2.0);
    assert_eq!(bench.reply(3.0).unwrap().begins_wait, Some(at(3.0)));
    assert_eq!(bench.session.report().unanswered().count(), 1);
    bench.subscribe(EDS, &[], 4.0);
    let answered = bench.session.take_answered().unwrap();
    assert_eq!((answered.is_ack, answered.waited_since, answered.waits_since), (false, Some(at(3.0)), None));
    assert_eq!(bench.session.report().unanswered().count(), 0);
}

#[test]
fn a_wildcard_that_is_requested_again_is_as_old_as_that_request() {
    let mut bench = steady(Variant::Delta);
    bench.subscribe(CDS, &["*"], 100.0);
    assert_eq!(bench.lag(102.0), ReplyLag { request: after(2.0), change: None });
    bench.set(CDS, "a", "2", 110.0);
    assert_eq!(bench.lag(111.0), ReplyLag { request: None, change: after(1.0) });
}

#[test]
fn a_set_is_as_old_as_the_first_request_that_it_answers() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.subscribe(CDS, &["*"], 1.0);
    bench.subscribe(CDS, &["a"], 2.0);
    bench.set(CDS, "a", "1", 3.0);
    assert_eq!(bench.lag(4.0).request, after(3.0), "neither was answered before");
    bench.subscribe(CDS, &["*"], 10.0);
    bench.whole(CDS, &[("a", "1")], 11.0);
    assert_eq!(bench.lag(12.0).request, after(2.0));
}

#[test]
fn a_delta_client_that_ends_its_subscriptions_owes_no_answer_and_one_that_keeps_some_does() {
    let mut bench = Bench::new(Variant::Delta);
    bench.subscribe(EDS, &["a", "b"], 1.0);
    bench.set(EDS, "a", "1", 2.0);
    bench.reply(3.0).unwrap();
    let mut leave = |name: &str, now: f64| {
        let resource_names_unsubscribe = vec![name.to_owned()];
        let request = DeltaDiscoveryRequest { type_url: EDS.into(), resource_names_unsubscribe, ..Default::default() };
        bench.session.on_request(Request::Delta(request), at(now));
        (
            bench.session.take_answered().map(|answered| answered.waited_since),
            bench.session.report().unanswered().count(),
        )
    };
    assert_eq!(leave("b", 4.0), (None, 1));
    assert_eq!(leave("a", 5.0), (Some(Some(at(3.0))), 0));
}

//! Two members of one view, each given something by a server, and what is found between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::*;
use crate::proto::discovery::{DiscoveryResponse, Resource};
use crate::proto::{Any, Request, Response};
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::{ReceivedResponse, ResponseMessage, ServerQuirks, UpstreamOptions};
use crate::protocol::view::{Selector, ViewOptions};
use crate::xds::{BodyStore, Name, TypeTable};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// A server and one member, with what the server gives the member.
struct Given {
    stream: MemberStream,
    table: Arc<TypeTable>,
    store: BodyStore,
    now: Moment,
}

impl Given {
    /// A member that wants all clusters, and one route configuration.
    fn none() -> Self {
        Self::none_of(&ServerQuirks::default())
    }

    fn none_of(quirks: &ServerQuirks) -> Self {
        let table = Arc::new(TypeTable::new());
        let wanted: Wanted = [
            (table.resolve(CLUSTER), Selector::Wildcard),
            (table.resolve(ROUTES), Selector::Name(Name::from("routes"))),
        ]
        .into_iter()
        .collect();
        let now = Moment::START;
        let terms = (Variant::Sotw, quirks);
        let options = Arc::new(UpstreamOptions::default());
        let stream = MemberStream::new(Bytes::new(), terms, wanted, &table, (&ViewOptions::default(), &options), now);
        let mut given = Self { stream, table, store: BodyStore::default(), now };
        for id in given.stream.streams() {
            given.stream.opened(id, Variant::Sotw);
        }
        given
    }

    fn requests(&mut self) -> Vec<Request> {
        let mut all = Vec::new();
        for id in self.stream.streams() {
            while let Some(request) = self.stream.next_request(id, self.now) {
                all.push(request);
            }
            self.stream.written(id, self.now);
        }
        all
    }

    fn respond(self, url: &str, resources: &[(&str, &str)]) -> Self {
        let any = |(name, content): &(&str, &str)| {
            let mut value = Vec::new();
            prost::encoding::string::encode(1, &(*name).to_owned(), &mut value);
            prost::encoding::string::encode(28, &(*content).to_owned(), &mut value);
            Any { type_url: url.into(), value: value.into() }
        };
        self.respond_with(url, resources.iter().map(any).collect())
    }

    fn respond_with(mut self, url: &str, resources: Vec<Any>) -> Self {
        self.requests();
        let response =
            DiscoveryResponse { resources, type_url: url.into(), nonce: "1".into(), ..DiscoveryResponse::default() };
        let message = ResponseMessage::Decoded(Response::Sotw(response));
        let response = ReceivedResponse::read(message, &self.table, &self.store).unwrap();
        let id = self.stream.streams()[0];
        self.stream.on_received(id, response, self.now);
        self.requests();
        self
    }

    fn after(mut self, time: Duration) -> Self {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(500);
            for id in self.stream.streams() {
                if self.stream.take_liveness_call(id) {
                    self.stream.on_liveness_answer(id);
                }
            }
            self.stream.on_time(self.now);
            self.requests();
        }
        self
    }
}

fn names(mut one: Given, mut other: Given) -> Vec<String> {
    let wanted = one.stream.wanted().clone();
    let certain = one.stream.offer().unwrap().certain;
    let found = unequal(&one.stream.snapshot(), &other.stream.snapshot(), &wanted, &certain);
    found.iter().map(|of| of.name.to_string()).collect()
}

#[test]
fn what_two_members_are_given_is_compared_by_name_when_both_have_all() {
    let first = Given::none().respond(CLUSTER, &[("a", "x"), ("b", "x")]);
    assert!(!first.stream.is_complete(), "the routes are not there");
    let first = first.respond(ROUTES, &[("routes", "x")]);
    assert!(first.stream.is_complete());
    let second = Given::none().respond(CLUSTER, &[("b", "y"), ("c", "x")]).respond(ROUTES, &[("routes", "x")]);
    assert_eq!(names(first, second), ["a", "b", "c"], "one lacks a and c, and b is another");
}

#[test]
fn equal_answers_show_nothing_whatever_their_order() {
    let first = Given::none().respond(CLUSTER, &[("a", "x"), ("b", "x")]).respond(ROUTES, &[("routes", "x")]);
    let second = Given::none().respond(ROUTES, &[("routes", "x")]).respond(CLUSTER, &[("b", "x"), ("a", "x")]);
    assert!(names(first, second).is_empty());
}

#[test]
fn what_travels_beside_a_body_counts() {
    let beside = |metadata: &'static [u8]| {
        let body = Any { type_url: CLUSTER.into(), value: Bytes::from_static(b"\x0a\x01a") };
        let metadata = Some(Bytes::from_static(metadata));
        let wrapper = Resource { name: "a".into(), resource: Some(body), metadata, ..Resource::default() };
        let wrapped = Any {
            type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
            value: wrapper.encode_to_vec().into(),
        };
        Given::none().respond_with(CLUSTER, vec![wrapped]).respond(ROUTES, &[("routes", "x")])
    };
    assert_eq!(names(beside(b"\x0a\x03\x0a\x01k"), beside(b"\x0a\x03\x0a\x01l")), ["a"]);
    assert!(names(beside(b"\x0a\x03\x0a\x01k"), beside(b"\x0a\x03\x0a\x01k")).is_empty());
}

#[test]
fn a_name_that_one_side_does_not_know_is_no_difference_and_one_that_it_has_not_is() {
    let with = || Given::none().respond(CLUSTER, &[("a", "x")]).respond(ROUTES, &[("routes", "x")]);
    let without = || Given::none().respond(CLUSTER, &[("a", "x")]);
    assert!(names(with(), without()).is_empty());
    let silent = without().after(Duration::from_secs(60));
    assert!(silent.stream.is_complete(), "the silence of a live server says that there is none");
    assert_eq!(names(with(), silent), ["routes"]);
}

#[test]
fn the_bytes_of_answers_are_counted() {
    let given = Given::none().respond(CLUSTER, &[("a", &"x".repeat(1_000))]);
    assert!((1_000..2_000).contains(&given.stream.bytes()), "{}", given.stream.bytes());
    assert_eq!(given.stream.resources(), 1);
}

#[test]
fn a_view_can_be_audited_once_it_has_all_that_it_wants_of_its_server() {
    let given = Given::none();
    assert_eq!(given.stream.offer().err(), Some(NotAuditable::NoServer), "it has not answered");
    let given = given.respond(CLUSTER, &[("a", "x")]);
    assert_eq!(given.stream.offer().err(), Some(NotAuditable::Incomplete), "the routes are not there");
    let given = given.respond(ROUTES, &[("routes", "x")]);
    let offer = given.stream.offer().unwrap();
    assert_eq!((offer.server, offer.variant, &offer.wanted), (0, Variant::Sotw, given.stream.wanted()));
    assert!(offer.bytes > 0);
    let none: Wanted = std::iter::empty().collect();
    assert!(offer.wanted.also_in(&none).is_empty() && offer.wanted.also_in(&offer.wanted) == offer.wanted);
}

#[test]
fn a_relay_is_not_asked_as_another_member() {
    let mut given = Given::none().respond(CLUSTER, &[("a", "x")]).respond(ROUTES, &[("routes", "x")]);
    assert!(given.stream.offer().is_ok());
    let id = given.stream.streams()[0];
    given.stream.on_relay(id);
    assert_eq!(given.stream.offer().err(), Some(NotAuditable::Relay), "it has both in one view");
}

#[test]
fn what_the_view_keeps_on_purpose_is_no_difference_and_what_it_lacks_is() {
    let keeping = ServerQuirks { ignore_deletions: true, ..ServerQuirks::default() };
    let keeper = || {
        let view = Given::none_of(&keeping).respond(CLUSTER, &[("a", "x"), ("gone", "x")]);
        view.respond(ROUTES, &[("routes", "x")]).respond(CLUSTER, &[("a", "x")])
    };
    let member =
        |clusters: &[(&str, &str)]| Given::none().respond(CLUSTER, clusters).respond(ROUTES, &[("routes", "x")]);
    let held = keeper().stream.snapshot();
    assert_eq!(held.present(&TypeTable::new().resolve(CLUSTER)), 2, "it is kept");
    assert!(names(keeper(), member(&[("a", "x")])).is_empty());
    assert_eq!(names(keeper(), member(&[("a", "y"), ("b", "x")])), ["a", "b"]);
}

#[test]
fn what_only_the_view_has_counts_where_it_is_certain() {
    let given =
        |clusters: &[(&str, &str)]| Given::none().respond(CLUSTER, clusters).respond(ROUTES, &[("routes", "x")]);
    let (mut view, mut member) = (given(&[("a", "x"), ("b", "x")]), given(&[("b", "y")]));
    let wanted = view.stream.wanted().clone();
    let (view, member) = (view.stream.snapshot(), member.stream.snapshot());
    let found = |certain| unequal(&view, &member, &wanted, certain).len();
    assert_eq!((found(&wanted), found(&Wanted::default())), (2, 1));
}

#[test]
fn what_came_and_could_not_be_read_is_not_known_to_be_absent() {
    let cluster = |name: &str| {
        let mut value = Vec::new();
        prost::encoding::string::encode(1, &name.to_owned(), &mut value);
        Any { type_url: CLUSTER.into(), value: value.into() }
    };
    let bad = Any {
        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
        value: Resource { name: "b".into(), ..Resource::default() }.encode_to_vec().into(), // the resource has no body
    };
    let with = |second: Any| {
        Given::none().respond(ROUTES, &[("routes", "x")]).respond_with(CLUSTER, vec![cluster("a"), second])
    };
    assert!(names(with(cluster("b")), with(bad)).is_empty());
    assert_eq!(names(with(cluster("b")), with(cluster("c"))), ["b", "c"]);
}

#[test]
fn a_change_and_one_back_are_seen() {
    let cluster = |content| [("a", content)];
    let mut view = Given::none().respond(ROUTES, &[("routes", "x")]).respond(CLUSTER, &cluster("x"));
    let mut member = Given::none().respond(ROUTES, &[("routes", "x")]).respond(CLUSTER, &cluster("y"));
    let wanted = view.stream.wanted().clone();
    let changed = |view: &mut Given, member: &mut Given| {
        let found = unequal(&view.stream.snapshot(), &member.stream.snapshot(), &wanted, &wanted);
        found.first().and_then(|of| of.changed).unwrap()
    };
    let first = changed(&mut view, &mut member);
    assert_eq!(changed(&mut view, &mut member), first);
    view = view.respond(CLUSTER, &cluster("z")).respond(CLUSTER, &cluster("x"));
    assert!(changed(&mut view, &mut member) > first);
}

//! Rules of the relay as a client (spec section 6), on the pure model: requests out, responses in, facts out.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{CDS, EDS, LDS, RDS};
use weir::proto::discovery::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource, ResourceError, ResourceName, Status,
};
use weir::proto::{Any, Request, Response};
use weir::protocol::moment::Moment;
use weir::protocol::session::Variant;
use weir::protocol::unit::{Fact, InterestChange, Kept, Wanted};
use weir::protocol::upstream::{Epoch, ServerRules, Upstream};
use weir::xds::{BodyStore, TypeTable};

struct Bench {
    upstream: Upstream,
    table: Arc<TypeTable>,
    store: BodyStore,
    now: Moment,
    epochs: Vec<Epoch>,
}

impl Bench {
    fn new(variant: Variant) -> Self {
        Self::with(variant, ServerRules::default())
    }

    fn with(variant: Variant, rules: ServerRules) -> Self {
        let table = Arc::new(TypeTable::new());
        let upstream =
            Upstream::new(variant, Bytes::from_static(b"node"), Arc::new(rules), table.clone(), Arc::default());
        Self { upstream, table, store: BodyStore::default(), now: Moment::START, epochs: Vec::new() }
    }

    fn want(&mut self, url: &str, name: &str, on: bool) {
        let wanted = if name == "*" { Wanted::Star } else { Wanted::Name(name.into()) };
        self.upstream.want(InterestChange { kind: self.table.resolve(url), wanted, on }, self.now);
    }

    fn open(&mut self) {
        self.epochs = self.upstream.streams().iter_mut().map(|stream| stream.opened()).collect();
    }

    fn end(&mut self, at: usize) -> Vec<Fact> {
        let epoch = self.epochs[at];
        self.upstream.streams()[at].ended(epoch)
    }

    /// Requests of one stream, each as `type [names]`, in delta `type +[on] -[off] {versions}`, with ACKs and NACKs told apart.
    fn requests(&mut self, at: usize) -> Vec<String> {
        let stream = &mut self.upstream.streams()[at];
        let mut texts = Vec::new();
        while let Some(request) = stream.next_request(self.now) {
            texts.push(text_of(&request));
        }
        stream.written(self.now);
        texts
    }

    fn respond(&mut self, at: usize, response: Response) -> Vec<String> {
        let epoch = self.epochs[at];
        let facts = self.upstream.streams()[at].on_response(epoch, response, &mut self.store, self.now);
        facts.iter().map(fact_text).collect()
    }

    fn later(&mut self, duration: Duration) -> Vec<String> {
        self.now = self.now + duration;
        let facts = self.upstream.streams().iter_mut().flat_map(|stream| stream.on_time(self.now));
        facts.map(|fact| fact_text(&fact)).collect()
    }
}

fn text_of(request: &Request) -> String {
    let letter = |url: &str| url.rsplit('.').next().and_then(|name| name.chars().next()).unwrap_or('?');
    let node = |node: &Option<Bytes>| if node.is_some() { " with node" } else { "" };
    match request {
        Request::Sotw(request) => {
            let nack = if request.error_detail.is_some() { " NACK" } else { "" };
            let (version, nonce) = (&request.version_info, &request.response_nonce);
            let names = request.resource_names.join(",");
            format!("{} [{names}] v{version} n{nonce}{nack}{}", letter(&request.type_url), node(&request.node))
        }
        Request::Delta(request) => {
            let nack = if request.error_detail.is_some() { " NACK" } else { "" };
            let (on, off) = (request.resource_names_subscribe.join(","), request.resource_names_unsubscribe.join(","));
            let versions: Vec<_> =
                request.initial_resource_versions.iter().map(|(name, v)| format!("{name}:{v}")).collect();
            let (letter, nonce) = (letter(&request.type_url), &request.response_nonce);
            format!("{letter} +[{on}] -[{off}] {{{}}} n{nonce}{nack}{}", versions.join(","), node(&request.node))
        }
    }
}

fn fact_text(fact: &Fact) -> String {
    match fact {
        Fact::Set { class, key, .. } => format!("{class:?} {key} set"),
        Fact::Gone { class, key, .. } => format!("{class:?} {key} gone"),
        Fact::Whole { resources, kept, .. } => {
            let names: BTreeSet<_> = resources.iter().map(|resource| resource.name.to_string()).collect();
            match kept {
                Kept::These(kept) if kept.is_empty() => format!("whole {names:?}"),
                Kept::These(kept) => format!("whole {names:?} and {kept:?}"),
                Kept::Everything => format!("whole {names:?} and all that was there"),
            }
        }
        Fact::Piece { flawed, .. } => if *flawed { "flawed piece" } else { "piece" }.into(),
        Fact::Interrupted { .. } => "interrupted".into(),
        Fact::Refresh { class, key, ttl, .. } => format!("{class:?} {key} lives for {ttl:?}"),
        Fact::Error { key, error, .. } => format!("{key} error {}", error.code),
    }
}

fn any(url: &str, name: &str) -> Any {
    let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
    value.extend(name.bytes());
    Any { type_url: url.into(), value: value.into() }
}

fn sotw(url: &str, names: &[&str], version: &str) -> Response {
    Response::Sotw(DiscoveryResponse {
        version_info: version.into(),
        resources: names.iter().map(|name| any(url, name)).collect(),
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

fn delta(url: &str, names: &[&str], removed: &[&str], version: &str) -> Response {
    let wrapper = |name: &&str| Resource {
        version: version.into(),
        name: name.to_string(),
        resource: Some(any(url, name)),
        ..Default::default()
    };
    Response::Delta(DeltaDiscoveryResponse {
        resources: names.iter().map(wrapper).collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

const WINDOW: Duration = Duration::from_millis(20);

#[test]
fn up_1_and_up_6_the_node_comes_once_and_types_in_make_before_break_order() {
    let mut bench = Bench::new(Variant::Sotw);
    for (url, name) in [(RDS, "r"), (LDS, "*"), (EDS, "e"), (CDS, "*")] {
        bench.want(url, name, true);
    }
    bench.open();
    assert_eq!(bench.requests(0), ["C [] v n with node", "C [e] v n", "L [] v n", "R [r] v n"]);
}

#[test]
fn up_5_changes_of_interest_are_merged_and_the_first_goes_at_once() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n with node"]);
    bench.want(EDS, "b", true);
    assert_eq!(bench.requests(0), [""; 0]);
    bench.later(Duration::from_millis(5));
    bench.want(EDS, "c", true);
    bench.want(EDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[b,c] -[a] {} n"]);
}

#[test]
fn up_7_a_wildcard_alone_goes_in_the_form_that_every_server_knows() {
    for (variant, first) in [(Variant::Sotw, "L [] v n with node"), (Variant::Delta, "L +[] -[] {} n with node")] {
        let mut bench = Bench::new(variant);
        bench.want(LDS, "*", true);
        bench.open();
        assert_eq!(bench.requests(0), [first]);
    }
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "*", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C [*] v n with node"], "a type without that form");
}

#[test]
fn up_8_a_wildcard_is_left_so_that_the_server_notices() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(LDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "*", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [*] v n", "L [] v n"]);
    let mut bench = Bench::new(Variant::Delta);
    bench.want(LDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "*", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L +[] -[*] {} n"]);
}

#[test]
fn xlat_13_a_wildcard_and_names_of_one_type_go_over_streams_of_their_own() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "a", true);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n with node", "C +[e] -[] {} n"]);
    assert_eq!(bench.requests(1), ["C +[] -[] {} n with node"]);
    assert_eq!(bench.respond(1, delta(CDS, &["a", "b"], &[], "1")), ["Star a set", "Star b set", "piece"]);
    assert_eq!(bench.respond(0, delta(CDS, &["a", "b"], &[], "1")), ["Named a set"], "UP-27");
}

#[test]
fn up_11_up_13_and_up_14_a_new_stream_is_told_what_is_held_from_this_server() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.want(EDS, "unknown", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "7"));
    bench.respond(0, delta(CDS, &[], &["a"], "8"));
    bench.respond(0, delta(EDS, &["e"], &[], "9"));
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[] -[] {b:7} n with node", "C +[e,unknown] -[] {e:9} n"]);

    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a"], "7"));
    bench.respond(0, sotw(EDS, &["e"], "9"));
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C [] v7 n with node", "C [e] v n"]);
}

#[test]
fn up_12_another_variant_starts_from_nothing() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, delta(CDS, &["a"], &[], "7"));
    bench.end(0);
    bench.upstream.streams()[0].speak(Variant::Sotw);
    bench.open();
    assert_eq!(bench.requests(0), ["C [] v n with node"]);
}

#[test]
fn up_19_up_20_and_up_23_each_response_is_answered_and_the_good_part_of_a_bad_one_is_used() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    assert_eq!(bench.requests(0), ["C [] v1 n1!"]);
    let facts = bench.respond(0, sotw(CDS, &["a", "b", "b"], "2"));
    assert_eq!(facts, ["Star a set", "flawed piece"], "b is named twice");
    assert_eq!(bench.requests(0), ["C [] v1 n2! NACK"]);
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "3")), ["whole {\"a\"}"]);
    assert_eq!(bench.requests(0), ["C [] v3 n3!"]);
}

#[test]
fn up_22_a_name_both_sent_and_removed_is_refused_and_keeps_its_value() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.want(EDS, "b", true);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(EDS, &["a", "b"], &["b"], "1")), ["Named a set"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1! NACK"]);
}

#[test]
fn up_24_a_name_never_received_is_not_deleted_by_an_older_answer() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(LDS, "a", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "b", true);
    bench.later(WINDOW);
    bench.requests(0);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "1")), ["Named a set"], "it may answer the first request");
    assert_eq!(bench.respond(0, sotw(LDS, &["a", "b"], "2")), ["Named a set", "Named b set"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "3")), ["Named b set", "Named a gone"]);
    assert_eq!(bench.respond(0, sotw(EDS, &["x"], "4")), [""; 0], "UP-28: nobody asked");
}

#[test]
fn up_35_up_36_and_up_37_silence_means_something_only_once_the_request_is_written() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "a", true);
    bench.open();
    assert_eq!(bench.later(Duration::from_secs(40)), [""; 0], "still connecting");
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(14)), [""; 0]);
    bench.end(0);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "the server cannot answer");
    bench.open();
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(14)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Named a gone"]);
    bench.want(EDS, "b", true);
    bench.later(WINDOW);
    bench.requests(0);
    bench.respond(0, sotw(EDS, &["b"], "1"));
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "UP-38");
}

#[test]
fn a_name_dropped_and_wanted_again_within_the_window_is_asked_for_anew() {
    for (variant, told) in
        [(Variant::Delta, ["C +[] -[a] {} n", "C +[a] -[] {} n"]), (Variant::Sotw, ["C [b] v n", "C [a,b] v n"])]
    {
        let mut bench = Bench::new(variant);
        bench.want(EDS, "a", true);
        bench.want(EDS, "b", true);
        bench.open();
        bench.requests(0);
        bench.want(EDS, "a", false);
        bench.want(EDS, "a", true);
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), told, "the server would not send what it believes is held");
    }
}

#[test]
fn a_message_of_an_earlier_opening_is_nothing() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    let old = bench.epochs[0];
    bench.end(0);
    bench.open();
    let facts = bench.upstream.streams()[0].on_response(old, sotw(CDS, &["a"], "1"), &mut bench.store, bench.now);
    assert!(facts.is_empty());
    assert_eq!(bench.requests(0), ["C [] v n with node"], "nothing to answer");
}

#[test]
fn up_25_a_set_with_something_refused_is_not_whole_for_those_who_hold_something() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(CDS, &["a", "b", "b"], &[], "1")), ["Star a set", "flawed piece"]);
    assert_eq!(bench.respond(0, delta(CDS, &["c"], &[], "2")), ["Star c set", "flawed piece"], "b is still unknown");
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "3")), ["Star b set", "piece"]);
}

#[test]
fn up_38_a_name_whose_answer_could_not_be_used_is_not_called_absent() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(EDS, &["a"], &["a"], "1")), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
}

#[test]
fn up_44_and_up_45_an_error_says_absent_only_where_it_means_that() {
    let respond = |code| {
        let mut bench = Bench::new(Variant::Sotw);
        bench.want(LDS, "a", true);
        bench.want(LDS, "b", true);
        bench.open();
        bench.requests(0);
        bench.respond(0, sotw(LDS, &["a", "b"], "1"));
        bench.requests(0);
        let Response::Sotw(mut response) = sotw(LDS, &["b"], "2") else { unreachable!() };
        let resource_name = Some(ResourceName { name: "a".into(), ..Default::default() });
        let error_detail = Some(Status { code, ..Default::default() });
        response.resource_errors = vec![ResourceError { resource_name, error_detail }];
        (bench.respond(0, Response::Sotw(response)), bench.requests(0))
    };
    let unavailable = respond(14);
    assert_eq!(unavailable.0, ["a error 14", "Named b set"], "a counts as present");
    assert_eq!(unavailable.1, ["L [a,b] v2 n2!"]);
    assert_eq!(respond(5).0, ["Named a gone", "a error 5", "Named b set"]);
    assert_eq!(respond(7).0, ["a error 7", "Named b set"], "what is held and not allowed any more is kept (UP-47)");
    assert_eq!(respond(0).1, ["L [a,b] v1 n2! NACK"], "an error that says OK is refused (UP-22)");
}

#[test]
fn up_20_each_answer_has_the_version_that_was_in_use_after_its_own_response() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a", "a"], "1"));
    bench.respond(0, sotw(CDS, &["a"], "2"));
    assert_eq!(bench.requests(0), ["C [] v n1! NACK", "C [] v2 n2!"]);
}

#[test]
fn a_change_of_variant_does_not_keep_what_was_deleted_meanwhile() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    bench.end(0);
    bench.upstream.streams()[0].speak(Variant::Delta);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[] -[] {a:,b:} n with node"], "the server has to say what became of them");
}

fn wrapped(url: &str, name: &str, version: &str, change: impl FnOnce(&mut Resource)) -> Response {
    let mut resource =
        Resource { version: version.into(), name: name.into(), resource: Some(any(url, name)), ..Default::default() };
    change(&mut resource);
    Response::Delta(DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

fn error(code: i32) -> Vec<ResourceError> {
    let resource_name = Some(ResourceName { name: "a".into(), ..Default::default() });
    vec![ResourceError { resource_name, error_detail: Some(Status { code, ..Default::default() }) }]
}

fn asked(variant: Variant, url: &str, names: &[&str], rules: ServerRules) -> Bench {
    let mut bench = Bench::with(variant, rules);
    names.iter().for_each(|name| bench.want(url, name, true));
    bench.open();
    bench.requests(0);
    bench
}

#[test]
fn up_1_a_server_that_wants_the_node_in_every_request_gets_it() {
    let rules = ServerRules { node_always: true, ..ServerRules::default() };
    let mut bench = asked(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1! with node"]);
}

#[test]
fn up_9_a_server_that_takes_an_empty_list_for_everything_is_left_with_the_last_names() {
    let rules = ServerRules { empty_list: false, ..ServerRules::default() };
    let mut bench = asked(Variant::Sotw, LDS, &["a"], rules);
    bench.want(LDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), [""; 0]);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "1")), [""; 0], "and what comes is for nobody");
    assert_eq!(bench.requests(0), ["L [a] v1 n1!"]);
    let mut bench = asked(Variant::Sotw, LDS, &["a"], ServerRules::default());
    bench.want(LDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [] v n"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["x"], "1")), [""; 0], "an old server sends everything then");
}

#[test]
fn up_16_what_a_server_without_initial_versions_does_not_send_again_is_gone() {
    let rules = ServerRules { initial_versions: false, ..ServerRules::default() };
    let mut bench = asked(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, &["a", "b", "c"], &[], "1"));
    bench.requests(0);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[] -[] {} n with node"], "told nothing of what is held");
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "it has not said a word yet");
    bench.respond(0, delta(CDS, &["a"], &[], "2"));
    bench.later(Duration::from_secs(4));
    bench.respond(0, delta(CDS, &["b"], &[], "3"));
    assert_eq!(bench.later(Duration::from_secs(4)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Star c gone"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
}

#[test]
fn up_15_after_a_reconnect_with_versions_what_is_not_mentioned_stays() {
    let mut bench = asked(Variant::Delta, CDS, &["*"], ServerRules::default());
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.end(0);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Star b set", "piece"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
}

#[test]
fn up_37_silence_is_trouble_where_the_server_says_so() {
    let rules = ServerRules { silence_is_transient: true, ..ServerRules::default() };
    let mut bench = asked(Variant::Sotw, EDS, &["a"], rules);
    assert_eq!(bench.later(Duration::from_secs(29)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["a error 14"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
}

#[test]
fn up_40_a_heartbeat_prolongs_what_is_held_and_what_may_have_died_is_not_stated() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let mut bench = asked(Variant::Delta, EDS, &["a"], ServerRules::default());
    assert_eq!(bench.respond(0, wrapped(EDS, "a", "1", |resource| resource.ttl = ttl)), ["Named a set"]);
    bench.requests(0);
    let beat = |version: &str| {
        wrapped(EDS, "a", version, |resource| {
            resource.ttl = ttl;
            resource.resource = None;
        })
    };
    assert_eq!(bench.respond(0, beat("1")), ["Named a lives for Some(60s)"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1!"]);
    assert_eq!(bench.respond(0, beat("2")), [""; 0], "of another version it is no heartbeat, and refused");
    assert_eq!(bench.requests(0), ["C +[] -[] {} n2! NACK"]);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n with node"]);
}

#[test]
fn up_29_a_heartbeat_in_sotw_deletes_nothing() {
    let mut bench = asked(Variant::Sotw, CDS, &["*"], ServerRules::default());
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    let mut wrapper = Resource { version: "1".into(), name: "a".into(), ..Default::default() };
    wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let value = prost::Message::encode_to_vec(&wrapper).into();
    let beat = Any { type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(), value };
    let response = |resources: Vec<Any>| {
        let (version_info, type_url, nonce) = ("1".into(), CDS.into(), "x".into());
        Response::Sotw(DiscoveryResponse { version_info, resources, type_url, nonce, ..Default::default() })
    };
    assert_eq!(bench.respond(0, response(vec![beat.clone()])), ["Star a lives for Some(60s)"]);
    let both = bench.respond(0, response(vec![beat, any(CDS, "c")]));
    assert_eq!(both, ["Star a lives for Some(60s)", "whole {\"c\"} and {\"a\"}"]);
}

#[test]
fn delta_22_and_delta_29_a_removal_of_what_was_asked_for_by_alias_reaches_the_alias() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = asked(Variant::Delta, vhds, &["r/alias", "r/plain"], ServerRules::default());
    let aliased = wrapped(vhds, "r/host", "1", |resource| resource.aliases = vec!["r/alias".into()]);
    assert_eq!(bench.respond(0, aliased), ["Named r/alias set"]);
    assert_eq!(bench.respond(0, delta(vhds, &["r/plain"], &[], "2")), ["Named r/plain set"]);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["V +[r/alias,r/plain] -[] {r/host:1,r/plain:2} n with node"]);
    let gone = bench.respond(0, delta(vhds, &[], &["r/host", "r/plain"], "3"));
    assert_eq!(gone, ["Named r/alias gone", "Named r/plain gone"]);
    let nowhere = wrapped(vhds, "r/alias", "4", |resource| {
        resource.aliases = vec!["r/alias".into()];
        resource.resource = None;
    });
    assert_eq!(bench.respond(0, nowhere), ["Named r/alias gone"], "DELTA-39, DELTA-40: and no heartbeat");
}

#[test]
fn xlat_20_and_up_47_what_is_deleted_is_kept_where_that_is_wished() {
    let rules = ServerRules { hold_deletions: true, ..ServerRules::default() };
    let mut bench = asked(Variant::Sotw, LDS, &["a", "b"], rules.clone());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "2")), ["Named b set"]);
    let mut bench = asked(Variant::Sotw, LDS, &["*"], rules.clone());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "2")), ["whole {\"b\"} and all that was there"]);
    let mut bench = asked(Variant::Delta, EDS, &["a", "never"], rules);
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    assert_eq!(
        bench.respond(0, delta(EDS, &[], &["a", "never"], "2")),
        ["Named never gone"],
        "nothing to keep of that"
    );
    let mut bench = asked(Variant::Delta, EDS, &["a"], ServerRules::default());
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(EDS, &[], &["a"], "2")), ["Named a gone"]);
}

#[test]
fn up_47_a_server_may_mean_by_not_allowed_that_it_is_to_be_dropped() {
    for (fail_on_data_errors, facts) in
        [(false, ["a error 7"].as_slice()), (true, ["Named a gone", "a error 7"].as_slice())]
    {
        let rules = ServerRules { fail_on_data_errors, ..ServerRules::default() };
        let mut bench = asked(Variant::Delta, EDS, &["a"], rules);
        bench.respond(0, delta(EDS, &["a"], &[], "1"));
        let Response::Delta(mut response) = delta(EDS, &[], &[], "2") else { unreachable!() };
        response.resource_errors = error(7);
        assert_eq!(bench.respond(0, Response::Delta(response)), facts);
    }
}

#[test]
fn trn_3_what_exists_in_delta_alone_is_not_asked_for_in_sotw_and_not_called_absent() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(vhds, "r/a", true);
    bench.want(EDS, "e", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C [e] v n with node"]);
    assert_eq!(bench.later(Duration::from_secs(60)), ["Named e gone"]);
}

#[test]
fn up_17_what_is_wanted_once_more_is_asked_for_once_more() {
    let mut bench = asked(Variant::Delta, EDS, &["a"], ServerRules::default());
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    bench.requests(0);
    bench.want(EDS, "a", true);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n"]);
}

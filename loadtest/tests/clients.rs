//! Single clients without sockets: which requests follow from which responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use weir_core::proto::Any;
use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_loadtest::bodies::{self, Stamp};
use weir_loadtest::checks::Check;
use weir_loadtest::fleet::{Action, Behaviour, Client, Outcome, Shared, StreamKey};
use weir_loadtest::kind::Kind;
use weir_loadtest::subscription::{Name, Names};
use weir_loadtest::wire::Variant;

/// A client without sockets, and the streams that it has opened, with their paths.
struct Tester {
    client: Client,
    variant: Variant,
    nonces: u32,
    opened: BTreeMap<StreamKey, &'static str>,
}

impl Tester {
    fn new(behaviour: Behaviour, variant: Variant, listeners: &[&str]) -> Self {
        let shared = Shared { names: Arc::new(Names::default()), truth: None, checks: Arc::new(Check::ALL.into()) };
        let listeners: Vec<_> = listeners.iter().map(|name| Name::from(*name)).collect();
        let client = Client::new(1, behaviour, Some(variant), b"node".to_vec(), &listeners, shared);
        Self { client, variant, nonces: 0, opened: BTreeMap::new() }
    }

    fn connect(&mut self) -> Vec<String> {
        let actions = self.client.connect(Duration::ZERO);
        self.words(actions)
    }

    /// Returns what the client does after a response with these resources, each with what it refers to.
    fn respond(&mut self, key: StreamKey, kind: Kind, update: u64, resources: &[(&str, &[&str])]) -> Vec<String> {
        let outcome = self.outcome(key, kind, update, resources, &[]);
        self.words(outcome.actions)
    }

    fn outcome(
        &mut self,
        key: StreamKey,
        kind: Kind,
        update: u64,
        resources: &[(&str, &[&str])],
        removed: &[&str],
    ) -> Outcome {
        self.nonces += 1;
        let nonce = format!("n{}", self.nonces);
        let version = format!("v{update}");
        let any = |name: &str, refers_to: &[&str]| {
            let refers_to: Vec<_> = refers_to.iter().map(ToString::to_string).collect();
            let stamp = Stamp { update, unix_nanos: 0 };
            Any { type_url: kind.url().into(), value: bodies::write(kind, name, &refers_to, stamp, 0) }
        };
        let message = match self.variant {
            Variant::Sotw => DiscoveryResponse {
                version_info: version,
                resources: resources.iter().map(|(name, refers_to)| any(name, refers_to)).collect(),
                type_url: kind.url().into(),
                nonce,
                ..Default::default()
            }
            .encode_to_vec(),
            Variant::Delta => DeltaDiscoveryResponse {
                resources: resources
                    .iter()
                    .map(|(name, refers_to)| Resource {
                        name: name.to_string(),
                        version: version.clone(),
                        resource: Some(any(name, refers_to)),
                        ..Default::default()
                    })
                    .collect(),
                removed_resources: removed.iter().map(ToString::to_string).collect(),
                type_url: kind.url().into(),
                nonce,
                ..Default::default()
            }
            .encode_to_vec(),
        };
        self.client.on_message(key, message.into(), Duration::ZERO)
    }

    /// Actions in a few words each.
    fn words(&mut self, actions: Vec<Action>) -> Vec<String> {
        let mut words = Vec::new();
        for action in actions {
            match action {
                Action::Open(key, path) => drop(self.opened.insert(key, path)),
                Action::Cancel(key) => words.push(format!("cancel {key}")),
                Action::Send(key, request) => words.push(format!("{key}: {}", self.request(&request))),
            }
        }
        words
    }

    fn request(&self, request: &[u8]) -> String {
        let word = |url: &str| Kind::of_url(url).unwrap().word();
        match self.variant {
            Variant::Sotw => {
                let request = DiscoveryRequest::decode(request).unwrap();
                let answer = if request.error_detail.is_some() { "NACK " } else { "" };
                let names = request.resource_names.join(",");
                format!(
                    "{answer}{} [{names}] {} {}",
                    word(&request.type_url),
                    request.version_info,
                    request.response_nonce
                )
            }
            Variant::Delta => {
                let request = DeltaDiscoveryRequest::decode(request).unwrap();
                let answer = if request.error_detail.is_some() { "NACK " } else { "" };
                let [added, dropped] = [request.resource_names_subscribe, request.resource_names_unsubscribe];
                let stated = request.initial_resource_versions;
                let stated: Vec<_> = stated.iter().map(|(name, version)| format!("{name}={version}")).collect();
                let kind = word(&request.type_url);
                let (added, dropped, stated) = (added.join(","), dropped.join(","), stated.join(","));
                format!("{answer}{kind} +[{added}] -[{dropped}] ={{{stated}}} {}", request.response_nonce)
            }
        }
    }

    fn violated(&mut self) -> Vec<Check> {
        self.client.take_violations().iter().map(|violation| violation.check).collect()
    }
}

#[test]
fn an_envoy_in_delta_waits_with_listeners_for_all_endpoints() {
    let mut envoy = Tester::new(Behaviour::EnvoyAdsDelta, Variant::Delta, &[]);
    assert_eq!(envoy.connect(), ["0: clusters +[] -[] ={} "]);
    assert_eq!(
        envoy.respond(0, Kind::Cluster, 1, &[("a", &[]), ("b", &[])]),
        ["0: endpoints +[a,b] -[] ={} ", "0: clusters +[] -[] ={} n1"]
    );
    assert_eq!(envoy.respond(0, Kind::Endpoints, 1, &[("a", &[])]), ["0: endpoints +[] -[] ={} n2"]);
    assert_eq!(
        envoy.respond(0, Kind::Endpoints, 1, &[("b", &[])]),
        ["0: listeners +[] -[] ={} ", "0: endpoints +[] -[] ={} n3"]
    );
    assert_eq!(
        envoy.respond(0, Kind::Listener, 1, &[("l", &["r"])]),
        ["0: routes +[r] -[] ={} ", "0: listeners +[] -[] ={} n4"]
    );
    assert!(!envoy.client.is_synced());
    assert_eq!(envoy.respond(0, Kind::Route, 1, &[("r", &["a"])]), ["0: routes +[] -[] ={} n5"]);
    assert!(envoy.client.is_synced());

    // A cluster that goes takes its endpoints along.
    let outcome = envoy.outcome(0, Kind::Cluster, 2, &[], &["b"]);
    assert_eq!(envoy.words(outcome.actions), ["0: endpoints +[] -[b] ={} ", "0: clusters +[] -[] ={} n6"]);
    assert_eq!(envoy.violated(), []);

    // A new connection states what is held.
    let again = envoy.connect();
    let expected = ["clusters +[] -[] ={a=v1} ", "endpoints +[a] -[] ={a=v1} ", "listeners +[] -[] ={l=v1} "];
    assert_eq!(again[..3], expected.map(|request| format!("0: {request}")));
    assert_eq!(again[3], "0: routes +[r] -[] ={r=v1} ");
}

#[test]
fn an_envoy_in_sotw_requests_endpoints_again_when_a_cluster_changes() {
    let mut envoy = Tester::new(Behaviour::EnvoyAdsSotw, Variant::Sotw, &[]);
    assert_eq!(envoy.connect(), ["0: clusters []  "]);
    assert_eq!(envoy.respond(0, Kind::Cluster, 1, &[("a", &[])]), ["0: endpoints [a]  ", "0: clusters [] v1 n1"]);
    envoy.respond(0, Kind::Endpoints, 1, &[("a", &[])]);
    assert_eq!(envoy.respond(0, Kind::Cluster, 2, &[("a", &[])]), ["0: endpoints [a] v1 n2", "0: clusters [] v2 n3"]);
    // A set without the cluster: the list of endpoints is empty.
    assert_eq!(envoy.respond(0, Kind::Cluster, 3, &[]), ["0: endpoints [] v1 n2", "0: clusters [] v3 n4"]);
}

/// A server need not send again what the client states in the present version.
#[test]
fn an_envoy_that_was_cut_off_goes_on_where_it_was() {
    let mut envoy = Tester::new(Behaviour::EnvoyAdsSotw, Variant::Sotw, &[]);
    envoy.connect();
    envoy.respond(0, Kind::Cluster, 1, &[("a", &[])]);
    assert_eq!(envoy.connect(), ["0: clusters [] v1 ", "0: endpoints [a]  "]);
    assert_eq!(envoy.respond(0, Kind::Endpoints, 1, &[("a", &[])])[0], "0: listeners []  ");
    assert_eq!(envoy.connect(), ["0: clusters [] v1 ", "0: endpoints [a] v1 ", "0: listeners []  "]);

    let mut envoy = Tester::new(Behaviour::EnvoyAdsDelta, Variant::Delta, &[]);
    envoy.connect();
    envoy.respond(0, Kind::Cluster, 1, &[("a", &[])]);
    envoy.connect();
    envoy.respond(0, Kind::Endpoints, 1, &[("a", &[])]);
    envoy.connect();
    envoy.respond(0, Kind::Listener, 1, &[("l", &["r"])]);
    assert!(!envoy.client.is_synced());
    assert_eq!(envoy.connect()[3], "0: routes +[r] -[] ={} ");
    envoy.respond(0, Kind::Route, 1, &[("r", &["a"])]);
    assert!(envoy.client.is_synced());
}

#[test]
fn an_envoy_per_type_has_a_stream_for_each_name() {
    let mut envoy = Tester::new(Behaviour::EnvoyPerType, Variant::Delta, &[]);
    assert_eq!(envoy.connect(), ["0: clusters +[] -[] ={} ", "1: listeners +[] -[] ={} "]);
    let words = envoy.respond(0, Kind::Cluster, 1, &[("a", &[]), ("b", &[])]);
    assert_eq!(words[..2], ["2: endpoints +[a] -[] ={} ", "3: endpoints +[b] -[] ={} "]);
    assert!(envoy.opened[&3].ends_with("/DeltaEndpoints"));
    let outcome = envoy.outcome(0, Kind::Cluster, 2, &[], &["a"]);
    assert_eq!(envoy.words(outcome.actions)[0], "cancel 2");
}

#[test]
fn a_grpc_client_goes_from_listeners_to_endpoints() {
    let mut grpc = Tester::new(Behaviour::Grpc, Variant::Sotw, &["l"]);
    assert_eq!(grpc.connect(), ["0: listeners [l]  "]);
    assert_eq!(grpc.respond(0, Kind::Listener, 1, &[("l", &["r"])])[0], "0: routes [r]  ");
    assert_eq!(grpc.respond(0, Kind::Route, 1, &[("r", &["c"])])[0], "0: clusters [c]  ");
    assert_eq!(grpc.respond(0, Kind::Cluster, 1, &[("c", &[])])[0], "0: endpoints [c]  ");
    grpc.respond(0, Kind::Endpoints, 1, &[("c", &[])]);
    assert!(grpc.client.is_synced());
}

#[test]
fn clients_that_misbehave_answer_wrongly_or_not_at_all() {
    let cluster: (&str, &[&str]) = ("a", &[]);
    let mut wrong = Tester::new(Behaviour::WrongNonce, Variant::Delta, &[]);
    wrong.connect();
    assert!(wrong.respond(0, Kind::Cluster, 1, &[cluster])[1].ends_with("a nonce that no response had"));

    let mut silent = Tester::new(Behaviour::NeverAcker, Variant::Sotw, &[]);
    silent.connect();
    assert_eq!(silent.respond(0, Kind::Cluster, 1, &[cluster]), ["0: endpoints [a]  "]);
    assert_eq!(silent.respond(0, Kind::Cluster, 2, &[cluster, ("b", &[])]), [""; 0]);

    let mut nacker = Tester::new(Behaviour::Nacker, Variant::Sotw, &[]);
    nacker.connect();
    nacker.respond(0, Kind::Cluster, 1, &[cluster]);
    assert_eq!(nacker.respond(0, Kind::Cluster, 2, &[cluster]), ["0: NACK clusters [] v1 n2"]);
    assert_eq!(nacker.violated(), []);
    nacker.respond(0, Kind::Cluster, 2, &[cluster]);
    assert_eq!(nacker.violated(), [Check::ResendAfterNack]);
}

#[test]
fn what_breaks_a_rule_is_a_violation_with_its_history() {
    let mut envoy = Tester::new(Behaviour::EnvoyAdsDelta, Variant::Delta, &[]);
    envoy.connect();
    envoy.respond(0, Kind::Cluster, 5, &[("a", &[])]);
    envoy.respond(0, Kind::Cluster, 4, &[("a", &[])]);
    assert_eq!(envoy.violated(), [Check::Regression]);
    envoy.respond(0, Kind::Endpoints, 5, &[("b", &[])]);
    assert_eq!(envoy.violated(), [Check::Unasked]);
    envoy.respond(0, Kind::Cluster, 6, &[("c", &[]), ("c", &[])]);
    assert_eq!(envoy.violated(), [Check::Duplicate]);
    envoy.nonces -= 1;
    envoy.respond(0, Kind::Cluster, 6, &[("d", &[])]);
    let violations = envoy.client.take_violations();
    assert_eq!(violations[0].check, Check::Nonce);
    assert!(violations[0].history.iter().any(|line| line.contains("clusters version= nonce=n1 resources=1 first=a")));
    envoy.client.on_message(0, vec![0xff].into(), Duration::ZERO);
    assert_eq!(envoy.violated(), [Check::Readable]);
}

//! The reader, the schema of `weir schema`, and the defaults that the schema states agree.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::json_schema::accepts;
use crate::config::diagnostic::Diagnostics;
use crate::config::form::{Form, ValueReader};
use crate::config::{Config, load, raw, schema, yaml};
use crate::transcode::yaml::parse as yaml_value;

const EXAMPLES: [&str; 7] = [
    include_str!("../../../config/relay.yaml"),
    include_str!("../../../config/failover.yaml"),
    include_str!("../../../config/federation.yaml"),
    include_str!("../../../config/files.yaml"),
    include_str!("../../../config/istio.yaml"),
    include_str!("../../../config/rest.yaml"),
    include_str!("../../../config/demo/relay.yaml"),
];

/// A file with every key, including keys that exclude one another.
const ALL: &str = "
listen:
- address: '127.0.0.1:18000'
  proxy_protocol_from: [10.0.0.0/8]
  tls:
    certificate: c.pem
    key: k.pem
    certificates: [{certificate: c.pem, key: k.pem}]
    client_auth: required
    client_ca: ca.pem
    crl: ca.crl
    trust_domains: [{name: prod.example, bundle: prod.pem}]
- {address: ':18001'}
- {address: 18002}
- {address: 'unix:/run/weir.sock', mode: '0660', owner: weir, group: 1000}
admin:
  address: :19000
  socket: admin.sock
  hosts: [weir.example]
  tls:
    certificate: c.pem
    key: k.pem
    certificates: [{certificate: c.pem, key: k.pem}]
    client_ca: ca.pem
    crl: ca.crl
    trust_domains: [{name: prod.example, bundle: prod.pem}]
    may_read: [{spiffe: 'spiffe://prod.example/a'}, {uri: 'x://a'}, {dns: a.example}]
    may_change: [{spiffe: 'spiffe://prod.example/a'}, {uri: 'x://a'}, {dns: a.example}]
    may_tap: [{spiffe: 'spiffe://prod.example/a'}, {uri: 'x://a'}, {dns: a.example}]
probes: {address: ':19001'}
upstream:
  servers:
  - uri: http://cp:1
    files: [a, b]
    rest: https://cp:2
    refresh_delay: 5s
    request_timeout: 10s
    tls: {ca: ca.pem, certificate: c.pem, key: k.pem, server_name: cp.example}
    proxy: {uri: 'http://proxy:3128', credentials_file: credentials}
    token_file: token
    headers: {x-a: {value: v}, x-b: {file: f}, x-c: {environment: HOME}}
    shared_credential: true
    tenants: [{names: [a], certificate: c.pem, key: k.pem, token_file: t, headers: {x-a: {value: v}, x-b: {file: f}, x-c: {environment: HOME}}}]
    variant: delta
    connect_timeout: 20s
    liveness: {method: health, interval: 0s, timeout: 5s}
    keepalive: {interval: 300s, timeout: 20s}
    backoff: {initial: 1s, factor: 1.6, max: 2m 30s, jitter: 0.2, reset_after: 30s}
    node_in_every_request: false
    supports_initial_resource_versions: false
    max_request_bytes: 16MiB
    accept_compression: true
    max_streams_per_connection: 10
    drain: 5m
    max_connection_age: 1h
    initial_set: pieces
    supports_empty_subscription: false
    ignore_deletions: true
    resource_timer_is_transient_error: true
    fail_on_data_errors: true
  files: one
  authorities:
    a.b: {servers: [{uri: http://cp:1}], fallback_on_reachability_only: true}
    c: {}
  bootstrap: b.json
  bootstrap_from_environment: true
  shared_authorities: [a.b]
  descriptors: [d.pb]
  fallback: {delay: 1s, hold_down: 1m, on_missing: delete}
  backoff: {initial: 1s, factor: 2, max: 120s, jitter: 0, reset_after: 0s}
views: {key: [cluster, metadata.tenant, {id: {part: 1, of: '~'}}, {metadata: {except: [NAME, a.b]}}], preset: consul, node: member, max: 10, max_in_metrics: 0, idle_timeout: 10m, accept_missing_node: true, audit: {interval: 24h}}
shards: 2
watchdog: 1m
ready_after: 5m
clients: {control_plane_identifier: weir, v2: true, compression: auto, vhds_wildcard: none, grpc_fail_fast: false, on_refused_type: end, max_connection_age: 1h}
types: [{name: own.Type, name_field: 1, full_state: true, legacy_wildcard: true, order_with: own.Other}]
access: [{types: [own.Type], names: [a, b*], allow_from: [10.0.0.0/8, '::1']}]
permissions:
- name: one
  identities: [{spiffe: 'spiffe://a/{b}'}, {uri: 'x://y/{b}'}, {dns: '{b}.c'}, {uid: 1}, {gid: 2}, {network: 10.0.0.0/8}]
  node: {cluster: [a, b*], metadata.tenant: c}
  free: [locality]
  types: [own.Type]
  names: [a]
  secrets: ['b/*']
  tenant: d
  relays_for: [e]
  client_status: true
  share: 2
limits:
  message_bytes: 64MiB
  memory: 80%
  incomplete_request_bytes: 1 GiB
  outdated_reply_bytes: 64MiB
  request_bytes_per_second: 2KiB
  request_entries: 1000
  name_bytes: 1KiB
  node_bytes: 100KiB
  lingering: 0
  types_per_stream: 64
  names_per_type: 100
  names_per_stream: 1000
  names_per_view: 2000
  stated_versions_bytes: 1MiB
  cached_bytes: 1GiB
  sought_names: 10
  removal_history_bytes: 1MiB
  removal_history_age: 1m
  absent_names_per_stream: 0
  linger: 30s
  reply_bytes: 2097152
  resource_timer: 15s
  second_silence: 2m
  reference_hold: 0
  clusters_timeout: 20s
  fetch_timeout: 5s
  file_bytes: 64MB
  connections: 10000
  connections_per_address: 0
  connections_per_identity: 100
  new_connections_per_second: 500
  first_request_timeout: 0s
  first_message: 1m
  handshakes: 8
  handshake_timeout: 5s
  handshakes_per_address: 4
  streams_per_connection: 4096
  streams_per_identity: 1000
  new_streams_per_second: 500
  views_per_connection: 10
  views_per_identity: 20
  streams_per_tenant: 0
  names_per_tenant: 0
  views_per_tenant: 0
  tenant_requests_per_second: 0
  streams: 100000
  requests_per_second: 0
  new_names_per_second: 100
  header_bytes: 16KiB
brakes: {enabled: true, types: [envoy.config.cluster.v3.Cluster], share: 40, count: 20, window: 1h, grace: 10m, empty_grace: 30m, agree_after: 0s, after_outage: 3s}
drain: {delay: 0s, grace: 10s, spread: 5s, bytes_per_second: 1MiB}
reload: {watch: true, spread: 1m}
load_reports: {mode: aggregate, streams: 20000, streams_per_connection: 0, max_outage: 5m, bytes_per_view: 64MiB, bytes_total: 256MiB}
rest: {enabled: false, timeout: 800ms, long_poll: 0s, cache_bytes: 64MiB, response_bytes: 256MiB}
state: {path: weir.state, key: state.key, max_age: 24h, when_older: refuse, serve_without_secrets: true}
";

fn faults(text: &str) -> Vec<String> {
    let mut found = Diagnostics::of(Path::new("relay.yaml"));
    let tree = yaml::read(text, &mut found);
    tree.and_then(|tree| raw::Root::read(&tree, &mut ValueReader::new(&mut found, schema)));
    found.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_read_and_the_schema_agree_on_the_examples_and_a_file_with_every_key() {
    for text in EXAMPLES.into_iter().chain([ALL]) {
        assert!(accepts(schema(), &yaml_value(text).unwrap()), "{text}");
        assert_eq!(faults(text), [""; 0]);
    }
}

#[test]
fn the_file_with_every_key_has_every_key() {
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    keys_of_schema(schema(), "", &mut known);
    keys_of(schema(), &yaml_value(ALL).unwrap(), "", &mut used);
    assert_eq!(known, used);
    assert!(known.contains("/upstream/servers/tls/ca") && known.contains("/limits/linger"), "{known:?}");
}

fn keys_of_schema(schema: &Value, at: &str, keys: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        keys.insert(format!("{at}/{key}"));
        keys_of_schema(schema, &format!("{at}/{key}"), keys);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            keys_of_schema(&schema[inner], at, keys);
        }
    }
}

/// The keys of an authority's servers count as those of servers, so the file need not repeat them.
fn keys_of(schema: &Value, value: &Value, at: &str, keys: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let inner = format!("{at}/{key}");
        if inner == "/upstream/authorities/servers" {
            keys.insert(inner.clone());
            keys_of_schema(schema, &inner, keys);
        } else if let Some(value) = value.get(key) {
            keys.insert(inner.clone());
            keys_of(schema, value, &inner, keys);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        keys_of(&schema["items"], item, at, keys);
    }
    for value in value
        .as_object()
        .filter(|_| schema["additionalProperties"].is_object())
        .into_iter()
        .flat_map(|map| map.values())
    {
        keys_of(&schema["additionalProperties"], value, at, keys);
    }
}

#[test]
fn what_is_read_and_the_schema_agree_on_files_with_one_thing_changed() {
    let least = json!({"listen": [{"address": ":1"}], "upstream": {"servers": [{"uri": "http://cp:1"}]}});
    let (mut accepted, mut rejected) = (0, 0);
    let mut agree_on_changes_at = |file: &Value, pointer: &str| {
        for changed in changes(file, pointer) {
            let text = serde_json::to_string_pretty(&changed).unwrap();
            let faults = faults(&text);
            let by_schema = accepts(schema(), &changed);
            assert_eq!(faults.is_empty(), by_schema, "{pointer} is now {:?}: {faults:?}", changed.pointer(pointer));
            if by_schema { accepted += 1 } else { rejected += 1 }
        }
    };
    agree_on_changes_at(&least, "");
    for (key, section) in yaml_value(ALL).unwrap().as_object().unwrap() {
        let mut file = least.clone();
        file[key] = section.clone();
        let mut pointers = Vec::new();
        collect_pointers(section, format!("/{key}"), &mut pointers);
        pointers.iter().for_each(|pointer| agree_on_changes_at(&file, pointer));
    }
    assert!(accepted > 100 && rejected > 1000, "{accepted} accepted, {rejected} refused");
}

fn collect_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| collect_pointers(value, format!("{at}/{key}"), pointers))
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_pointers(item, format!("{at}/{index}"), pointers));
        }
        _ => {}
    }
    pointers.push(at);
}

/// Returns the file with other values at a place, without the place, and with one more key.
fn changes(whole: &Value, pointer: &str) -> Vec<Value> {
    let others = json!([null, true, 0, 5, -1, 1.5, "", "text", "5", [], [5], ["text"], {}, {"x": 1}]);
    let mut changes: Vec<_> = others.as_array().unwrap().iter().map(|other| with(whole, pointer, other)).collect();
    if let Some((parent, key)) = pointer.rsplit_once('/') {
        let mut without = whole.clone();
        if let Some(map) = without.pointer_mut(parent).and_then(Value::as_object_mut) {
            map.remove(key);
            changes.push(without.clone());
            without.pointer_mut(parent).unwrap()[&format!("{key}x")] = json!({});
            changes.push(without);
        }
    }
    changes
}

fn with(whole: &Value, pointer: &str, value: &Value) -> Value {
    let mut whole = whole.clone();
    *whole.pointer_mut(pointer).unwrap() = value.clone();
    whole
}

#[test]
fn the_defaults_that_the_schema_states_are_those_that_count() {
    let bare = json!({"listen": [{"address": "127.0.0.1:0"}], "upstream": {"servers": [{"uri": "http://cp:1"}]}});
    let mut spelled = bare.clone();
    fill(&mut spelled, schema());
    let server = &mut spelled["upstream"]["servers"][0];
    fill(server, &schema()["properties"]["upstream"]["properties"]["servers"]["items"]);
    for polled in ["refresh_delay", "request_timeout"] {
        assert!(server.as_object_mut().unwrap().remove(polled).is_some());
    }
    assert!(spelled["limits"]["linger"] == "30s" && accepts(schema(), &spelled));
    let parsed = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap();
        shown(&Config::parse(Path::new("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}")))
    };
    assert_eq!(parsed(&spelled), parsed(&bare));
}

/// Everything except the table of types, whose entries have no fixed order.
fn shown(config: &Config) -> Vec<String> {
    let Config { upstream, views, views_idle, views_audit, downstream, drain, reload, loads, rest, state, .. } = config;
    let parts: [&dyn std::fmt::Debug; 22] = [
        upstream,
        &views.rule,
        &views.shows_members,
        &views.accept_missing_node,
        &views.max_views,
        &views.max_views_per_connection,
        &views.max_views_per_identity,
        &views.max_views_per_tenant,
        &views.tenants,
        &views.max_in_metrics,
        &views.access,
        &views.permissions,
        &views.protocol,
        &views.plan,
        views_idle,
        views_audit,
        downstream,
        drain,
        reload,
        loads,
        rest,
        state,
    ];
    parts.iter().map(|part| format!("{part:?}")).collect()
}

/// Inserts the defaults of all sections.
fn fill(value: &mut Value, schema: &Value) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = schema.get("default") {
            value[key] = default.clone();
        } else if schema["properties"].is_object() && (value.get(key).is_some() || schema.get("required").is_none()) {
            let mut inner = value.get(key).cloned().unwrap_or_else(|| json!({}));
            fill(&mut inner, schema);
            if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                value[key] = inner;
            }
        }
    }
}

#[test]
fn a_variable_may_stand_for_any_single_value_and_is_text_until_it_is_read() {
    let text = "listen: [{address: '${PORT}'}]
upstream: {servers: [{uri: 'http://${HOST}:1', fail_on_data_errors: '${FLAG}'}]}
limits: {message_bytes: '${SIZE}', types_per_stream: '${COUNT}', linger: '${TIME}'}
clients: {control_plane_identifier: '${COUNT}'}
";
    assert!(accepts(schema(), &yaml_value(text).unwrap()));
    let environment = |name: &str| {
        let values =
            [("PORT", ":7"), ("HOST", "cp"), ("FLAG", "true"), ("SIZE", "1MiB"), ("COUNT", "12"), ("TIME", "1m")];
        values.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
    };
    let review = load::review(Path::new("relay.yaml"), text, &environment, false);
    let config = review.config.unwrap_or_else(|| panic!("{:?}", review.faults));
    assert_eq!(config.listen[0].address.to_string(), "[::]:7");
    assert_eq!((config.upstream.servers[0].name(), config.downstream.message_bytes), ("http://cp:1".into(), 1 << 20));
    assert_eq!((config.views.protocol.session.types, config.views.protocol.view.linger.as_secs()), (12, 60));
    assert_eq!(config.downstream.control_plane, "12");
}

//! The clusters to which a resource refers, found in its encoded body: every way in which Envoy's messages name clusters, and references that are
//! not found.

use serde_json::{Value, json};
use weir::transcode::{Strictness, Transcoder};
use weir_core::xds::{BodyStore, TypeTable};

const LISTENER: &str = "envoy.config.listener.v3.Listener";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const SCOPED: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
const HOST: &str = "envoy.config.route.v3.VirtualHost";
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

fn clusters(kind: &str, json: &Value) -> Vec<String> {
    let bytes = Transcoder::envoy().from_json(kind, json, Strictness::Strict).unwrap_or_else(|error| panic!("{error}"));
    let kind = TypeTable::new().resolve(kind);
    let body = BodyStore::default().intern(&kind, &bytes);
    body.clusters(&kind).iter().map(ToString::to_string).collect()
}

fn to(cluster: &str) -> Value {
    json!({"match": {"prefix": "/"}, "route": {"cluster": cluster}})
}

fn host(routes: &[Value]) -> Value {
    json!({"name": "h", "domains": ["*"], "routes": routes})
}

fn filter(kind: &str, config: &Value) -> Value {
    let mut config = config.clone();
    config["@type"] = format!("type.googleapis.com/{kind}").into();
    json!({"name": "f", "typed_config": config})
}

fn manager(config: Value) -> Value {
    let mut all = json!({"stat_prefix": "s"});
    all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    filter("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", &all)
}

#[test]
fn clusters_of_routes_are_found_at_every_level() {
    let weighted =
        json!({"weighted_clusters": {"clusters": [{"name": "w1", "weight": 1}, {"name": "w2", "weight": 1}]}});
    let mirrored = json!({"cluster": "c", "request_mirror_policies": [{"cluster": "m1"}]});
    let mut first = host(&[to("b"), to("a"), to("a"), json!({"match": {"prefix": "/"}, "route": weighted})]);
    first["request_mirror_policies"] = json!([{"cluster": "m2"}]);
    let second = json!({"name": "i", "domains": ["x"], "routes": [{"match": {"prefix": "/"}, "route": mirrored}]});
    let routes = json!({
        "name": "r", "virtual_hosts": [first, second], "request_mirror_policies": [{"cluster": "m3"}],
    });
    assert_eq!(clusters(ROUTES, &routes), ["a", "b", "c", "m1", "m2", "m3", "w1", "w2"]);
    assert_eq!(clusters(HOST, &host(&[to("a")])), ["a"]);
}

#[test]
fn clusters_of_matchers_are_found_however_deep() {
    let action = |cluster: &str| {
        let mut config = to(cluster);
        config["@type"] = "type.googleapis.com/envoy.config.route.v3.Route".into();
        json!({"action": {"name": "a", "typed_config": config}})
    };
    let input = json!({"name": "i", "typed_config": {
        "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": "x"}});
    let predicate = json!({"single_predicate": {"input": input, "value_match": {"exact": "y"}}});
    let tree = json!({"matcher_tree": {"input": input,
        "exact_match_map": {"map": {"k": action("exact")}}}, "on_no_match": action("none")});
    let list = json!({"matcher_list": {"matchers": [
        {"predicate": predicate, "on_match": action("listed")},
        {"predicate": predicate, "on_match": {"matcher": tree}},
    ]}});
    let host = json!({"name": "h", "domains": ["*"], "matcher": list});
    assert_eq!(clusters(HOST, &host), ["exact", "listed", "none"]);
}

#[test]
fn clusters_of_listeners_are_found_in_every_chain() {
    let routes = json!({"name": "inline", "virtual_hosts": [host(&[to("inline")])]});
    let rds = json!({"rds": {"route_config_name": "by-name", "config_source": {"ads": {}}}});
    let scope = |inner: Value| {
        let mut all = json!({"name": "s", "key": {"fragments": [{"string_key": "k"}]}});
        all.as_object_mut().unwrap().extend(inner.as_object().unwrap().clone());
        all
    };
    let scoped = json!({"scoped_routes": {"name": "s", "scope_key_builder": {"fragments": [
    {"header_value_extractor": {"name": "x", "index": 0}}]},
    "scoped_route_configurations_list": {"scoped_route_configurations": [
        scope(json!({"route_configuration": {"name": "t", "virtual_hosts": [host(&[to("scoped")])]}})),
    ]}}});
    let tcp = filter(
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        &json!({"stat_prefix": "t", "weighted_clusters": {"clusters": [{"name": "tcp", "weight": 1}]}}),
    );
    let udp = json!({"stat_prefix": "u", "cluster": "udp"});
    let listener = json!({
        "name": "l",
        "filter_chains": [
            {"filters": [manager(json!({"route_config": routes}))]},
            {"filters": [manager(rds)]},
            {"filters": [manager(scoped)]},
        ],
        "default_filter_chain": {"filters": [tcp]},
        "listener_filters": [filter("envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", &udp)],
        "api_listener": {"api_listener": manager(json!({"route_config":
            {"name": "api", "virtual_hosts": [host(&[to("api")])]}}))["typed_config"]},
    });
    assert_eq!(clusters(LISTENER, &listener), ["api", "inline", "scoped", "tcp", "udp"]);
    assert_eq!(clusters(SCOPED, &scope(json!({"route_configuration_name": "named"}))), [""; 0]);
}

#[test]
fn an_aggregate_cluster_refers_to_its_clusters() {
    let config = json!({"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
        "clusters": ["one", "two"]});
    let cluster = json!({"name": "a", "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": config}});
    assert_eq!(clusters(CLUSTER, &cluster), ["one", "two"]);
    assert_eq!(clusters(CLUSTER, &json!({"name": "a"})), [""; 0]);
}

#[test]
fn what_is_not_a_reference_is_not_taken_for_one() {
    let header = json!({"name": "r", "virtual_hosts": [host(&[
        json!({"match": {"prefix": "/"}, "route": {"cluster_header": "x"}}),
        json!({"match": {"prefix": "/"}, "route": {"cluster_specifier_plugin": "p"}}),
        json!({"match": {"prefix": "/"}, "redirect": {"host_redirect": "elsewhere"}}),
    ])]});
    assert_eq!(clusters(ROUTES, &header), [""; 0]);
    let thrift = "envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration";
    let routes = json!({"name": "t", "routes": [{"match": {"method_name": "m"}, "route": {"cluster": "c"}}]});
    assert_eq!(clusters(thrift, &routes), [""; 0]);
    let endpoints = json!({"cluster_name": "c"});
    assert_eq!(clusters("envoy.config.endpoint.v3.ClusterLoadAssignment", &endpoints), [""; 0]);
}

#[test]
fn any_bytes_are_looked_at_without_harm_and_too_many_are_said_to_be() {
    let (table, store) = (TypeTable::new(), BodyStore::default());
    let routes = json!({"name": "r", "virtual_hosts": [host(&[to("a"), to("b")])]});
    let bytes = Transcoder::envoy().from_json(ROUTES, &routes, Strictness::Strict).unwrap();
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        let mut broken = bytes.to_vec();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % broken.len();
            broken[at] = (seed >> 20) as u8;
        }
        for kind in [ROUTES, LISTENER, HOST, CLUSTER, SCOPED] {
            let kind = table.resolve(kind);
            let _ = store.intern(&kind, &broken).cluster_references(&kind);
        }
    }
    // Three million empty virtual hosts.
    let kind = table.resolve(ROUTES);
    let body = store.intern(&kind, &[0x12, 0].repeat(3_000_000));
    assert!(body.cluster_references(&kind).is_some_and(|found| found.too_much && found.clusters.is_empty()));
    // Matchers nested within one another.
    let mut deep = vec![];
    for _ in 0..2_000 {
        let wrap = |number: u8, inner: &[u8]| {
            let mut all = vec![number << 3 | 2];
            let mut length = inner.len();
            while length > 127 {
                all.push(length as u8 | 128);
                length >>= 7;
            }
            all.push(length as u8);
            all.extend(inner);
            all
        };
        deep = wrap(3, &wrap(1, &deep));
    }
    let kind = table.resolve(HOST);
    let _ = store.intern(&kind, &deep).cluster_references(&kind);
}

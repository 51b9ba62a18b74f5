//! The other resources that an Envoy requests because of a resource: those it names whose source is the stream that it came by.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) const LISTENERS: &str = "envoy.config.listener.v3.Listener";
pub(super) const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const SCOPED_ROUTES: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const EXTENSIONS: &str = "envoy.config.core.v3.TypedExtensionConfig";

/// Names by their types; an empty set of names stands for all resources of the type.
pub(super) type Referred = BTreeMap<&'static str, BTreeSet<String>>;

/// Adds what a resource refers to, given its type and its JSON form.
pub(super) fn add_referred(kind: &str, resource: &Value, referred: &mut Referred) {
    if kind == SCOPED_ROUTES {
        add(ROUTES, &resource["routeConfigurationName"], referred);
    }
    walk(resource, referred);
}

fn walk(value: &Value, referred: &mut Referred) {
    match value {
        Value::Object(fields) => {
            add_of(value, referred);
            fields.values().for_each(|inner| walk(inner, referred));
        }
        Value::Array(items) => items.iter().for_each(|inner| walk(inner, referred)),
        _ => {}
    }
}

/// Adds the references in the message itself, without those in nested messages.
fn add_of(message: &Value, referred: &mut Referred) {
    let (rds, eds) = (&message["rds"], &message["edsClusterConfig"]);
    if comes_by_stream(&rds["configSource"]) {
        add(ROUTES, &rds["routeConfigName"], referred);
    }
    if comes_by_stream(&eds["edsConfig"]) {
        let service = eds.get("serviceName").unwrap_or(&message["name"]);
        add(ENDPOINTS, service, referred);
    }
    if comes_by_stream(&message["sdsConfig"]) {
        add(SECRETS, &message["name"], referred);
    }
    if comes_by_stream(&message["configDiscovery"]["configSource"]) {
        add(EXTENSIONS, &message["name"], referred);
    }
    if comes_by_stream(&message["scopedRds"]["scopedRdsConfigSource"]) {
        referred.entry(SCOPED_ROUTES).or_default();
    }
}

fn add(kind: &'static str, name: &Value, referred: &mut Referred) {
    if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
        referred.entry(kind).or_default().insert(name.to_owned());
    }
}

fn comes_by_stream(source: &Value) -> bool {
    ["ads", "self"].iter().any(|same| source.get(same).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn referred(kind: &str, resource: &Value) -> Vec<String> {
        let mut all = Referred::new();
        add_referred(kind, resource, &mut all);
        let names = |(kind, names): (&str, BTreeSet<String>)| {
            let kind = kind.rsplit('.').next().unwrap_or_default().to_owned();
            format!("{kind} {}", names.into_iter().collect::<Vec<_>>().join(","))
        };
        all.into_iter().map(names).collect()
    }

    #[test]
    fn a_listener_leads_to_routes_secrets_and_filters() {
        let source = json!({"ads": {}, "resourceApiVersion": "V3"});
        let secret = |name: &str| json!({"name": name, "sdsConfig": source});
        let listener = json!({"name": "l", "filterChains": [
            {
                "filters": [{"name": "hcm", "typedConfig": {
                    "rds": {"configSource": source, "routeConfigName": "r"},
                    "httpFilters": [{"name": "wasm", "configDiscovery": {"configSource": source}}],
                }}],
                "transportSocket": {"typedConfig": {"commonTlsContext": {"tlsCertificateSdsSecretConfigs": [secret("s"), secret("t")]}}},
            },
            {"filters": [{"typedConfig": {"scopedRoutes": {"scopedRds": {"scopedRdsConfigSource": {"self": {}}}}}}]},
        ]});
        let expected = ["TypedExtensionConfig wasm", "RouteConfiguration r", "ScopedRouteConfiguration ", "Secret s,t"];
        assert_eq!(referred(LISTENERS, &listener), expected);
    }

    #[test]
    fn endpoints_go_by_the_name_of_the_service_or_of_the_cluster_and_only_by_the_same_stream() {
        let cluster = |eds: Value| json!({"name": "c", "type": "EDS", "edsClusterConfig": eds});
        assert_eq!(referred(CLUSTERS, &cluster(json!({"edsConfig": {"ads": {}}}))), ["ClusterLoadAssignment c"]);
        let named = json!({"edsConfig": {"ads": {}}, "serviceName": "s"});
        assert_eq!(referred(CLUSTERS, &cluster(named)), ["ClusterLoadAssignment s"]);
        let file = json!({"edsConfig": {"pathConfigSource": {"path": "/e"}}});
        assert_eq!(referred(CLUSTERS, &cluster(file)), [""; 0]);
        assert_eq!(referred(SCOPED_ROUTES, &json!({"routeConfigurationName": "r"})), ["RouteConfiguration r"]);
    }
}

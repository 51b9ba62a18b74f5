//! The parts of Envoy's `ConfigDump`: which type is listed where, and the form of its entries.

use serde_json::{Value as Json, json};

/// One resource of a dump.
pub(super) struct Row {
    pub(super) name: String,
    /// The version that delta clients get.
    pub(super) version: String,
    pub(super) last_updated: String,
    /// With its `@type`, and without secrets.
    pub(super) body: Json,
}

/// One list of a `ConfigDump`.
pub(super) struct Section {
    /// The message of the part.
    pub(super) message: &'static str,
    pub(super) list: &'static str,
    /// The message of an entry.
    pub(super) entry: &'static str,
    /// The type that is listed; none for all that no other part is for.
    pub(super) kind: Option<&'static str>,
    /// The part has a version of its own.
    pub(super) has_version: bool,
    pub(super) form: fn(Row) -> Json,
}

/// In the order of Envoy's own dumps.
pub(super) const SECTIONS: [Section; 8] = [
    Section {
        message: "envoy.admin.v3.ClustersConfigDump",
        list: "dynamic_active_clusters",
        entry: "envoy.admin.v3.ClustersConfigDump.DynamicCluster",
        kind: Some("envoy.config.cluster.v3.Cluster"),
        has_version: true,
        form: |row| json!({"version_info": row.version, "cluster": row.body, "last_updated": row.last_updated}),
    },
    Section {
        message: "envoy.admin.v3.EcdsConfigDump",
        list: "ecds_filters",
        entry: "envoy.admin.v3.EcdsConfigDump.EcdsFilterConfig",
        kind: Some("envoy.config.core.v3.TypedExtensionConfig"),
        has_version: false,
        form: |row| json!({"version_info": row.version, "ecds_filter": row.body, "last_updated": row.last_updated}),
    },
    Section {
        message: "envoy.admin.v3.EndpointsConfigDump",
        list: ENDPOINTS,
        entry: "envoy.admin.v3.EndpointsConfigDump.DynamicEndpointConfig",
        kind: Some("envoy.config.endpoint.v3.ClusterLoadAssignment"),
        has_version: false,
        form: |row| json!({"version_info": row.version, "endpoint_config": row.body, "last_updated": row.last_updated}),
    },
    Section {
        message: "envoy.admin.v3.ListenersConfigDump",
        list: "dynamic_listeners",
        entry: "envoy.admin.v3.ListenersConfigDump.DynamicListener",
        kind: Some("envoy.config.listener.v3.Listener"),
        has_version: true,
        form: |row| {
            let state = json!({"version_info": row.version, "listener": row.body, "last_updated": row.last_updated});
            json!({"name": row.name, "active_state": state})
        },
    },
    Section {
        message: "envoy.admin.v3.ScopedRoutesConfigDump",
        list: "dynamic_scoped_route_configs",
        entry: "envoy.admin.v3.ScopedRoutesConfigDump.DynamicScopedRouteConfigs",
        kind: Some("envoy.config.route.v3.ScopedRouteConfiguration"),
        has_version: false,
        form: |row| {
            json!({
                "name": row.name,
                "version_info": row.version,
                "scoped_route_configs": [row.body],
                "last_updated": row.last_updated,
            })
        },
    },
    Section {
        message: "envoy.admin.v3.RoutesConfigDump",
        list: "dynamic_route_configs",
        entry: "envoy.admin.v3.RoutesConfigDump.DynamicRouteConfig",
        kind: Some("envoy.config.route.v3.RouteConfiguration"),
        has_version: false,
        form: |row| json!({"version_info": row.version, "route_config": row.body, "last_updated": row.last_updated}),
    },
    Section {
        message: "envoy.admin.v3.SecretsConfigDump",
        list: "dynamic_active_secrets",
        entry: "envoy.admin.v3.SecretsConfigDump.DynamicSecret",
        kind: Some("envoy.extensions.transport_sockets.tls.v3.Secret"),
        has_version: false,
        form: |row| {
            json!({
                "name": row.name,
                "version_info": row.version,
                "last_updated": row.last_updated,
                "secret": row.body,
            })
        },
    },
    // Envoy dumps no other types. Its client status has a form for any.
    Section {
        message: "envoy.service.status.v3.ClientConfig",
        list: "generic_xds_configs",
        entry: "envoy.service.status.v3.ClientConfig.GenericXdsConfig",
        kind: None,
        has_version: false,
        form: |row| {
            json!({
                "type_url": row.body["@type"],
                "name": row.name,
                "version_info": row.version,
                "xds_config": row.body,
                "last_updated": row.last_updated,
            })
        },
    },
];

/// Whether a type has a part of its own.
pub(super) fn has_its_own(kind: &str) -> bool {
    SECTIONS.iter().any(|section| section.kind == Some(kind))
}

/// The lists that may be asked for.
pub(super) fn lists() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|section| section.list)
}

/// Only dumped on request, as by Envoy.
pub(super) const ENDPOINTS: &str = "dynamic_endpoint_configs";

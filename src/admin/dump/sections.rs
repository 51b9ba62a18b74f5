//! The parts of Envoy's `ConfigDump`: in which list each type is, and the form of its entries.

use serde_json::{Value as Json, json};

/// One resource of a dump.
pub(super) struct Row {
    pub(super) name: String,
    /// The version that delta clients get.
    pub(super) version: String,
    pub(super) last_updated: String,
    /// The resource as JSON with its `@type`, and without secrets.
    pub(super) body: Json,
}

/// One list of a `ConfigDump`.
pub(super) struct Section {
    /// The protobuf message of the part.
    pub(super) message: &'static str,
    pub(super) list: &'static str,
    /// The protobuf message of an entry.
    pub(super) entry: &'static str,
    /// The type that is listed; `None` for all types without a part of their own.
    pub(super) kind: Option<&'static str>,
    /// Whether the part has a version of its own.
    pub(super) has_version: bool,
    pub(super) form: fn(Row) -> Json,
}

/// The parts in the order of Envoy's own dumps.
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
    // Envoy dumps no other types. Its client status has a form for any type.
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

/// Returns the names of the lists that a request may select.
pub(super) fn lists() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|section| section.list)
}

/// The list that is only dumped on request, as in Envoy.
pub(super) const ENDPOINTS: &str = "dynamic_endpoint_configs";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcode::{Strictness, Transcoder};

    /// Returns whether a value is `wanted` or contains it.
    fn has(value: &Json, wanted: &Json) -> bool {
        match value {
            _ if value == wanted => true,
            Json::Array(items) => items.iter().any(|item| has(item, wanted)),
            Json::Object(fields) => fields.values().any(|field| has(field, wanted)),
            _ => false,
        }
    }

    /// Envoy's tools parse a dump by its message types, so each entry and each part has to be a valid message.
    #[test]
    fn an_entry_of_each_list_is_the_message_that_it_says_it_is_and_says_all_of_its_row() {
        let transcoder = Transcoder::envoy();
        for section in &SECTIONS {
            let kind = section.kind.unwrap_or("envoy.config.core.v3.Node");
            let name = if kind.ends_with("ClusterLoadAssignment") { "cluster_name" } else { "name" };
            let name = if section.kind.is_none() { "id" } else { name };
            let body = json!({"@type": format!("type.googleapis.com/{kind}"), name: "own"});
            let row = || Row {
                name: "row".into(),
                version: "7".into(),
                last_updated: "2026-01-31T12:00:00Z".into(),
                body: body.clone(),
            };
            let entry = (section.form)(row());
            for part in [json!("7"), json!("2026-01-31T12:00:00Z"), body.clone()] {
                assert!(has(&entry, &part), "no {part} in {entry}");
            }
            let read = transcoder.from_json(section.entry, &entry, Strictness::Strict);
            assert!(read.is_ok(), "{entry}: {read:?}");
            let version = if section.has_version { json!("8") } else { Json::Null };
            let part = json!({section.list: [entry], "version_info": version});
            let part = part.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
            let part: Json =
                part.map(|(key, value)| (key.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into();
            let read = transcoder.from_json(section.message, &part, Strictness::Strict);
            assert!(read.is_ok(), "{part}: {read:?}");
        }
        let with_name = SECTIONS.iter().filter(|section| {
            let row = Row { name: "row".into(), version: String::new(), last_updated: String::new(), body: Json::Null };
            has(&(section.form)(row), &json!("row"))
        });
        let with_name: Vec<_> = with_name.map(|section| section.list).collect();
        let expected =
            ["dynamic_listeners", "dynamic_scoped_route_configs", "dynamic_active_secrets", "generic_xds_configs"];
        assert_eq!(with_name, expected);
    }
}

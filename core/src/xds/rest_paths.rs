//! The REST paths of discovery, and the type that each of them requests.

/// A path and the type that it requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestPath {
    /// The type by its full message name.
    pub kind: &'static str,
    /// Whether it belongs to the legacy transport, which is served only if enabled (TRN-8).
    pub v2: bool,
}

impl RestPath {
    /// Looks a path up. Only paths of the table exist: ADS, VHDS, LEDS and delta have no REST form (REST-11).
    pub fn of(path: &str) -> Option<Self> {
        let (version, word) = path.strip_prefix('/')?.split_once(DISCOVERY)?;
        let (_, newest, legacy) = WORDS.iter().find(|(known, ..)| *known == word)?;
        match version {
            "v3" => Some(Self { kind: newest, v2: false }),
            "v2" => legacy.map(|kind| Self { kind, v2: true }),
            _ => None,
        }
    }

    /// Returns the path that requests a type.
    pub fn for_type(name: &str) -> Option<String> {
        WORDS.iter().find_map(|(word, newest, legacy)| match name {
            _ if name == *newest => Some(format!("/v3{DISCOVERY}{word}")),
            _ if Some(name) == *legacy => Some(format!("/v2{DISCOVERY}{word}")),
            _ => None,
        })
    }

    /// Returns the last words of all paths, for a client that used another.
    pub fn words() -> String {
        WORDS.map(|(word, ..)| word).join(", ")
    }
}

/// The part between the transport version and the word for the type.
const DISCOVERY: &str = "/discovery:";

/// Word, type, legacy type. One word has a hyphen, another an underscore (TRN-4).
const WORDS: [(&str, &str, Option<&str>); 8] = [
    ("clusters", "envoy.config.cluster.v3.Cluster", Some("envoy.api.v2.Cluster")),
    ("endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment", Some("envoy.api.v2.ClusterLoadAssignment")),
    ("listeners", "envoy.config.listener.v3.Listener", Some("envoy.api.v2.Listener")),
    ("routes", "envoy.config.route.v3.RouteConfiguration", Some("envoy.api.v2.RouteConfiguration")),
    ("scoped-routes", "envoy.config.route.v3.ScopedRouteConfiguration", Some("envoy.api.v2.ScopedRouteConfiguration")),
    ("secrets", "envoy.extensions.transport_sockets.tls.v3.Secret", Some("envoy.api.v2.auth.Secret")),
    ("runtime", "envoy.service.runtime.v3.Runtime", Some("envoy.service.discovery.v2.Runtime")),
    ("extension_configs", "envoy.config.core.v3.TypedExtensionConfig", None),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    #[test]
    fn rest_2_and_trn_4_each_path_leads_to_its_type_and_back() {
        let table = TypeTable::new();
        for (word, newest, legacy) in WORDS {
            let path = format!("/v3/discovery:{word}");
            assert_eq!(RestPath::of(&path), Some(RestPath { kind: newest, v2: false }));
            assert_eq!(RestPath::for_type(newest), Some(path));
            assert!(table.knows(newest));
            let path = format!("/v2/discovery:{word}");
            assert_eq!(RestPath::of(&path), legacy.map(|kind| RestPath { kind, v2: true }));
            if let Some(legacy) = legacy {
                assert!(table.knows(legacy) && table.resolve(legacy).same_kind(&table.resolve(newest)));
                assert_eq!(RestPath::for_type(legacy), Some(path));
            }
        }
    }

    #[test]
    fn rest_11_what_rest_cannot_say_has_no_path() {
        for path in [
            "/v3/discovery:scoped_routes",
            "/v3/discovery:extension-configs",
            "/v2/discovery:extension_configs",
            "/v3/discovery:virtual_hosts",
            "/v3/discovery:virtual-hosts",
            "/v3/discovery:locality_endpoints",
            "/v3/discovery:aggregated_resources",
            "/v3/discovery:health_check",
            "/v3/discovery:",
            "/v4/discovery:clusters",
            "v3/discovery:clusters",
            "/v3/discovery:clusters/",
            "",
        ] {
            assert_eq!(RestPath::of(path), None, "{path}");
        }
        for kind in ["envoy.config.route.v3.VirtualHost", "envoy.config.endpoint.v3.LbEndpoint", "own.Type", ""] {
            assert_eq!(RestPath::for_type(kind), None, "{kind}");
        }
    }
}

//! The gRPC methods of discovery, by path.

/// The types that a stream or call serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All types on one stream.
    Aggregated,
    /// One type, by its full message name.
    Only(&'static str),
}

/// How a discovery method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A stream of the state-of-the-world variant.
    SotwStream,
    /// A stream of the delta variant.
    DeltaStream,
    /// One request, one response.
    Fetch,
}

/// A discovery method by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Which types the method is for.
    pub scope: Scope,
    /// How the method is called.
    pub shape: Shape,
    /// Whether it belongs to the legacy transport, which is served only if enabled (TRN-8).
    pub v2: bool,
}

impl Method {
    /// Returns the discovery method of an HTTP/2 `:path`. Only methods of the table exist (TRN-3).
    pub fn of_path(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let service = SERVICES.iter().find(|known| known.name == service)?;
        let prefix = method.strip_suffix(service.what)?;
        let shape = match (prefix, service.serves) {
            ("Stream", Serves::Streams | Serves::All) => Shape::SotwStream,
            ("Delta", _) => Shape::DeltaStream,
            ("Fetch", Serves::All) => Shape::Fetch,
            _ => return None,
        };
        Some(Self { scope: service.scope, shape, v2: service.v2 })
    }
}

/// The path of load reporting in v2: it has the same messages (LRS-21, TRN-10).
pub const LOADS_PATH_V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";
/// The path of load reporting.
pub const LOADS_PATH: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// Returns the names of the services, with or without those of the legacy transport.
pub fn service_names(v2: bool) -> impl Iterator<Item = &'static str> {
    SERVICES.iter().filter(move |service| v2 || !service.v2).map(|service| service.name)
}

struct Service {
    name: &'static str,
    /// The suffix of each method's name.
    what: &'static str,
    scope: Scope,
    serves: Serves,
    v2: bool,
}

#[derive(Clone, Copy)]
enum Serves {
    /// Both variants and single fetches.
    All,
    Streams,
    DeltaAlone,
}

const fn v3(name: &'static str, what: &'static str, kind: &'static str, serves: Serves) -> Service {
    Service { name, what, scope: Scope::Only(kind), serves, v2: false }
}

const fn v2(name: &'static str, what: &'static str, kind: &'static str, serves: Serves) -> Service {
    Service { name, what, scope: Scope::Only(kind), serves, v2: true }
}

const fn aggregated(name: &'static str, v2: bool) -> Service {
    Service { name, what: "AggregatedResources", scope: Scope::Aggregated, serves: Serves::Streams, v2 }
}

#[rustfmt::skip]
const SERVICES: &[Service] = &[
    aggregated("envoy.service.discovery.v3.AggregatedDiscoveryService", false),
    v3("envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", "envoy.config.listener.v3.Listener", Serves::All),
    v3("envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", "envoy.config.cluster.v3.Cluster", Serves::All),
    v3("envoy.service.route.v3.RouteDiscoveryService", "Routes", "envoy.config.route.v3.RouteConfiguration", Serves::All),
    // Plural on the wire, unlike in the documentation (TRN-2).
    v3("envoy.service.route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", "envoy.config.route.v3.ScopedRouteConfiguration", Serves::All),
    v3("envoy.service.route.v3.VirtualHostDiscoveryService", "VirtualHosts", "envoy.config.route.v3.VirtualHost", Serves::DeltaAlone),
    v3("envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment", Serves::All),
    v3("envoy.service.endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", "envoy.config.endpoint.v3.LbEndpoint", Serves::DeltaAlone),
    v3("envoy.service.secret.v3.SecretDiscoveryService", "Secrets", "envoy.extensions.transport_sockets.tls.v3.Secret", Serves::All),
    v3("envoy.service.runtime.v3.RuntimeDiscoveryService", "Runtime", "envoy.service.runtime.v3.Runtime", Serves::All),
    v3("envoy.service.extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", "envoy.config.core.v3.TypedExtensionConfig", Serves::All),
    aggregated("envoy.service.discovery.v2.AggregatedDiscoveryService", true),
    v2("envoy.api.v2.ListenerDiscoveryService", "Listeners", "envoy.api.v2.Listener", Serves::All),
    v2("envoy.api.v2.ClusterDiscoveryService", "Clusters", "envoy.api.v2.Cluster", Serves::All),
    v2("envoy.api.v2.RouteDiscoveryService", "Routes", "envoy.api.v2.RouteConfiguration", Serves::All),
    v2("envoy.api.v2.ScopedRoutesDiscoveryService", "ScopedRoutes", "envoy.api.v2.ScopedRouteConfiguration", Serves::All),
    v2("envoy.api.v2.VirtualHostDiscoveryService", "VirtualHosts", "envoy.api.v2.route.VirtualHost", Serves::DeltaAlone),
    v2("envoy.api.v2.EndpointDiscoveryService", "Endpoints", "envoy.api.v2.ClusterLoadAssignment", Serves::All),
    v2("envoy.service.discovery.v2.SecretDiscoveryService", "Secrets", "envoy.api.v2.auth.Secret", Serves::All),
    v2("envoy.service.discovery.v2.RuntimeDiscoveryService", "Runtime", "envoy.service.discovery.v2.Runtime", Serves::All),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    #[test]
    fn trn_1_every_method_of_the_tables_is_known_and_its_type_too() {
        let table = TypeTable::new();
        for service in SERVICES {
            let methods = match service.serves {
                Serves::All => vec!["Stream", "Delta", "Fetch"],
                Serves::Streams => vec!["Stream", "Delta"],
                Serves::DeltaAlone => vec!["Delta"],
            };
            for shape in methods {
                let path = format!("/{}/{shape}{}", service.name, service.what);
                assert!(Method::of_path(&path).is_some(), "{path}");
            }
            if let Scope::Only(kind) = service.scope {
                assert!(table.knows(kind), "{kind}");
            }
        }
    }

    #[test]
    fn trn_2_the_scoped_routes_service_is_plural() {
        let path = |service: &str| format!("/envoy.service.route.v3.{service}/StreamScopedRoutes");
        assert!(Method::of_path(&path("ScopedRoutesDiscoveryService")).is_some());
        assert_eq!(Method::of_path(&path("ScopedRouteDiscoveryService")), None);
    }

    #[test]
    fn trn_3_what_exists_in_delta_alone_has_no_other_method() {
        for path in [
            "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
            "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/FetchLocalityEndpoints",
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
            "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck",
            "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamListeners",
            "envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
            "/",
            "",
        ] {
            assert_eq!(Method::of_path(path), None, "{path}");
        }
    }

    #[test]
    fn trn_8_services_of_the_legacy_transport_are_named_only_where_it_is_served() {
        let all: Vec<_> = SERVICES.iter().map(|service| service.name).collect();
        assert_eq!(service_names(true).collect::<Vec<_>>(), all);
        let (legacy, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| name.contains("v2"));
        assert_eq!(service_names(false).collect::<Vec<_>>(), others);
        assert!(!legacy.is_empty() && !others.is_empty());
    }
}

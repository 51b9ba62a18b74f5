//! The built-in types.

use super::type_info::{EmptyFirst, LAST, References, Role, TypeInfo};

pub(super) struct Row {
    pub(super) name: &'static str,
    name_field: Option<u32>,
    sotw: Sotw,
    rank: u8,
    removal_rank: u8,
    role: Role,
}

enum Sotw {
    /// Full state with legacy wildcard: every built-in type has both or neither.
    Full,
    Partial,
    None,
}

impl Row {
    pub(super) fn info(&self) -> TypeInfo {
        TypeInfo {
            name_field: self.name_field,
            full_state: matches!(self.sotw, Sotw::Full),
            empty_first: match self.name {
                VIRTUAL_HOSTS => EmptyFirst::UnderRoutes,
                _ if matches!(self.sotw, Sotw::Full) => EmptyFirst::Everything,
                _ => EmptyFirst::Nothing,
            },
            by_alias: self.name == VIRTUAL_HOSTS,
            delta_only: matches!(self.sotw, Sotw::None),
            rank: self.rank,
            addition_rank: if self.name == SECRETS { 0 } else { self.rank + 1 },
            removal_rank: self.removal_rank,
            role: self.role,
            references: match self.name {
                CLUSTERS => References::ClusterEndpoints,
                ROUTES => References::VirtualHosts,
                _ => References::None,
            },
            ..TypeInfo::opaque(self.name)
        }
    }
}

pub(super) const LISTENERS: &str = "envoy.config.listener.v3.Listener";
pub(super) const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
pub(super) const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
pub(super) const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
pub(super) const SCOPED_ROUTES: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
pub(super) const VIRTUAL_HOSTS: &str = "envoy.config.route.v3.VirtualHost";
pub(super) const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// v2 names and their successors. Other types have no v2 form.
pub(super) const V2: &[(&str, &str)] = &[
    ("envoy.api.v2.Listener", LISTENERS),
    ("envoy.api.v2.Cluster", CLUSTERS),
    ("envoy.api.v2.RouteConfiguration", ROUTES),
    ("envoy.api.v2.ScopedRouteConfiguration", SCOPED_ROUTES),
    ("envoy.api.v2.route.VirtualHost", VIRTUAL_HOSTS),
    ("envoy.api.v2.ClusterLoadAssignment", ENDPOINTS),
    ("envoy.api.v2.auth.Secret", SECRETS),
    ("envoy.service.discovery.v2.Runtime", "envoy.service.runtime.v3.Runtime"),
];

const fn row(name: &'static str, name_field: u32, sotw: Sotw, rank: u8, removal_rank: u8, role: Role) -> Row {
    let name_field = if name_field == 0 { None } else { Some(name_field) };
    Row { name, name_field, sotw, rank, removal_rank, role }
}

/// Name, name field (0: none, or unusable), SotW behaviour, rank, removal rank, role.
pub(super) const BUILT_IN: &[Row] = &[
    row(CLUSTERS, 1, Sotw::Full, 0, 4, Role::Clusters),
    row("envoy.config.cluster.v3.ClusterCollection", 0, Sotw::Partial, 0, 4, Role::Clusters),
    row(ENDPOINTS, 1, Sotw::Partial, 1, 5, Role::Endpoints),
    row("envoy.config.endpoint.v3.LbEndpoint", 0, Sotw::None, 2, 6, Role::Endpoints),
    row("envoy.config.endpoint.v3.LbEndpointCollection", 0, Sotw::Partial, 2, 6, Role::Endpoints),
    row(LISTENERS, 1, Sotw::Full, 3, 0, Role::Routing),
    row("envoy.config.listener.v3.ListenerCollection", 0, Sotw::Partial, 3, 0, Role::Routing),
    row("envoy.config.listener.v3.FilterChain", 7, Sotw::Partial, 3, 0, Role::Routing),
    row(ROUTES, 1, Sotw::Partial, 4, 2, Role::Routing),
    row("envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration", 1, Sotw::Partial, 4, 2, Role::Routing),
    row(SCOPED_ROUTES, 1, Sotw::Full, 5, 1, Role::Routing),
    row(VIRTUAL_HOSTS, 0, Sotw::None, 6, 3, Role::Routing),
    row(SECRETS, 1, Sotw::Partial, 7, 7, Role::Free),
    row("envoy.service.runtime.v3.Runtime", 1, Sotw::Partial, 8, 8, Role::Free),
    row("envoy.config.core.v3.TypedExtensionConfig", 1, Sotw::Partial, 9, 9, Role::Free),
    row("ratelimit.config.ratelimit.v3.RateLimitConfig", 1, Sotw::Partial, LAST, LAST, Role::Free),
];

/// The types of Istio that its agent, its Envoys and ztunnel request, with the behaviour of Istiod. An empty first list is the wildcard.
/// NDS and PCDS have one resource without a name, so each response is the complete set. A SotW response for workloads has only those that
/// changed. Addresses and authorizations have their names in the wrapper alone, so they need the delta variant.
pub(super) const ISTIO: &[Row] = &[
    row("istio.networking.nds.v1.NameTable", 0, Sotw::Full, LAST, LAST, Role::Free),
    row("istio.mesh.v1alpha1.ProxyConfig", 0, Sotw::Full, LAST, LAST, Role::Free),
    row("istio.workload.Workload", 20, Sotw::Partial, LAST, LAST, Role::Free),
    row(ADDRESSES, 0, Sotw::None, LAST, LAST, Role::Free),
    row(AUTHORIZATIONS, 0, Sotw::None, LAST, LAST, Role::Free),
];

/// Returns the properties of Istio's types.
pub(super) fn istio() -> impl Iterator<Item = TypeInfo> {
    ISTIO.iter().map(|row| TypeInfo { empty_first: EmptyFirst::Everything, ..row.info() })
}

/// Whether a message name is that of a built-in type, v2 names included.
pub(super) fn is_built_in(message: &str) -> bool {
    BUILT_IN.iter().chain(ISTIO).any(|row| row.name == message) || V2.iter().any(|(old, _)| *old == message)
}

const ADDRESSES: &str = "istio.workload.Address";
const AUTHORIZATIONS: &str = "istio.security.Authorization";

/// Types whose resources have their names in the wrapper alone. If such a resource has no name, its server made an error: it is not the one
/// unnamed resource of its type.
pub(super) const NAMED_BESIDE: [&str; 7] = [
    "envoy.config.cluster.v3.ClusterCollection",
    "envoy.config.endpoint.v3.LbEndpoint",
    "envoy.config.endpoint.v3.LbEndpointCollection",
    "envoy.config.listener.v3.ListenerCollection",
    VIRTUAL_HOSTS,
    ADDRESSES,
    AUTHORIZATIONS,
];

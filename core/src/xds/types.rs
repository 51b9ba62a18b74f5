//! The properties of each resource type: a table that operators can extend, and defaults for unknown types.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// The wrapper that carries a name beside a resource in SotW (SOTW-48, UP-29).
pub const WRAPPER_TYPE: &str = "envoy.service.discovery.v3.Resource";

/// The part of a type when several types change together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The targets of routing.
    Clusters,
    /// What a cluster needs before it takes traffic.
    Endpoints,
    /// Leads to clusters, and so must not be sent before them.
    Routing,
    /// Ordered by rank if pending together with others, and never delayed for them.
    Free,
}

/// How the body names another resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    None,
    ClusterEndpoints,
    /// A route configuration whose virtual hosts come by VHDS: all those named under it.
    VirtualHosts,
}

/// The meaning of a first request without names (SOTW-39, DELTA-36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyFirst {
    /// It requests nothing.
    Nothing,
    /// It requests all resources of the type.
    Everything,
    /// All names under the route configurations that the client subscribes to.
    UnderRoutes,
    /// Nothing; the reply is empty.
    EmptyAnswer,
}

impl EmptyFirst {
    /// Whether it is a wildcard, which is then also the form of a wildcard for older servers (UP-7).
    pub fn is_wildcard(self) -> bool {
        matches!(self, Self::Everything | Self::UnderRoutes)
    }
}

/// The properties of one resource type.
#[derive(Debug, Clone)]
pub struct TypeInfo {
    /// Full message name, without the `type.googleapis.com/` that peers may spell differently (TYPE-1).
    pub name: Box<str>,
    /// The field of the body with the resource's name; `None` for types without one (TYPE-4).
    pub name_field: Option<u32>,
    /// Whether a SotW response lists the complete visible set, so that absence means deletion (TYPE-8).
    pub full_state: bool,
    /// What an empty first request means.
    pub empty_first: EmptyFirst,
    /// Whether it exists in the delta variant only (TRN-3).
    pub delta_only: bool,
    /// Whether aliases are requested regularly: a resource without a body is then unresolved, not a heartbeat (DELTA-39, DELTA-40).
    pub by_alias: bool,
    /// Position in the order of types, also for requests upstream (UP-6).
    pub rank: u8,
    /// Position among additions (ORD-2): the same, but secrets come first. Endpoints that upstream moved behind a new secret must not be
    /// sent before it (ORD-4), and an early secret does no harm.
    pub addition_rank: u8,
    /// Removals are sent in the order of this rank.
    pub removal_rank: u8,
    /// Its part in the order of types.
    pub role: Role,
    /// How its bodies name other resources.
    pub references: References,
    /// The successor of a v2 type. The two are distinct types with the same behaviour (TYPE-5).
    pub successor: Option<Box<str>>,
}

/// A handle of a type: cheap to clone, equal by name, ordered by rank and then name.
#[derive(Debug, Clone)]
pub struct Type(Arc<TypeInfo>);

impl Type {
    /// Returns the properties of the type.
    pub fn info(&self) -> &TypeInfo {
        &self.0
    }

    /// Returns the full message name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the message name in a type URL, whatever its prefix is (TYPE-1).
    pub(crate) fn message_name(type_url: &str) -> &str {
        type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
    }

    pub(crate) fn is(&self, role: Role) -> bool {
        self.0.role == role
    }

    /// Whether this is its name, or the one of its successor.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        *self.0.name == *name || self.0.successor.as_deref() == Some(name)
    }

    /// Whether resources with different names can exclude one another: listeners by their addresses, scopes by their keys.
    pub(crate) fn can_conflict(&self) -> bool {
        self.is_called(LISTENERS) || self.is_called(SCOPED_ROUTES)
    }

    /// Whether its resources are private keys, passwords and the like.
    pub fn is_secret(&self) -> bool {
        self.is_called(SECRETS)
    }

    /// Whether the URL is of the second version of the API.
    pub fn is_v2(&self) -> bool {
        self.0.successor.is_some()
    }

    /// Whether the two are equal, or are the same resource in two versions of the protocol.
    pub(crate) fn same_kind(&self, other: &Self) -> bool {
        let newest = |kind: &Self| kind.0.successor.as_deref().unwrap_or(&kind.0.name).to_owned();
        self == other || newest(self) == newest(other)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.name == other.0.name
    }
}

impl Eq for Type {}

impl Hash for Type {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Ord for Type {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        (self.0.rank, &self.0.name).cmp(&(other.0.rank, &other.0.name))
    }
}

impl PartialOrd for Type {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All types by name. A relay has one table: types that compare equal are from the same entry.
#[derive(Debug, Clone)]
pub struct TypeTable {
    by_name: HashMap<Box<str>, Type>,
    v2: bool,
}

impl TypeTable {
    /// Returns a hash of everything in the table.
    pub fn fingerprint(&self) -> u64 {
        let mut rows: Vec<_> = self.by_name.iter().map(|(name, kind)| format!("{name}={:?}", kind.info())).collect();
        rows.sort_unstable();
        xxh3_64(rows.join("\n").as_bytes())
    }

    /// Returns the table of the built-in types.
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    /// Returns the built-in types, with the operator's entries added or replaced (TYPE-7).
    pub fn with(extra: Vec<TypeInfo>) -> Self {
        let built_in = BUILT_IN.iter().map(Row::info);
        let legacy = V2.iter().filter_map(|(old, new)| {
            let row = BUILT_IN.iter().find(|row| row.name == *new)?;
            Some(TypeInfo { name: (*old).into(), successor: Some((*new).into()), ..row.info() })
        });
        let by_name =
            built_in.chain(legacy).chain(extra).map(|info| (info.name.clone(), Type(Arc::new(info)))).collect();
        Self { by_name, v2: false }
    }

    /// Serves the types of v2 as well (TRN-8).
    pub fn with_v2(self, v2: bool) -> Self {
        Self { v2, ..self }
    }

    /// Serves virtual hosts by name alone: an empty first request requests none (DELTA-36).
    pub fn with_virtual_hosts_by_name(mut self) -> Self {
        for kind in self.by_name.values_mut().filter(|kind| kind.info().empty_first == EmptyFirst::UnderRoutes) {
            *kind = Type(Arc::new(TypeInfo { empty_first: EmptyFirst::EmptyAnswer, ..kind.info().clone() }));
        }
        self
    }

    pub(crate) fn serves(&self, kind: &Type) -> bool {
        self.v2 || !kind.is_v2()
    }

    /// Returns the type of a URL. A type that is not in the table is opaque: it is served without any assumption.
    pub fn resolve(&self, type_url: &str) -> Type {
        let name = Type::message_name(type_url);
        self.by_name.get(name).cloned().unwrap_or_else(|| Type(Arc::new(opaque(name))))
    }

    /// Returns the full names of the types whose `*` sets are full state and have no v2 name.
    pub fn full_state(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().filter(|kind| kind.info().full_state && !kind.is_v2()).map(Type::name)
    }

    /// Returns the type of clusters.
    pub fn clusters(&self) -> Type {
        self.resolve(CLUSTERS)
    }

    /// Returns the full names of all types in the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(Type::name)
    }

    /// Whether a message name is in the table.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns the type that references of `from` refer to.
    pub(crate) fn referred_by(&self, from: &Type) -> Option<Type> {
        let name = match from.info().references {
            References::None => return None,
            References::ClusterEndpoints => ENDPOINTS,
            References::VirtualHosts => VIRTUAL_HOSTS,
        };
        let old = V2.iter().find(|(_, new)| from.is_v2() && *new == name).map(|(old, _)| *old);
        Some(self.resolve(old.unwrap_or(name)))
    }
}

impl Default for TypeTable {
    fn default() -> Self {
        Self::new()
    }
}

fn opaque(name: &str) -> TypeInfo {
    TypeInfo {
        name: name.into(),
        name_field: Some(1),
        full_state: false,
        empty_first: EmptyFirst::Nothing,
        delta_only: false,
        by_alias: false,
        rank: LAST,
        addition_rank: LAST,
        removal_rank: LAST,
        role: Role::Free,
        references: References::None,
        successor: None,
    }
}

struct Row {
    name: &'static str,
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
    fn info(&self) -> TypeInfo {
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
            ..opaque(self.name)
        }
    }
}

const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const SCOPED_ROUTES: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
const VIRTUAL_HOSTS: &str = "envoy.config.route.v3.VirtualHost";
const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const LAST: u8 = u8::MAX - 1;

/// v2 names and their successors. Other types have no v2 form.
const V2: &[(&str, &str)] = &[
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
const BUILT_IN: &[Row] = &[
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_1_only_what_follows_the_last_slash_counts() {
        let table = TypeTable::new();
        let long = table.resolve("type.googleapis.com/envoy.config.cluster.v3.Cluster");
        assert_eq!(long, table.resolve("example.org/a/envoy.config.cluster.v3.Cluster"));
        assert_eq!(long, table.resolve("envoy.config.cluster.v3.Cluster"));
    }

    #[test]
    fn type_2_and_type_3_full_state_types_are_lds_cds_and_srds() {
        let mut full: Vec<_> = BUILT_IN.iter().map(Row::info).filter(|info| info.full_state).collect();
        full.sort_by_key(|info| info.rank);
        let names: Vec<_> = full.iter().map(|info| &*info.name).collect();
        assert_eq!(names, [CLUSTERS, LISTENERS, SCOPED_ROUTES]);
    }

    #[test]
    fn type_7_an_unknown_type_is_opaque_and_an_operator_may_say_more() {
        let opaque = TypeTable::new().resolve("a/b.C");
        let nothing = opaque.info().empty_first == EmptyFirst::Nothing;
        assert!(!opaque.info().full_state && nothing && opaque.info().name_field == Some(1));
        let sent = TypeInfo { full_state: true, ..opaque.info().clone() };
        assert!(TypeTable::with(vec![sent]).resolve("x/b.C").info().full_state);
    }

    #[test]
    fn ord_2_types_sort_by_the_order_in_which_they_are_sent() {
        let table = TypeTable::new();
        let mut types: Vec<_> =
            ["x.Y", SCOPED_ROUTES, ROUTES, ENDPOINTS, CLUSTERS].map(|name| table.resolve(name)).into();
        types.sort();
        let names: Vec<_> = types.iter().map(Type::name).collect();
        assert_eq!(names, [CLUSTERS, ENDPOINTS, ROUTES, SCOPED_ROUTES, "x.Y"]);
    }
}

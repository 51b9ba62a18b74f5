//! The clusters that a resource sends traffic to, found in its encoded body.
//!
//! Not found: clusters named by a header, by a specifier plugin or by the name in a TLS handshake, filters that come by ECDS, custom
//! matchers, and configurations in a struct.

use crate::xds::name::Name;
use crate::xds::types::Type;
use crate::xds::wire::{self, Value};

/// The clusters that one body refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClusterReferences {
    /// Sorted, each once.
    pub clusters: Box<[Name]>,
    /// The body was too large to scan, so nothing is known.
    pub too_much: bool,
}

/// The kind of a message within a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    RouteConfiguration,
    VirtualHost,
    Route,
    RouteList,
    RouteAction,
    WeightedClusters,
    /// A message whose first field is a cluster name: a mirror policy, a weight, a UDP route.
    ToCluster,
    ScopedRoute,
    Listener,
    ApiListener,
    ListenerFilter,
    FilterChain,
    Filter,
    HttpConnectionManager,
    ScopedRoutes,
    ScopedRouteList,
    TcpProxy,
    UdpProxy,
    Matcher,
    MatcherList,
    FieldMatcher,
    MatcherTree,
    MatchMap,
    MapEntry,
    OnMatch,
    Extension,
    Cluster,
    ClusterType,
    Aggregate,
    Any,
}

/// The meaning of one field of a [`MessageKind`].
enum Field {
    Of(MessageKind),
    Cluster,
}

impl MessageKind {
    fn of_type(kind: &str) -> Option<Self> {
        Some(match kind {
            "envoy.config.listener.v3.Listener" => Self::Listener,
            "envoy.config.listener.v3.FilterChain" => Self::FilterChain,
            "envoy.config.route.v3.RouteConfiguration" => Self::RouteConfiguration,
            "envoy.config.route.v3.ScopedRouteConfiguration" => Self::ScopedRoute,
            "envoy.config.route.v3.VirtualHost" => Self::VirtualHost,
            "envoy.config.cluster.v3.Cluster" => Self::Cluster,
            _ => return None,
        })
    }

    /// Returns the kind of the content of an `Any`, if it is known.
    fn of_any(kind: &str) -> Option<Self> {
        Some(match kind {
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager" => {
                Self::HttpConnectionManager
            }
            "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy" => Self::TcpProxy,
            "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig" => Self::UdpProxy,
            "envoy.extensions.filters.udp.udp_proxy.v3.Route" => Self::ToCluster,
            "envoy.extensions.clusters.aggregate.v3.ClusterConfig" => Self::Aggregate,
            "envoy.config.route.v3.Route" => Self::Route,
            "envoy.config.route.v3.RouteList" => Self::RouteList,
            _ => return None,
        })
    }

    fn field(self, number: u32) -> Option<Field> {
        Some(match (self, number) {
            (Self::RouteAction | Self::ToCluster | Self::Aggregate, 1) | (Self::TcpProxy | Self::UdpProxy, 2) => {
                Field::Cluster
            }
            (part, number) => Field::Of(part.part(number)?),
        })
    }

    fn part(self, number: u32) -> Option<Self> {
        Some(match (self, number) {
            (Self::RouteConfiguration, 2) => Self::VirtualHost,
            (Self::RouteConfiguration, 13) | (Self::VirtualHost, 22) | (Self::RouteAction, 30) => Self::ToCluster,
            (Self::VirtualHost, 3) | (Self::RouteList, 1) => Self::Route,
            (Self::VirtualHost, 21) | (Self::UdpProxy, 9) | (Self::OnMatch, 1) => Self::Matcher,
            (Self::Route, 2) => Self::RouteAction,
            (Self::RouteAction, 3) | (Self::TcpProxy, 10) => Self::WeightedClusters,
            (Self::WeightedClusters, 1) => Self::ToCluster,
            (Self::ScopedRoute, 5) | (Self::HttpConnectionManager, 4) => Self::RouteConfiguration,
            (Self::Listener, 3 | 25) => Self::FilterChain,
            (Self::Listener, 9) => Self::ListenerFilter,
            (Self::Listener, 19) => Self::ApiListener,
            (Self::FilterChain, 3) => Self::Filter,
            (Self::HttpConnectionManager, 31) => Self::ScopedRoutes,
            (Self::ScopedRoutes, 4) => Self::ScopedRouteList,
            (Self::ScopedRouteList, 1) => Self::ScopedRoute,
            (Self::Matcher, 1) => Self::MatcherList,
            (Self::Matcher, 2) => Self::MatcherTree,
            (Self::Matcher, 3) | (Self::FieldMatcher | Self::MapEntry, 2) => Self::OnMatch,
            (Self::MatcherList, 1) => Self::FieldMatcher,
            (Self::MatcherTree, 2 | 3) => Self::MatchMap,
            (Self::MatchMap, 1) => Self::MapEntry,
            (Self::OnMatch, 2) => Self::Extension,
            (Self::Cluster, 38) => Self::ClusterType,
            (Self::ApiListener, 1)
            | (Self::ListenerFilter, 3)
            | (Self::Filter, 4)
            | (Self::Extension | Self::ClusterType, 2) => Self::Any,
            _ => return None,
        })
    }
}

/// Whether bodies of a type may refer to clusters.
pub(crate) fn may_refer(kind: &Type) -> bool {
    MessageKind::of_type(kind.name()).is_some()
}

pub(crate) fn cluster_references(kind: &Type, body: &[u8]) -> Option<Box<ClusterReferences>> {
    let mut clusters = Vec::new();
    let mut rest = vec![(MessageKind::of_type(kind.name())?, body)];
    let mut looked_at = 0;
    while let Some((part, bytes)) = rest.pop() {
        let (part, bytes) = match part {
            MessageKind::Any => match opened(bytes) {
                Some(inner) => inner,
                None => continue,
            },
            part => (part, bytes),
        };
        for field in wire::fields(bytes) {
            looked_at += 1;
            if looked_at > MOST_FIELDS {
                return Some(Box::new(ClusterReferences { too_much: true, ..ClusterReferences::default() }));
            }
            // Bytes that are not a message have no references from there on.
            let Some(field) = field else { break };
            let Value::Bytes(value) = field.value else { continue };
            match part.field(field.number) {
                Some(Field::Of(inner)) => rest.push((inner, value)),
                Some(Field::Cluster) => clusters.extend(name(value)),
                None => {}
            }
        }
    }
    clusters.sort_unstable();
    clusters.dedup();
    (!clusters.is_empty()).then(|| Box::new(ClusterReferences { clusters: clusters.into(), too_much: false }))
}

fn opened(any: &[u8]) -> Option<(MessageKind, &[u8])> {
    let kind = wire::last_text(any, 1)?;
    let kind = kind.rsplit_once('/').map_or(kind, |(_, kind)| kind);
    Some((MessageKind::of_any(kind)?, wire::last_bytes(any, 2)?))
}

fn name(value: &[u8]) -> Option<Name> {
    std::str::from_utf8(value).ok().filter(|text| !text.is_empty()).map(Name::canonical)
}

/// A route configuration of 10,000 routes has some 200,000.
const MOST_FIELDS: usize = 2_000_000;

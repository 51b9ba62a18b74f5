//! The four types that refer to one another: listeners to routes, routes to clusters, clusters to endpoints.

use crate::content::{CDS, EDS, LDS, RDS, message_name};
use crate::link::{ADS_DELTA, ADS_SOTW};
use crate::wire::Variant;

/// The types, in the order in which additions are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Cluster,
    Endpoints,
    Listener,
    Route,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Cluster, Self::Endpoints, Self::Listener, Self::Route];

    pub fn of_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| message_name(kind.url()) == message_name(url))
    }

    pub fn url(self) -> &'static str {
        match self {
            Self::Cluster => CDS,
            Self::Endpoints => EDS,
            Self::Listener => LDS,
            Self::Route => RDS,
        }
    }

    /// Returns the plural that commands, files and reports use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Endpoints => "endpoints",
            Self::Listener => "listeners",
            Self::Route => "routes",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Whether a SotW response lists everything, and an empty first request subscribes to everything.
    pub fn is_full_state(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Returns the method of the service for this type alone.
    pub fn path(self, variant: Variant) -> &'static str {
        match (self, variant) {
            (Self::Cluster, Variant::Sotw) => "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
            (Self::Cluster, Variant::Delta) => "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
            (Self::Endpoints, Variant::Sotw) => "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
            (Self::Endpoints, Variant::Delta) => "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
            (Self::Listener, Variant::Sotw) => "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
            (Self::Listener, Variant::Delta) => "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
            (Self::Route, Variant::Sotw) => "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes",
            (Self::Route, Variant::Delta) => "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes",
        }
    }
}

pub fn ads_path(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => ADS_SOTW,
        Variant::Delta => ADS_DELTA,
    }
}

/// Returns the variant of a method, and the type if the method serves only one.
pub fn method(path: &str) -> Option<(Variant, Option<Kind>)> {
    [Variant::Sotw, Variant::Delta].into_iter().find_map(|variant| {
        if path == ads_path(variant) {
            return Some((variant, None));
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.path(variant) == path)?;
        Some((variant, Some(kind)))
    })
}

//! Bodies of the four types, with the fields that the origin writes and clients read.
//!
//! Each field has the number that it has in Envoy's message. The stamp and the padding have numbers that no message of Envoy uses.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use prost::Message;
use weir_core::proto::Any;

use crate::kind::Kind;

/// The number and the time of the origin's update that a body is from.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Stamp {
    /// Counted from one.
    #[prost(uint64, tag = "1")]
    pub update: u64,
    #[prost(uint64, tag = "2")]
    pub unix_nanos: u64,
}

impl Stamp {
    pub fn now(update: u64) -> Self {
        Self { update, unix_nanos: unix_nanos() }
    }
}

pub fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// What a client reads in a body, to follow references and to check the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    pub name: String,
    pub stamp: Option<Stamp>,
    /// The names that the body refers to: of endpoints in a cluster, of routes in a listener, of clusters in a route.
    pub refers_to: Vec<String>,
}

pub fn read(kind: Kind, body: Bytes) -> Option<Reading> {
    Some(match kind {
        Kind::Cluster => {
            let cluster = Cluster::decode(body).ok()?;
            let eds = cluster.eds.unwrap_or_default().service_name;
            let own = || cluster.name.clone();
            let endpoints = (cluster.discovery == EDS_CLUSTER).then(|| if eds.is_empty() { own() } else { eds });
            Reading { refers_to: endpoints.into_iter().collect(), stamp: cluster.stamp, name: cluster.name }
        }
        Kind::Endpoints => {
            let endpoints = Endpoints::decode(body).ok()?;
            Reading { name: endpoints.name, stamp: endpoints.stamp, refers_to: Vec::new() }
        }
        Kind::Listener => {
            let listener = Listener::decode(body).ok()?;
            let filters =
                listener.chains.into_iter().flat_map(|chain| chain.filters).filter_map(|filter| filter.config);
            let managers = filters.chain(listener.api.and_then(|api| api.listener));
            let managers = managers.filter_map(|any| HttpManager::decode(any.value).ok());
            let routes = managers.filter_map(|manager| Some(manager.rds?.name)).filter(|name| !name.is_empty());
            Reading { refers_to: routes.collect(), name: listener.name, stamp: listener.stamp }
        }
        Kind::Route => {
            let route = Route::decode(body).ok()?;
            let rules = route.hosts.into_iter().flat_map(|host| host.rules);
            let clusters = rules.filter_map(|rule| Some(rule.action?.cluster)).filter(|name| !name.is_empty());
            Reading { refers_to: clusters.collect(), name: route.name, stamp: route.stamp }
        }
    })
}

/// Writes a body of about this many bytes. It is larger if its fields need more.
pub fn write(kind: Kind, name: &str, refers_to: &[String], stamp: Stamp, size: usize) -> Bytes {
    let body = |padding: Bytes| -> Vec<u8> {
        let (name, stamp) = (name.to_owned(), Some(stamp));
        match kind {
            Kind::Cluster => Cluster {
                name,
                discovery: EDS_CLUSTER,
                eds: Some(Eds { source: Some(ads()), service_name: String::new() }),
                stamp,
                padding,
            }
            .encode_to_vec(),
            Kind::Endpoints => Endpoints { name, groups: vec![one_endpoint()], stamp, padding }.encode_to_vec(),
            Kind::Listener => {
                let chains = refers_to.iter().map(|route| Chain { filters: vec![http_filter(route)] }).collect();
                Listener { name, chains, api: None, stamp, padding }.encode_to_vec()
            }
            Kind::Route => {
                let rules = refers_to.iter().map(|cluster| rule(cluster)).collect();
                let host = Host { name: "all".into(), domains: vec!["*".into()], rules };
                Route { name, hosts: vec![host], stamp, padding }.encode_to_vec()
            }
        }
    };
    let bare = body(Bytes::new());
    let missing = size.saturating_sub(bare.len() + PADDING_PREFIX);
    if missing == 0 { bare.into() } else { body(vec![b'.'; missing].into()).into() }
}

fn ads() -> ConfigSource {
    ConfigSource { ads: Some(Empty {}), api_version: 2 }
}

fn one_endpoint() -> Group {
    let socket = SocketAddress { address: "127.0.0.1".into(), port: 80 };
    let endpoint = Endpoint { address: Some(Address { socket: Some(socket) }) };
    Group { endpoints: vec![LbEndpoint { endpoint: Some(endpoint) }] }
}

fn http_filter(route: &str) -> Filter {
    let rds = Rds { source: Some(ads()), name: route.to_owned() };
    let manager = HttpManager { stat_prefix: "http".into(), rds: Some(rds) };
    let config = Any { type_url: HTTP_MANAGER_URL.into(), value: manager.encode_to_vec().into() };
    Filter { name: "envoy.filters.network.http_connection_manager".into(), config: Some(config) }
}

fn rule(cluster: &str) -> Rule {
    let prefix = RouteMatch { prefix: format!("/{cluster}") };
    Rule { matches: Some(prefix), action: Some(RouteAction { cluster: cluster.to_owned() }) }
}

#[derive(Clone, PartialEq, Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    discovery: i32,
    #[prost(message, optional, tag = "3")]
    eds: Option<Eds>,
    #[prost(message, optional, tag = "1000")]
    stamp: Option<Stamp>,
    #[prost(bytes = "bytes", tag = "1001")]
    padding: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Eds {
    #[prost(message, optional, tag = "1")]
    source: Option<ConfigSource>,
    #[prost(string, tag = "2")]
    service_name: String,
}

/// A source that means: over the same stream, in the current version of the API.
#[derive(Clone, PartialEq, Message)]
struct ConfigSource {
    #[prost(message, optional, tag = "3")]
    ads: Option<Empty>,
    #[prost(int32, tag = "6")]
    api_version: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct Endpoints {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    groups: Vec<Group>,
    #[prost(message, optional, tag = "1000")]
    stamp: Option<Stamp>,
    #[prost(bytes = "bytes", tag = "1001")]
    padding: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Group {
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LbEndpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    endpoint: Option<Endpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(message, optional, tag = "1")]
    address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, optional, tag = "1")]
    socket: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
struct SocketAddress {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Listener {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    chains: Vec<Chain>,
    #[prost(message, optional, tag = "19")]
    api: Option<ApiListener>,
    #[prost(message, optional, tag = "1000")]
    stamp: Option<Stamp>,
    #[prost(bytes = "bytes", tag = "1001")]
    padding: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct ApiListener {
    #[prost(message, optional, tag = "1")]
    listener: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Chain {
    #[prost(message, repeated, tag = "3")]
    filters: Vec<Filter>,
}

#[derive(Clone, PartialEq, Message)]
struct Filter {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    config: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct HttpManager {
    #[prost(string, tag = "2")]
    stat_prefix: String,
    #[prost(message, optional, tag = "3")]
    rds: Option<Rds>,
}

#[derive(Clone, PartialEq, Message)]
struct Rds {
    #[prost(message, optional, tag = "1")]
    source: Option<ConfigSource>,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Route {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    hosts: Vec<Host>,
    #[prost(message, optional, tag = "1000")]
    stamp: Option<Stamp>,
    #[prost(bytes = "bytes", tag = "1001")]
    padding: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Host {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Message)]
struct Rule {
    #[prost(message, optional, tag = "1")]
    matches: Option<RouteMatch>,
    #[prost(message, optional, tag = "2")]
    action: Option<RouteAction>,
}

#[derive(Clone, PartialEq, Message)]
struct RouteMatch {
    #[prost(string, tag = "1")]
    prefix: String,
}

#[derive(Clone, PartialEq, Message)]
struct RouteAction {
    #[prost(string, tag = "1")]
    cluster: String,
}

/// Cluster.DiscoveryType.EDS
const EDS_CLUSTER: i32 = 3;
const HTTP_MANAGER_URL: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
/// Bytes of the padding field's key and length.
const PADDING_PREFIX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_at_about_the_size_that_was_wanted() {
        for kind in Kind::ALL {
            let refers_to = match kind {
                Kind::Cluster => vec!["one".to_owned()], // a cluster refers to endpoints of its own name
                Kind::Endpoints => vec![],
                _ => vec!["a".to_owned(), "b".to_owned()],
            };
            let stamp = Stamp { update: 7, unix_nanos: 9 };
            for size in [0, 1000, 100_000] {
                let body = write(kind, "one", &refers_to, stamp, size);
                assert!(size == 0 || body.len().abs_diff(size) < 8, "{kind:?}: {} instead of {size}", body.len());
                let expected = Reading { name: "one".into(), stamp: Some(stamp), refers_to: refers_to.clone() };
                assert_eq!(read(kind, body), Some(expected));
            }
        }
    }
}

//! An Envoy as a client of clusters, their endpoints and named routes, in both variants.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use weir_core::protocol::session::{Reply, Variant};

use super::routing::ROUTES;
use super::{CDS, EDS, RDS};

/// When an Envoy says what.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    pub variant: Variant,
    /// It ACKs clusters before it subscribes to their endpoints, and does not wait until they are warm.
    pub acknowledges_first: bool,
    /// It requests routes with its first endpoints. Otherwise it waits until all its clusters are warm.
    pub starts_cold: bool,
}

/// How an Envoy answers a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Ack,
    /// It keeps the routes that it had.
    Nack,
    Silence,
}

/// What a client was sent, applied as an Envoy would apply it.
pub struct Envoy {
    manner: Manner,
    pub clusters: BTreeSet<String>,
    /// Clusters that were sent endpoints since they were added.
    pub endowed: BTreeSet<String>,
    pub routes: BTreeMap<String, String>,
    /// Clusters to which the first version of a route refers although the client does not have them yet: a request is always answered.
    pub early: BTreeSet<String>,
    started: bool,
    /// The nonce that it ACKs when all clusters have endpoints.
    unacknowledged: Option<String>,
}

/// What a client lacks of the cluster that a route refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    Cluster,
    Endpoints,
}

impl Lack {
    pub fn text(self) -> &'static str {
        match self {
            Self::Cluster => "which it does not hold",
            Self::Endpoints => "which has no endpoints",
        }
    }
}

impl Envoy {
    pub fn new(manner: Manner) -> Self {
        Self {
            manner,
            clusters: [].into(),
            endowed: [].into(),
            routes: [].into(),
            early: [].into(),
            started: false,
            unacknowledged: None,
        }
    }

    /// Returns the first request on a stream.
    pub fn first(&self) -> Request {
        request(self.manner.variant, CDS, &[], &[], &[], "")
    }

    /// Applies a reply, and returns the requests that follow, in the order in which they are sent.
    pub fn take(&mut self, reply: &Reply, answer: Answer) -> Vec<Request> {
        let (nonce, variant) = (reply.nonce.to_string(), self.manner.variant);
        let mut requests = match reply.kind.name() {
            name if name.ends_with(".Cluster") => self.take_clusters(reply, answer, nonce),
            name if name.ends_with(".ClusterLoadAssignment") => self.take_endpoints(reply, answer, &nonce),
            name if name.ends_with(".RouteConfiguration") => self.take_routes(reply, answer, &nonce),
            other => panic!("{other} was never requested"),
        };
        self.early.retain(|name| !self.endowed.contains(name));
        if self.is_warm()
            && let Some(nonce) = self.unacknowledged.take()
        {
            requests.push(request(variant, CDS, &[], &[], &[], &nonce));
        }
        requests
    }

    fn take_clusters(&mut self, reply: &Reply, answer: Answer, nonce: String) -> Vec<Request> {
        let (before, variant) = (self.clusters.clone(), self.manner.variant);
        if variant == Variant::Sotw {
            self.clusters.clear();
        }
        self.clusters.extend(names_of(reply));
        self.clusters.retain(|name| !reply.removed.iter().any(|removed| removed.as_str() == name));
        self.endowed.retain(|name| self.clusters.contains(name));
        let new: Vec<_> = self.clusters.difference(&before).cloned().collect();
        let gone: Vec<_> = before.difference(&self.clusters).cloned().collect();
        let mut requests = Vec::new();
        self.unacknowledged = match answer {
            Answer::Silence => None,
            _ if self.manner.acknowledges_first => {
                requests.push(request(variant, CDS, &[], &[], &[], &nonce));
                None
            }
            _ => Some(nonce),
        };
        if !new.is_empty() || !gone.is_empty() {
            requests.push(request(variant, EDS, &self.all_clusters(), &new, &gone, ""));
        }
        requests
    }

    fn take_endpoints(&mut self, reply: &Reply, answer: Answer, nonce: &str) -> Vec<Request> {
        self.endowed.extend(names_of(reply).filter(|name| self.clusters.contains(name)));
        let mut requests = Vec::new();
        if answer != Answer::Silence {
            requests.push(request(self.manner.variant, EDS, &self.all_clusters(), &[], &[], nonce));
        }
        if !self.started && (self.manner.starts_cold || self.is_warm()) {
            self.started = true;
            let routes = all_routes();
            requests.push(request(self.manner.variant, RDS, &routes, &routes, &[], ""));
        }
        requests
    }

    fn take_routes(&mut self, reply: &Reply, answer: Answer, nonce: &str) -> Vec<Request> {
        if answer != Answer::Nack {
            for resource in &*reply.resources {
                let body = resource.body.bytes();
                let target = std::str::from_utf8(&body[body.len() - 2..]).unwrap().to_owned();
                if self.routes.insert(resource.name.to_string(), target.clone()).is_none() {
                    self.early.insert(target);
                }
            }
        }
        let response = request(self.manner.variant, RDS, &all_routes(), &[], &[], nonce);
        match answer {
            Answer::Ack => vec![response],
            Answer::Nack => vec![refusing(response)],
            Answer::Silence => Vec::new(),
        }
    }

    fn is_warm(&self) -> bool {
        self.clusters.iter().all(|name| self.endowed.contains(name))
    }

    fn all_clusters(&self) -> Vec<String> {
        self.clusters.iter().cloned().collect()
    }

    /// Returns the routes into the void: each with its cluster, and what the client lacks of that.
    pub fn voids(&self) -> impl Iterator<Item = (&str, &str, Lack)> {
        self.routes.iter().filter_map(|(route, cluster)| {
            let lack = match (self.clusters.contains(cluster), self.endowed.contains(cluster)) {
                (true, true) => return None,
                (true, false) => Lack::Endpoints,
                (false, _) => Lack::Cluster,
            };
            Some((route.as_str(), cluster.as_str(), lack))
        })
    }
}

fn all_routes() -> Vec<String> {
    ROUTES.map(str::to_owned).into()
}

fn names_of(reply: &Reply) -> impl Iterator<Item = String> {
    reply.resources.iter().map(|resource| resource.name.to_string())
}

fn request(variant: Variant, url: &str, all: &[String], on: &[String], off: &[String], nonce: &str) -> Request {
    let (type_url, response_nonce) = (url.to_owned(), nonce.to_owned());
    match variant {
        Variant::Sotw => Request::Sotw(DiscoveryRequest {
            type_url,
            response_nonce,
            resource_names: all.to_vec(),
            ..Default::default()
        }),
        Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
            type_url,
            response_nonce,
            resource_names_subscribe: on.to_vec(),
            resource_names_unsubscribe: off.to_vec(),
            ..Default::default()
        }),
    }
}

/// Returns the nonce of the reply that a request answers; empty if it answers none.
pub fn nonce_of(request: &Request) -> &str {
    match request {
        Request::Sotw(request) => &request.response_nonce,
        Request::Delta(request) => &request.response_nonce,
    }
}

fn refusing(request: Request) -> Request {
    let error_detail = Some(Status { code: 3, message: "no".into() });
    match request {
        Request::Sotw(request) => Request::Sotw(DiscoveryRequest { error_detail, ..request }),
        Request::Delta(request) => Request::Delta(DeltaDiscoveryRequest { error_detail, ..request }),
    }
}

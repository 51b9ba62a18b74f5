//! The server: one task for each stream, which compares what its client was sent with the latest snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Snapshot;
use super::messages::{
    Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};

#[derive(Debug, Clone)]
pub struct Ads {
    snapshots: watch::Receiver<Snapshot>,
}

impl Ads {
    pub fn new(snapshots: watch::Receiver<Snapshot>) -> Self {
        Self { snapshots }
    }
}

impl NamedService for Ads {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

type Call = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl Service<http::Request<Body>> for Ads {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Call {
        let snapshots = self.snapshots.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                crate::link::ADS_SOTW => Grpc::new(ProstCodec::default()).streaming(Sotw(snapshots), request).await,
                crate::link::ADS_DELTA => Grpc::new(ProstCodec::default()).streaming(Delta(snapshots), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

type Replies<T> = ReceiverStream<Result<T, Status>>;

struct Sotw(watch::Receiver<Snapshot>);

impl StreamingService<DiscoveryRequest> for Sotw {
    type Response = DiscoveryResponse;
    type ResponseStream = Replies<DiscoveryResponse>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, requests: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let (sender, replies) = mpsc::channel(QUEUE);
        tokio::spawn(serve_sotw(requests.into_inner(), self.0.clone(), sender));
        ready(Ok(Response::new(ReceiverStream::new(replies))))
    }
}

struct Delta(watch::Receiver<Snapshot>);

impl StreamingService<DeltaDiscoveryRequest> for Delta {
    type Response = DeltaDiscoveryResponse;
    type ResponseStream = Replies<DeltaDiscoveryResponse>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, requests: Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        let (sender, replies) = mpsc::channel(QUEUE);
        tokio::spawn(serve_delta(requests.into_inner(), self.0.clone(), sender));
        ready(Ok(Response::new(ReceiverStream::new(replies))))
    }
}

async fn serve_sotw(
    mut requests: Streaming<DiscoveryRequest>,
    mut snapshots: watch::Receiver<Snapshot>,
    replies: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let mut nonce = 0u64;
    let (mut type_url, mut names) = (String::new(), None::<BTreeSet<String>>);
    let mut sent: BTreeMap<String, Arc<Resource>> = BTreeMap::new();
    let mut is_first = true;
    loop {
        tokio::select! {
            request = requests.message() => {
                let Ok(Some(request)) = request else { return };
                let wanted = Some(request.resource_names.into_iter().collect());
                if wanted == names {
                    continue; // an ACK
                }
                (type_url, names) = (request.type_url, wanted);
            }
            changed = snapshots.changed() => if changed.is_err() { return },
        }
        let Some(names) = &names else { continue };
        let snapshot = snapshots.borrow_and_update().clone();
        let wanted = |name: &str| names.is_empty() || names.contains(name);
        let mut due: BTreeMap<_, _> = snapshot.resources.clone();
        due.retain(|name, _| wanted(name));
        if !is_first && same(&due, &sent) {
            continue;
        }
        nonce += 1;
        let resources: Vec<Any> = due.values().filter_map(|resource| resource.resource.clone()).collect();
        let version_info = snapshot.version.to_string();
        let reply = DiscoveryResponse { version_info, resources, type_url: type_url.clone(), nonce: nonce.to_string() };
        (sent, is_first) = (due, false);
        if replies.send(Ok(reply)).await.is_err() {
            return;
        }
    }
}

fn same(a: &BTreeMap<String, Arc<Resource>>, b: &BTreeMap<String, Arc<Resource>>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1))
}

async fn serve_delta(
    mut requests: Streaming<DeltaDiscoveryRequest>,
    mut snapshots: watch::Receiver<Snapshot>,
    replies: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
) {
    let mut nonce = 0u64;
    let mut type_url = String::new();
    let mut names = BTreeSet::new();
    let mut sent: HashMap<String, String> = HashMap::new();
    let mut is_subscribed = false;
    loop {
        tokio::select! {
            request = requests.message() => {
                let Ok(Some(request)) = request else { return };
                if request.resource_names_subscribe.is_empty() && request.resource_names_unsubscribe.is_empty() && is_subscribed {
                    continue; // an ACK
                }
                is_subscribed = true;
                type_url = request.type_url;
                sent.extend(request.initial_resource_versions);
                names.extend(request.resource_names_subscribe.into_iter().filter(|name| name != "*"));
                for name in request.resource_names_unsubscribe {
                    names.remove(&name);
                    sent.remove(&name);
                }
            }
            changed = snapshots.changed() => if changed.is_err() { return },
        }
        if !is_subscribed {
            continue;
        }
        let snapshot = snapshots.borrow_and_update().clone();
        let due: Vec<&Arc<Resource>> = if names.is_empty() {
            snapshot.resources.values().collect()
        } else {
            names.iter().filter_map(|name| snapshot.resources.get(name)).collect()
        };
        let resources: Vec<Resource> = due
            .into_iter()
            .filter(|resource| sent.get(&resource.name) != Some(&resource.version))
            .map(|resource| Resource::clone(resource))
            .collect();
        let removed: Vec<_> = sent.keys().filter(|name| !snapshot.resources.contains_key(*name)).cloned().collect();
        if resources.is_empty() && removed.is_empty() {
            continue;
        }
        sent.extend(resources.iter().map(|resource| (resource.name.clone(), resource.version.clone())));
        removed.iter().for_each(|name| drop(sent.remove(name)));
        nonce += 1;
        let reply = DeltaDiscoveryResponse {
            system_version_info: snapshot.version.to_string(),
            resources,
            type_url: type_url.clone(),
            nonce: nonce.to_string(),
            removed_resources: removed,
        };
        if replies.send(Ok(reply)).await.is_err() {
            return;
        }
    }
}

const QUEUE: usize = 4;

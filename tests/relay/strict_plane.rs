//! A control plane on a stock gRPC server, which ends a stream whose request is longer than 4 MiB. It serves delta, and has clusters as a wildcard
//! set and endpoints by name. It is silent about unknown names.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codegen::Service;
use tonic::server::Grpc;
use tonic::{Request as Call, Response as Reply, Status, Streaming};
use tonic_prost::ProstCodec;
use weir_core::proto::Any;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};

use crate::plane::listen_at;
use crate::{CDS, cluster};

/// Resources of one type: names and contents. The contents are also the versions.
type Set = BTreeMap<String, String>;

/// The resources of the control plane, by type.
pub type World = BTreeMap<&'static str, Set>;

pub struct StrictPlane {
    pub address: SocketAddr,
    world: watch::Sender<World>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// What the server has seen of the relay.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub streams: usize,
    /// The statuses of streams that the relay did not end.
    pub refused: Vec<String>,
    /// The length of the longest request.
    pub longest: usize,
    /// The number of versions that were stated on all streams.
    pub stated: usize,
    /// The number of names to which the last stream has subscribed.
    pub names: usize,
    /// The number of ACKed resources since the last stream was opened.
    pub acks: usize,
    /// The number of resources sent since then, and of their responses.
    pub sent: usize,
    pub responses: usize,
}

impl StrictPlane {
    pub async fn start_at(address: SocketAddr, world: World) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let (world, worlds) = watch::channel(world);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(serve(listener, Conversations { worlds, seen: seen.clone() }));
        Self { address, world, seen, task }
    }

    pub fn change(&self, change: impl FnOnce(&mut World)) {
        self.world.send_modify(change);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Closes the listener and every connection. Returns the resources.
    pub async fn kill(self) -> World {
        self.task.abort();
        let _ = self.task.await;
        self.world.borrow().clone()
    }
}

async fn serve(listener: TcpListener, conversations: Conversations) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let conversations = conversations.clone();
        connections.spawn(async move {
            let service = service_fn(move |call: http::Request<hyper::body::Incoming>| {
                let conversations = conversations.clone();
                async move {
                    Ok::<_, Infallible>(match call.uri().path().ends_with("/DeltaAggregatedResources") {
                        true => Grpc::new(ProstCodec::default()).streaming(conversations, call).await,
                        false => Status::unimplemented("delta alone").into_http(),
                    })
                }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(socket), service).await; // the relay may disconnect at any time
        });
    }
}

#[derive(Clone)]
struct Conversations {
    worlds: watch::Receiver<World>,
    seen: Arc<Mutex<Seen>>,
}

type Responses = UnboundedReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

impl Service<Call<Streaming<DeltaDiscoveryRequest>>> for Conversations {
    type Response = Reply<Responses>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Status>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        let (out, responses) = mpsc::unbounded_channel();
        let Self { worlds, seen } = self.clone();
        let counts = &mut *self.seen.lock().unwrap();
        (counts.streams, counts.acks, counts.sent, counts.responses, counts.names) = (counts.streams + 1, 0, 0, 0, 0);
        let conversation = Conversation { subscriptions: BTreeMap::new(), out, seen };
        tokio::spawn(conversation.hold(call.into_inner(), worlds));
        Box::pin(async { Ok(Reply::new(UnboundedReceiverStream::new(responses))) })
    }
}

/// One stream.
struct Conversation {
    subscriptions: BTreeMap<String, Subscription>,
    out: mpsc::UnboundedSender<Result<DeltaDiscoveryResponse, Status>>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The versions that the relay has, as it stated them or was sent them.
    held: Set,
}

impl Conversation {
    async fn hold(mut self, mut requests: Streaming<DeltaDiscoveryRequest>, mut worlds: watch::Receiver<World>) {
        loop {
            tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.take(request),
                    Ok(None) => return,
                    Err(status) => {
                        // Other codes, such as "cancelled" and "unknown", come from closed connections.
                        if matches!(status.code(), tonic::Code::OutOfRange | tonic::Code::ResourceExhausted) {
                            self.note(|seen| seen.refused.push(status.to_string()));
                        }
                        let _ = self.out.send(Err(status));
                        return;
                    }
                },
                changed = worlds.changed() => if changed.is_err() { return },
            }
            let world = worlds.borrow_and_update().clone();
            let mut subscriptions = std::mem::take(&mut self.subscriptions);
            subscriptions.iter_mut().for_each(|(url, subscription)| self.answer(url, subscription, &world));
            self.subscriptions = subscriptions;
        }
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap());
    }

    fn take(&mut self, request: DeltaDiscoveryRequest) {
        let (bytes, stated) = (request.encoded_len(), request.initial_resource_versions.len());
        let is_ack = !request.response_nonce.is_empty();
        let names = request.resource_names_subscribe.len();
        self.note(|seen| {
            seen.longest = seen.longest.max(bytes);
            (seen.stated, seen.names, seen.acks) =
                (seen.stated + stated, seen.names + names, seen.acks + usize::from(is_ack));
        });
        let subscription = self.subscriptions.entry(request.type_url).or_default();
        subscription.names.retain(|name| !request.resource_names_unsubscribe.contains(name));
        subscription.names.extend(request.resource_names_subscribe);
        subscription.held.extend(request.initial_resource_versions);
    }

    /// Sends resources that the relay does not have, and removes those that it has and that do not exist.
    fn answer(&self, url: &str, subscription: &mut Subscription, world: &World) {
        static NOTHING: Set = Set::new();
        let all = world.get(url).unwrap_or(&NOTHING);
        let is_wanted = |name: &String| url == CDS || subscription.names.contains(name);
        let held = &subscription.held;
        let news: Vec<_> = all.iter().filter(|(name, at)| is_wanted(name) && held.get(*name) != Some(at)).collect();
        let gone: Vec<_> = held.keys().filter(|name| !all.contains_key(*name)).cloned().collect();
        for some in news.chunks(RESOURCES) {
            self.send(url, some, Vec::new());
        }
        if !gone.is_empty() {
            self.send(url, &[], gone.clone());
        }
        let news: Set = news.into_iter().map(|(name, content)| (name.clone(), content.clone())).collect();
        subscription.held.extend(news);
        subscription.held.retain(|name, _| !gone.contains(name));
    }

    fn send(&self, url: &str, resources: &[(&String, &String)], removed_resources: Vec<String>) {
        let wrap = |(name, content): &(&String, &String)| Resource {
            name: (*name).clone(),
            version: (*content).clone(),
            resource: Some(Any { type_url: url.to_owned(), ..cluster(name, content) }),
            ..Default::default()
        };
        let mut responses = 0;
        self.note(|seen| {
            (seen.sent, seen.responses) = (seen.sent + resources.len(), seen.responses + 1);
            responses = seen.responses;
        });
        let response = DeltaDiscoveryResponse {
            type_url: url.to_owned(),
            nonce: responses.to_string(),
            resources: resources.iter().map(wrap).collect(),
            removed_resources,
            ..Default::default()
        };
        let _ = self.out.send(Ok(response)); // the relay may have ended the stream
    }
}

/// The maximum of resources in one response.
const RESOURCES: usize = 10_000;

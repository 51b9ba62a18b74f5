//! A scripted xDS client over real gRPC, and text forms of what it receives.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as Call, Status, Streaming};
use tonic_prost::ProstCodec;
use weir_core::proto::discovery::{
    self, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_core::proto::node::Node;
use weir_core::proto::{Any, Request};
use weir_core::protocol::session::Variant;
use weir_core::xds::WRAPPER_TYPE;

pub use crate::raw_http::{Io, exchange};
use crate::resources::CDS;
pub use crate::wait::PATIENCE;

pub enum Client {
    Sotw(mpsc::UnboundedSender<DiscoveryRequest>, Streaming<DiscoveryResponse>),
    Delta(mpsc::UnboundedSender<DeltaDiscoveryRequest>, Streaming<DeltaDiscoveryResponse>),
}

/// A received response, with sorted names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub set: Vec<String>,
    pub removed: Vec<String>,
    pub nonce: String,
    pub version: String,
}

const PREFIX: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";

pub fn node(cluster: &str) -> Option<bytes::Bytes> {
    Some(Node { id: "test".into(), cluster: cluster.into(), ..Node::default() }.encode_to_vec().into())
}

/// A connector that returns its connection once.
struct Connected<S>(Option<TokioIo<S>>);

impl<S: Io> Service<http::Uri> for Connected<S> {
    type Response = TokioIo<S>;
    type Error = std::io::Error;
    type Future = Ready<std::io::Result<TokioIo<S>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| std::io::Error::other("there was one connection")))
    }
}

/// Returns a channel over an existing connection.
pub async fn channel_over(io: impl Io) -> Option<Channel> {
    let endpoint = Endpoint::from_static("http://relay");
    endpoint.connect_with_connector(Connected(Some(TokioIo::new(io)))).await.ok()
}

impl Client {
    pub async fn connect(address: SocketAddr, variant: Variant) -> Self {
        Self::try_connect(address, variant).await.expect("no stream")
    }

    pub async fn try_connect(address: SocketAddr, variant: Variant) -> Option<Self> {
        Self::connect_to(address, variant, &path_of(variant)).await
    }

    pub async fn connect_to(address: SocketAddr, variant: Variant, path: &str) -> Option<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.ok()?;
        Self::stream(channel, variant, path).await
    }

    /// Opens an aggregated stream over an existing connection.
    pub async fn over_as(io: impl Io, variant: Variant) -> Option<Self> {
        Self::over_at(io, variant, &path_of(variant)).await
    }

    /// Opens a stream of any method over an existing connection.
    pub async fn over_at(io: impl Io, variant: Variant, path: &str) -> Option<Self> {
        Self::stream(channel_over(io).await?, variant, path).await
    }

    /// Opens several aggregated delta streams on one connection.
    pub async fn connect_many(address: SocketAddr, count: usize) -> Vec<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let path = path_of(Variant::Delta);
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(Self::stream(channel.clone(), Variant::Delta, &path).await.expect("no stream"));
        }
        clients
    }

    /// Opens an aggregated stream whose requests are compressed.
    pub async fn compressing(address: SocketAddr, variant: Variant) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let grpc = Grpc::new(channel).send_compressed(CompressionEncoding::Gzip);
        Self::open(grpc, variant, &path_of(variant)).await.expect("no stream")
    }

    /// Opens an aggregated stream whose responses may be compressed.
    pub async fn accepting(address: SocketAddr, variant: Variant) -> Self {
        Self::accepting_over(tokio::net::TcpStream::connect(address).await.unwrap(), variant).await
    }

    /// Opens such a stream over an existing connection.
    pub async fn accepting_over(io: impl Io, variant: Variant) -> Self {
        let channel = channel_over(io).await.expect("no connection");
        let grpc = Grpc::new(channel).accept_compressed(CompressionEncoding::Gzip);
        Self::open(grpc, variant, &path_of(variant)).await.expect("no stream")
    }

    /// Opens an aggregated stream on a connection, with these headers besides those of gRPC. Its first request is sent at once, since a server
    /// that refuses the headers may end the stream before another one. Returns the status of a server that does.
    pub async fn call(channel: Channel, headers: &[(&'static str, &str)], first: Request) -> Result<Self, Status> {
        let mut grpc = Grpc::new(channel).max_decoding_message_size(64 << 20);
        grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
        Ok(match first {
            Request::Sotw(first) => {
                let (requests, call) = begun(headers, first);
                let codec: ProstCodec<DiscoveryRequest, DiscoveryResponse> = ProstCodec::default();
                let path = path_of(Variant::Sotw).parse().unwrap();
                Self::Sotw(requests, grpc.streaming(call, path, codec).await?.into_inner())
            }
            Request::Delta(first) => {
                let (requests, call) = begun(headers, first);
                let codec: ProstCodec<DeltaDiscoveryRequest, DeltaDiscoveryResponse> = ProstCodec::default();
                let path = path_of(Variant::Delta).parse().unwrap();
                Self::Delta(requests, grpc.streaming(call, path, codec).await?.into_inner())
            }
        })
    }

    /// The same in delta, with a first request for all clusters.
    pub async fn call_for_clusters(
        channel: Channel,
        headers: &[(&'static str, &str)],
        cluster: &str,
    ) -> Result<Self, Status> {
        let first = DeltaDiscoveryRequest { node: node(cluster), type_url: CDS.into(), ..Default::default() };
        Self::call(channel, headers, Request::Delta(first)).await
    }

    async fn stream(channel: Channel, variant: Variant, path: &str) -> Option<Self> {
        Self::open(Grpc::new(channel), variant, path).await
    }

    async fn open(grpc: Grpc<Channel>, variant: Variant, path: &str) -> Option<Self> {
        let path: PathAndQuery = path.parse().unwrap();
        let mut grpc = grpc.max_decoding_message_size(64 << 20);
        grpc.ready().await.ok()?;
        Some(match variant {
            Variant::Sotw => {
                let (requests, stream) = mpsc::unbounded_channel();
                let codec: ProstCodec<DiscoveryRequest, DiscoveryResponse> = ProstCodec::default();
                let call = Call::new(UnboundedReceiverStream::new(stream));
                Self::Sotw(requests, grpc.streaming(call, path, codec).await.ok()?.into_inner())
            }
            Variant::Delta => {
                let (requests, stream) = mpsc::unbounded_channel();
                let codec: ProstCodec<DeltaDiscoveryRequest, DeltaDiscoveryResponse> = ProstCodec::default();
                let call = Call::new(UnboundedReceiverStream::new(stream));
                Self::Delta(requests, grpc.streaming(call, path, codec).await.ok()?.into_inner())
            }
        })
    }

    /// Requests names of a type; none means all. A SotW client has to list all of its names each time.
    pub fn ask(&self, url: &str, names: &[&str], cluster: Option<&str>) {
        self.ask_with(cluster.and_then(node), url, names);
    }

    pub fn ask_as(&self, node: &Node, url: &str, names: &[&str]) {
        self.ask_with(Some(node.encode_to_vec().into()), url, names);
    }

    fn ask_with(&self, node: Option<bytes::Bytes>, url: &str, names: &[&str]) {
        let names = names.iter().map(ToString::to_string).collect();
        let type_url = url.to_owned();
        match self {
            Self::Sotw(requests, _) => {
                let request = DiscoveryRequest { node, type_url, resource_names: names, ..Default::default() };
                requests.send(request).unwrap();
            }
            Self::Delta(requests, _) => {
                let request =
                    DeltaDiscoveryRequest { node, type_url, resource_names_subscribe: names, ..Default::default() };
                requests.send(request).unwrap();
            }
        }
    }

    /// Unsubscribes a delta client from names.
    pub fn leave(&self, url: &str, names: &[&str]) {
        let Self::Delta(requests, _) = self else { panic!("a SotW client lists what it wants instead") };
        let resource_names_unsubscribe = names.iter().map(ToString::to_string).collect();
        let request = DeltaDiscoveryRequest { type_url: url.into(), resource_names_unsubscribe, ..Default::default() };
        requests.send(request).unwrap();
    }

    pub fn ack(&self, url: &str, names: &[&str], sent: &Told) {
        let (type_url, response_nonce) = (url.to_owned(), sent.nonce.clone());
        match self {
            Self::Sotw(requests, _) => {
                let resource_names = names.iter().map(ToString::to_string).collect();
                let version_info = sent.version.clone();
                let request =
                    DiscoveryRequest { type_url, response_nonce, resource_names, version_info, ..Default::default() };
                requests.send(request).unwrap();
            }
            Self::Delta(requests, _) => {
                requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).unwrap();
            }
        }
    }

    pub fn refuse(&self, url: &str, sent: &Told) {
        self.refuse_for(url, &[], sent, "no");
    }

    /// NACKs a response with a reason. A SotW client has to list the names that it wants.
    pub fn refuse_for(&self, url: &str, names: &[&str], sent: &Told, reason: &str) {
        let (type_url, response_nonce) = (url.to_owned(), sent.nonce.clone());
        let error_detail = Some(discovery::Status { code: 13, message: reason.into() });
        match self {
            Self::Sotw(requests, _) => {
                let resource_names = names.iter().map(ToString::to_string).collect();
                let request =
                    DiscoveryRequest { type_url, response_nonce, error_detail, resource_names, ..Default::default() };
                requests.send(request).unwrap();
            }
            Self::Delta(requests, _) => {
                let request = DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() };
                requests.send(request).unwrap();
            }
        }
    }

    /// Returns the names in the next response, or the status that ends the stream.
    pub async fn names(&mut self) -> Result<Vec<String>, Status> {
        Ok(self.next().await?.ok_or_else(|| Status::ok("the end"))?.set)
    }

    pub async fn sent(&mut self) -> Told {
        self.next().await.unwrap().expect("the relay ended the stream")
    }

    /// Checks that nothing arrives for a while.
    pub async fn hears_nothing(&mut self, duration: Duration) {
        if let Ok(sent) = tokio::time::timeout(duration, self.next_forever()).await {
            panic!("told {sent:?}, where nothing was to be said");
        }
    }

    pub async fn ended(&mut self) -> Code {
        self.end().await.0
    }

    /// Waits for the end of the stream, and returns its status.
    pub async fn end(&mut self) -> (Code, String) {
        match self.next().await {
            Err(status) => (status.code(), status.message().to_owned()),
            Ok(None) => (Code::Ok, String::new()),
            Ok(Some(sent)) => panic!("told {sent:?} instead of being ended"),
        }
    }

    async fn next(&mut self) -> Result<Option<Told>, Status> {
        tokio::time::timeout(PATIENCE, self.next_forever()).await.expect("nothing came")
    }

    pub async fn next_forever(&mut self) -> Result<Option<Told>, Status> {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        match self {
            Self::Sotw(_, responses) => Ok(responses.message().await?.map(|response| Told {
                set: sorted(response.resources.iter().map(name_of).collect()),
                removed: Vec::new(),
                nonce: response.nonce,
                version: response.version_info,
            })),
            Self::Delta(_, responses) => Ok(responses.message().await?.map(|response| Told {
                set: sorted(response.resources.into_iter().map(|resource| resource.name).collect()),
                removed: sorted(response.removed_resources),
                nonce: response.nonce,
                version: String::new(),
            })),
        }
    }
}

/// Returns the path of aggregated streams.
fn path_of(variant: Variant) -> String {
    let method = match variant {
        Variant::Sotw => "StreamAggregatedResources",
        Variant::Delta => "DeltaAggregatedResources",
    };
    format!("{PREFIX}{method}")
}

/// Returns a call with headers and its first request, and the sender of the others.
fn begun<T>(
    headers: &[(&'static str, &str)],
    first: T,
) -> (mpsc::UnboundedSender<T>, Call<UnboundedReceiverStream<T>>) {
    let (requests, stream) = mpsc::unbounded_channel();
    let mut call = Call::new(UnboundedReceiverStream::new(stream));
    for (name, value) in headers {
        call.metadata_mut().append(*name, value.parse().unwrap());
    }
    let _ = requests.send(first); // its receiver is in the call
    (requests, call)
}

fn name_of(any: &Any) -> String {
    match any.type_url.ends_with(WRAPPER_TYPE) {
        true => Resource::decode(any.value.clone()).unwrap().name,
        false => name_in(&any.value),
    }
}

fn name_in(body: &[u8]) -> String {
    let length = usize::from(body[1]);
    String::from_utf8(body[2..2 + length].to_vec()).unwrap()
}

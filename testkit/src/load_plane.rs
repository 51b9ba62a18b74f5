//! A scripted server of load reports, and a scripted client. Both send and receive messages as bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request as Call, Response as Reply};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use weir_core::proto::loads::{LoadStatsRequest, LoadStatsResponse};
use weir_core::xds::LOADS_PATH;

use crate::address::{listen_at, own_address};
use crate::client::{Io, channel_over};
use crate::gzip;
use crate::raw::Raw;
use crate::wait::PATIENCE;

pub struct LoadPlane {
    pub address: SocketAddr,
    pub streams: mpsc::UnboundedReceiver<LoadStream>,
    server: JoinHandle<()>,
}

/// The server's end of a relay's stream. Dropping it ends the stream without a status.
pub struct LoadStream {
    /// The number of the connection. Connections are counted from 0.
    pub connection: usize,
    pub reports: mpsc::UnboundedReceiver<Bytes>,
    frames: mpsc::Sender<Frame<Bytes>>,
}

impl LoadPlane {
    pub async fn start() -> Self {
        Self::start_at(own_address()).await
    }

    pub async fn start_at(address: SocketAddr) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let (accepted, streams) = mpsc::unbounded_channel();
        let server = tokio::spawn(serve(listener, Arc::new(accepted)));
        Self { address, streams, server }
    }

    pub async fn stream(&mut self) -> LoadStream {
        tokio::time::timeout(PATIENCE, self.streams.recv()).await.expect("no stream came").unwrap()
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        self.server.abort();
        let _ = self.server.await;
        self.address
    }
}

impl LoadStream {
    pub async fn message(&mut self) -> Option<Bytes> {
        tokio::time::timeout(PATIENCE, self.reports.recv()).await.expect("no report came")
    }

    pub async fn report(&mut self) -> LoadStatsRequest {
        LoadStatsRequest::decode(self.message().await.expect("the stream has ended")).unwrap()
    }

    pub async fn say(&self, message: &[u8]) {
        self.frames.send(Frame::data(gzip::framed(0, message).into())).await.expect("the relay is gone");
    }

    pub async fn say_compressed(&self, message: &[u8]) {
        let frame = gzip::framed(1, &gzip::gzip(message));
        self.frames.send(Frame::data(frame.into())).await.expect("the relay is gone");
    }

    pub async fn say_bomb(&self) {
        let frame = gzip::framed(1, &gzip::bomb(1024, 7));
        self.frames.send(Frame::data(frame.into())).await.expect("the relay is gone");
    }

    pub async fn order(&self, order: &LoadStatsResponse) {
        self.say(&order.encode_to_vec()).await;
    }

    pub async fn end(self, code: u16) {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.into())]);
        self.frames.send(Frame::trailers(trailers)).await.expect("the relay is gone");
    }
}

async fn serve(listener: TcpListener, accepted: Arc<mpsc::UnboundedSender<LoadStream>>) {
    let mut connections = tokio::task::JoinSet::new();
    for number in 0.. {
        let (socket, _) = listener.accept().await.unwrap();
        let accepted = accepted.clone();
        connections.spawn(async move {
            let service = service_fn(move |call| {
                let reply = open(call, number, &accepted);
                async move { Ok::<_, Infallible>(reply) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

pub type Body = StreamBody<Pin<Box<dyn tokio_stream::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

pub fn open(call: Call<Incoming>, connection: usize, accepted: &mpsc::UnboundedSender<LoadStream>) -> Reply<Body> {
    let (frames, out) = mpsc::channel(1);
    let (seen, reports) = mpsc::unbounded_channel();
    if call.uri().path() == LOADS_PATH {
        accepted.send(LoadStream { connection, reports, frames }).ok();
    }
    tokio::spawn(read(call.into_body(), seen));
    let out: Pin<Box<dyn tokio_stream::Stream<Item = _> + Send>> = Box::pin(ReceiverStream::new(out).map(Ok));
    Reply::builder().header("content-type", "application/grpc").body(StreamBody::new(out)).unwrap()
}

async fn read(mut body: Incoming, seen: mpsc::UnboundedSender<Bytes>) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while buffer.len() >= 5 {
            let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
            if buffer.len() < 5 + length {
                break;
            }
            seen.send(buffer.split_to(5 + length).freeze().slice(5..)).ok();
        }
    }
}

pub struct LoadClient {
    /// Dropping it half-closes the stream.
    pub reports: Option<mpsc::Sender<Bytes>>,
    answers: Streaming<Bytes>,
}

impl LoadClient {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.expect("no stream")
    }

    pub async fn try_connect(address: SocketAddr) -> Result<Self, Status> {
        Self::try_connect_to(address, LOADS_PATH).await
    }

    pub async fn try_connect_to(address: SocketAddr, path: &'static str) -> Result<Self, Status> {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self::on(channel, path).await
    }

    /// Connects a client that compresses its messages.
    pub async fn compressing(address: SocketAddr) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let grpc = Grpc::new(channel).send_compressed(CompressionEncoding::Gzip);
        Self::open(grpc, LOADS_PATH).await.expect("no stream")
    }

    /// Opens a stream over an existing connection.
    pub async fn over(io: impl Io) -> Self {
        Self::on(channel_over(io).await.unwrap(), LOADS_PATH).await.expect("no stream")
    }

    /// Opens a stream beside other streams of a connection.
    pub async fn on(channel: Channel, path: &'static str) -> Result<Self, Status> {
        Self::open(Grpc::new(channel), path).await
    }

    async fn open(mut grpc: Grpc<Channel>, path: &'static str) -> Result<Self, Status> {
        grpc.ready().await.unwrap();
        let (reports, stream) = mpsc::channel(1);
        let call = tonic::Request::new(ReceiverStream::new(stream));
        let answers = grpc.streaming(call, PathAndQuery::from_static(path), Raw).await?.into_inner();
        Ok(Self { reports: Some(reports), answers })
    }

    pub async fn send(&self, message: &[u8]) {
        self.reports.as_ref().unwrap().send(Bytes::copy_from_slice(message)).await.expect("the stream has ended");
    }

    pub async fn report(&self, report: &LoadStatsRequest) {
        self.send(&report.encode_to_vec()).await;
    }

    pub async fn answer(&mut self) -> Result<Option<Bytes>, Status> {
        tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("nothing came")
    }

    pub async fn order(&mut self) -> LoadStatsResponse {
        LoadStatsResponse::decode(self.answer().await.unwrap().expect("the stream has ended")).unwrap()
    }

    pub async fn ended(&mut self) -> Status {
        match self.answer().await {
            Err(status) => status,
            Ok(None) => Status::ok(""),
            Ok(Some(message)) => panic!("told {message:?} instead of being ended"),
        }
    }
}

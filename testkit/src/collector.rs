//! A collector of traces: an OTLP server that stores what it receives, or answers nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub struct Collector {
    pub address: SocketAddr,
    kept: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    server: JoinHandle<()>,
}

/// A received span, with its attributes as text.
#[derive(Debug, Clone)]
pub struct Received {
    pub trace: String,
    pub lasted: Duration,
    pub attributes: BTreeMap<String, String>,
}

impl Collector {
    pub async fn start() -> Self {
        Self::listen(None, true).await
    }

    pub async fn start_with_tls(tls: rustls::ServerConfig) -> Self {
        Self::listen(Some(TlsAcceptor::from(Arc::new(tls))), true).await
    }

    /// Starts a collector that accepts connections and requests, and answers none.
    pub async fn start_hung() -> Self {
        Self::listen(None, false).await
    }

    async fn listen(tls: Option<TlsAcceptor>, answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Arc::<Mutex<Vec<ExportTraceServiceRequest>>>::default();
        let server = tokio::spawn(serve(listener, tls, kept.clone(), answers));
        Self { address, kept, server }
    }

    /// Returns the spans with this name that were received so far.
    pub fn spans(&self, name: &str) -> Vec<Received> {
        let kept = self.kept.lock().unwrap();
        let scopes = kept.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
        scopes.flat_map(|of| &of.spans).filter(|span| span.name == name).map(received).collect()
    }

    pub fn exports(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// Returns the attributes of the process, from the first export.
    pub fn resource(&self) -> BTreeMap<String, String> {
        let kept = self.kept.lock().unwrap();
        let resource = kept[0].resource_spans[0].resource.clone().unwrap();
        resource.attributes.into_iter().map(|of| (of.key, text(of.value.and_then(|value| value.value)))).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn received(span: &Span) -> Received {
    let attributes = span.attributes.iter().cloned();
    Received {
        trace: span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        lasted: Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano),
        attributes: attributes.map(|of| (of.key, text(of.value.and_then(|value| value.value)))).collect(),
    }
}

fn text(value: Option<Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    kept: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    answers: bool,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (tls, kept) = (tls.clone(), kept.clone());
        connections.spawn(async move {
            let service = service_fn(move |call| export(call, kept.clone(), answers));
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = match tls {
                None => builder.serve_connection(TokioIo::new(socket), service).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => builder.serve_connection(TokioIo::new(socket), service).await,
                    Err(_) => Ok(()), // the exporter receives the reason
                },
            };
        });
    }
}

async fn export(
    call: Request<Incoming>,
    kept: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    answers: bool,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(call.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let body = call.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if !answers {
        std::future::pending::<()>().await;
    }
    kept.lock().unwrap().push(ExportTraceServiceRequest::decode(body.slice(5..)).unwrap());
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let empty_message = Bytes::from_static(&[0; 5]);
    let frames = [Ok(Frame::data(empty_message)), Ok(Frame::trailers(trailers))];
    let response = Response::new(StreamBody::new(tokio_stream::iter(frames)));
    let (mut head, body) = response.into_parts();
    head.headers.insert("content-type", "application/grpc".parse().unwrap());
    Ok(Response::from_parts(head, body))
}

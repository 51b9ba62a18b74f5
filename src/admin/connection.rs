//! One connection: who is at the other end, and the protocol that it speaks.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::{Extension, Router};
use http_body_util::BodyExt;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::Layer;
use weir_core::xds::{Peer, PeerProof};

use super::caller::{AdminSurface, Caller};
use super::listener::{AdminSocket, Incoming, Listener};
use super::places::{AdminPlace, Answering, Places};
use crate::downstream::{HandshakeLimits, Handshakes, HttpVersion, Rewound, Secured, WriteTimeout, first_word, secure};
use crate::log_pace::LogPace;
use crate::tls::ListenerTls;

/// What the connections of one listener have in common.
pub(super) struct Serving {
    via: AdminSurface,
    pages: Router,
    tls: Option<Arc<ListenerTls>>,
    handshakes: Handshakes,
    places: Arc<Places>,
    gave_way: LogPace,
}

impl Serving {
    /// `places` is the maximum of connections that are open at a time.
    pub(crate) fn new(socket: &AdminSocket, pages: Router, places: usize) -> Self {
        let tls = socket.tls().cloned();
        let limits = HandshakeLimits { at_a_time: 2, timeout: FIRST_WORD, per_address: 0 };
        let handshakes = Handshakes::new(limits, Arc::default());
        let spared = if tls.is_some() { SPARED_WITH_TLS } else { SPARED };
        let (places, gave_way) = (Places::new(places, spared), LogPace::once_a_minute());
        Self { via: socket.via(), pages, tls, handshakes, places, gave_way }
    }

    /// Serves without end.
    pub(crate) async fn serve(self, mut listener: Listener) {
        let this = Arc::new(self);
        let mut connections = JoinSet::new();
        if let Some(tls) = this.tls.clone() {
            connections.spawn(tls.follow(|| ())); // each request is judged by the CAs in use when it arrives
        }
        loop {
            let incoming = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let (place, gave_way) = this.places.take().await;
            if gave_way && let Some(unlogged) = this.gave_way.line(std::time::Instant::now()) {
                tracing::warn!(via = ?this.via, unlogged, "idle connection of an operator or a probe closed for another: all places are taken");
            }
            let this = this.clone();
            connections.spawn(async move {
                tokio::select! {
                    biased; // what has arrived is read before the connection agrees to give way
                    () = this.arrived(incoming, place.clone()) => {}
                    () = place.gives_way() => {}
                }
            });
        }
    }

    async fn arrived(&self, Incoming { socket, address }: Incoming, place: Arc<AdminPlace>) {
        socket.prepare();
        let mut peer = Peer { connection: 0, address, proven: socket.process() };
        let Some(tls) = &self.tls else {
            let caller = Caller { via: self.via, peer: Arc::new(peer), chain: None };
            return self.speak(socket, caller, place).await;
        };
        let Some(Secured { stream, names, chain }) = secure(socket, &peer, tls, &self.handshakes).await else { return };
        place.authenticated();
        let chain = names.map(|names| {
            peer.proven = Some(PeerProof::Certificate(names));
            Arc::new(chain)
        });
        let caller = Caller { via: self.via, peer: Arc::new(peer), chain };
        self.speak(stream, caller, place).await;
    }

    /// Serves HTTP/1.1, or for operators also HTTP/2: gRPC needs HTTP/2, over which an open connection may be silent for long.
    async fn speak(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        caller: Caller,
        place: Arc<AdminPlace>,
    ) {
        let Ok(Ok((spoken, first))) = timeout(FIRST_WORD, first_word(&mut stream)).await else { return };
        let of_writes = place.clone();
        let io = WriteTimeout::new(Rewound::new(first, stream), STALL);
        let io = TokioIo::new(io.noting(move || of_writes.wrote()));
        let peer = caller.peer.clone();
        let pages = TowerToHyperService::new(Extension(caller).layer(self.pages.clone()));
        let service = service_fn(move |request| {
            let (answering, answer) = (place.answering(), pages.call(request));
            async move {
                let Some(answering) = answering else { return pending().await };
                answer.await.map(|response| response.map(|body| held_until_sent(body, answering)))
            }
        });
        let ended = match spoken {
            HttpVersion::Http2 if self.via != AdminSurface::Probes => http2().serve_connection(io, service).await,
            _ => http1(self.via).serve_connection(io, service).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "connection of an operator or a probe ended");
        }
    }
}

/// Returns the body of a response. The request counts as being answered until the body is dropped.
fn held_until_sent(body: Body, answering: Answering) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _until_then = &answering;
        frame
    }))
}

/// Probes get a connection for each request: a connection that is used again and again would never be idle.
fn http1(via: AdminSurface) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).keep_alive(via != AdminSurface::Probes);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEPALIVE))
        .keep_alive_timeout(STALL)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES);
    builder
}

/// How long a peer may take to send its first bytes, and for the TLS handshake.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// How long a connection is not asked to give way after it was accepted, a response was sent, or bytes were written. With TLS it is longer, because a
/// handshake waits for the peer more often.
const SPARED: Duration = Duration::from_millis(100);
const SPARED_WITH_TLS: Duration = Duration::from_secs(1);
/// How long a peer may leave a response unread, or an HTTP/2 keepalive unanswered.
const STALL: Duration = Duration::from_secs(30);
const KEEPALIVE: Duration = Duration::from_secs(60);
const STREAMS: u32 = 16;
const HEADER_BYTES: u32 = 64 << 10;

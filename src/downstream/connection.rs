//! One connection of a client: HTTP/2 for gRPC, and HTTP/1.1 or HTTP/2 for REST, on one port.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use weir_core::xds::Peer;

use super::coalesce::Coalesced;
use super::connections::{ConnectionLimits, ConnectionPlace, End, OpenStream, ends, finish};
use super::counted::Counted;
use super::drain::Drain;
use super::paced_reads::PacedReads;
use super::polls::Spawner;
use super::sent_ahead::{STREAM_WINDOW, WINDOW};
use super::sniff::{HttpVersion, Rewound, first_word};
use super::socket::Socket;
use super::write_timeout::WriteTimeout;

/// How long a peer may keep a connection without progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    /// For the first bytes: in all versions of HTTP the client sends first.
    pub(crate) first_word: Duration,
    /// For the head of the next HTTP/1.1 request after a response. Pollers reuse their connection after a delay, plus up to the same again; few
    /// have a delay of more than a minute.
    pub(crate) next_request: Duration,
    /// For an HTTP/1.1 peer that stops reading within a response.
    pub(crate) stall: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        let [first_word, next_request, stall] = [10, 120, 30].map(Duration::from_secs);
        Self { first_word, next_request, stall }
    }
}

/// Waits for the first bytes of a connection. Returns false if it has to end instead.
pub(super) async fn has_spoken(
    socket: &Socket,
    peer: &Peer,
    drain: &mut Drain,
    patience: ConnectionTimeouts,
    place: &ConnectionPlace,
) -> bool {
    tokio::select! {
        biased;
        _ = timeout(patience.first_word, socket.wait_for_bytes()) => {}
        end = ends(place, drain) => match socket.has_bytes() {
            true => place.stay(),
            false => {
                log_closed(peer, end);
                return false;
            }
        },
    }
    place.note_bytes();
    true
}

/// Serves a connection until it ends. While the relay drains, it accepts no more requests.
pub(super) async fn serve<F, B>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    peer: Arc<Peer>,
    mut drain: Drain,
    patience: ConnectionTimeouts,
    place: Arc<ConnectionPlace>,
    call: impl Fn(Request<Incoming>, &OpenStream) -> F,
) where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let first = tokio::select! {
        first = timeout(patience.first_word, first_word(&mut stream)) => first,
        end = ends(&place, &mut drain) => return log_closed(&peer, end),
    };
    let Ok(Ok((spoken, first))) = first else {
        tracing::debug!(%peer, "connection sent nothing; closing it");
        return;
    };
    let io = PacedReads::new(Rewound::new(first, stream), place.clone());
    let service = service_fn(|request| {
        let open = place.open_stream();
        let response = call(request, &open);
        async move { Ok::<_, Infallible>(response.await.map(|body| Counted::new(body, open))) }
    });
    let limits = place.connections().limits();
    // Graceful: no new streams or requests are accepted, and open ones end normally.
    let ended = match spoken {
        HttpVersion::Http2 => {
            let io = Coalesced::new(io);
            let mut connection = pin!(http2(&limits).serve_connection(TokioIo::new(io.share()), service));
            tokio::select! {
                ended = io.drive(connection.as_mut()) => Some(ended),
                end = ends(&place, &mut drain) => {
                    log_closed(&peer, end);
                    connection.as_mut().graceful_shutdown();
                    finish(&place, end, io.drive(connection)).await
                }
            }
        }
        HttpVersion::Http1 => {
            let io = TokioIo::new(WriteTimeout::new(io, patience.stall));
            let mut connection = pin!(http1(&limits, patience).serve_connection(io, service));
            tokio::select! {
                ended = &mut connection => Some(ended),
                end = ends(&place, &mut drain) => {
                    log_closed(&peer, end);
                    connection.as_mut().graceful_shutdown();
                    finish(&place, end, connection).await
                }
            }
        }
    };
    if let Some(Err(error)) = ended {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

fn log_closed(peer: &Peer, end: End) {
    match end {
        End::Drain => {}
        End::Unused => tracing::debug!(%peer, "connection without streams closed; another one needs its place"),
        End::Late => tracing::debug!(%peer, "connection without a request closed (limits.first_request_timeout)"),
        End::Refused => tracing::debug!(%peer, "connection refused"),
        End::Full => tracing::debug!(%peer, "connection gets no more streams; the relay has too many (limits.streams)"),
        End::Aged => {
            tracing::debug!(%peer, "connection closed; it has reached its maximum age (clients.max_connection_age)")
        }
        End::Judged => tracing::debug!(%peer, "connection closed; its client may not stay"),
    }
}

fn http2(limits: &ConnectionLimits) -> http2::Builder<Spawner> {
    let streams = limits.streams_per_connection;
    let mut builder = http2::Builder::new(Spawner);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEPALIVE))
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(streams)
        .max_pending_accept_reset_streams(streams as usize)
        .max_header_list_size(u32::try_from(longest_headers(limits)).unwrap_or(u32::MAX))
        .max_local_error_reset_streams(65_536)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(16 << 10);
    builder
}

fn http1(limits: &ConnectionLimits, patience: ConnectionTimeouts) -> http1::Builder {
    let mut builder = http1::Builder::new();
    let buffer = longest_headers(limits).max(64 << 10);
    builder.timer(TokioTimer::new()).header_read_timeout(patience.next_request).max_buf_size(buffer);
    builder
}

/// The HTTP library answers longer headers itself, with 431 and no reason. Weir refuses headers between the limit and this, with a reason.
fn longest_headers(limits: &ConnectionLimits) -> usize {
    limits.header_bytes.saturating_mul(2)
}

const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::downstream::connections::tests::any_place;

    /// The client's end of a served connection, and the serving task.
    async fn served(patience: ConnectionTimeouts, body: Bytes) -> (TcpStream, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, peer) = listener.accept().await.unwrap();
        let (switch, drain) = Drain::new();
        let serving = tokio::spawn(async move {
            let _switch = switch;
            serve_socket(near, peer, drain, patience, any_place().await, body).await;
        });
        (far, serving)
    }

    fn answer(body: Bytes) -> impl Fn(Request<Incoming>, &OpenStream) -> std::future::Ready<Response<Full<Bytes>>> {
        move |_, _| std::future::ready(Response::new(Full::new(body.clone())))
    }

    /// Serves a connection as the listener does.
    async fn serve_socket(
        near: TcpStream,
        peer: SocketAddr,
        drain: Drain,
        patience: ConnectionTimeouts,
        place: Arc<ConnectionPlace>,
        body: Bytes,
    ) {
        let (near, peer) = (Socket::Tcp(near), Peer::at(peer));
        if has_spoken(&near, &peer, &mut drain.clone(), patience, &place).await {
            serve(near, Arc::new(peer), drain, patience, place, answer(body)).await;
        }
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    const LONG: Duration = Duration::from_secs(20);

    async fn ends(serving: tokio::task::JoinHandle<()>) {
        tokio::time::timeout(LONG, serving).await.expect("the connection is still served").unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_says_nothing_or_never_comes_to_the_end_of_a_request_is_closed() {
        let short = Duration::from_millis(100);
        let patience = ConnectionTimeouts { first_word: short, next_request: short, stall: LONG };
        let (_silent, serving) = served(patience, Bytes::new()).await;
        ends(serving).await;
        let (mut hesitant, serving) = served(patience, Bytes::new()).await;
        hesitant.write_all(b"PRI * HTTP").await.unwrap();
        ends(serving).await;
        let (mut slow, serving) = served(patience, Bytes::new()).await;
        slow.write_all(&REQUEST[..20]).await.unwrap();
        ends(serving).await;
        // Its request may be late on a busy machine: only the next one has little time.
        let (mut idle, serving) = served(ConnectionTimeouts { first_word: LONG, ..patience }, Bytes::new()).await;
        idle.write_all(REQUEST).await.unwrap();
        ends(serving).await;
        let mut answer = String::new();
        idle.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[tokio::test]
    async fn what_has_arrived_is_answered_although_another_connection_needs_the_place() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut far, b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let (near, peer) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let place = any_place().await;
        place.connections().make_room();
        let (_switch, drain) = Drain::new();
        let near = TcpStream::from_std(near).unwrap(); // the runtime has not seen yet that it can be read
        serve_socket(near, peer, drain, ConnectionTimeouts::default(), place, Bytes::new()).await;
        let mut received = String::new();
        std::io::Read::read_to_string(&mut far, &mut received).unwrap();
        assert!(received.starts_with("HTTP/1.0 200 OK"), "{received}");
    }

    #[tokio::test]
    async fn a_peer_that_has_sent_nothing_is_closed_for_another_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, peer) = listener.accept().await.unwrap();
        let (_switch, drain) = Drain::new();
        let place = any_place().await;
        let patience = ConnectionTimeouts { first_word: 2 * LONG, ..ConnectionTimeouts::default() };
        let serving = tokio::spawn({
            let place = place.clone();
            async move { serve_socket(near, peer, drain, patience, place, Bytes::new()).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await; // it is served for a while
        place.connections().make_room();
        let closed = tokio::time::timeout(LONG, far.read(&mut [0])).await;
        assert_eq!(closed.expect("it is still open").unwrap(), 0);
        ends(serving).await;
    }

    #[tokio::test]
    async fn a_peer_that_stops_reading_its_answer_is_closed() {
        let patience = ConnectionTimeouts { stall: Duration::from_millis(200), ..ConnectionTimeouts::default() };
        let (mut far, serving) = served(patience, vec![7; 64 << 20].into()).await;
        far.write_all(REQUEST).await.unwrap();
        ends(serving).await;
        let mut left = Vec::new();
        let cut = far.read_to_end(&mut left).await.map_err(|error| error.kind());
        assert!(left.len() < 64 << 20 && matches!(cut, Ok(_) | Err(ErrorKind::ConnectionReset)), "{cut:?}");
    }
}

//! The transport of the clients against a plain HTTP/2 server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use weir_loadtest::address::{TlsOptions, resolve};
use weir_loadtest::link::{ADS_DELTA, Event, Link, LinkOptions};
use weir_testkit::certificates::{Authority, certificate};
use weir_testkit::folder::Folder;

/// Sends back what it receives, and after the end of the requests a status.
async fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    address
}

async fn serve(socket: impl AsyncRead + AsyncWrite + Unpin) {
    let mut connection = h2::server::Builder::new().max_concurrent_streams(8).handshake(socket).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(echo(request, respond));
    }
}

async fn echo(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut requests = request.into_body();
    let mut replies = respond.send_response(Response::new(()), false).unwrap();
    while let Some(Ok(data)) = requests.data().await {
        let _ = requests.flow_control().release_capacity(data.len());
        if replies.send_data(data, false).is_err() {
            return;
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("5"));
    trailers.insert("grpc-message", HeaderValue::from_static("enough"));
    let _ = replies.send_trailers(trailers); // the client may have reset the stream
}

async fn next(link: &mut Link) -> Event {
    timeout(Duration::from_secs(10), link.next()).await.expect("an event")
}

#[tokio::test]
async fn every_stream_gets_its_own_messages_and_its_status() {
    let mut link = Link::open(echo_server().await, &LinkOptions::default()).await.unwrap();
    let streams: Vec<_> = (0..8).map(|_| link.start(ADS_DELTA)).collect();
    let sizes = [0, 1, 1000, 100_000];
    for stream in &streams {
        sizes.iter().for_each(|size| link.send(*stream, vec![*stream as u8; *size]));
    }
    let mut received = vec![Vec::new(); streams.len()];
    while received.iter().any(|of| of.len() < sizes.len()) {
        let Event::Message(stream, message) = next(&mut link).await else { panic!("no message") };
        let bytes = message.into_bytes();
        assert!(bytes.iter().all(|byte| usize::from(*byte) == stream));
        received[stream].push(bytes.len());
    }
    assert!(received.iter().all(|of| of == &sizes));
    link.half_close(streams[3]);
    let Event::Ended(stream, status) = next(&mut link).await else { panic!("no end") };
    assert_eq!((stream, status.code, &*status.message), (streams[3], Some(5), "enough"));
}

#[tokio::test]
async fn streams_beyond_what_the_server_allows_wait_for_a_place() {
    let mut link = Link::open(echo_server().await, &LinkOptions::default()).await.unwrap();
    (0..20).for_each(|stream| assert_eq!(link.start(ADS_DELTA), stream));
    (0..20).for_each(|stream| link.send(stream, b"hello"));
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 20 {
        let Event::Message(stream, _) = next(&mut link).await else { panic!("no message") };
        answered.insert(stream);
        link.cancel(stream);
    }
}

#[tokio::test]
async fn a_paused_stream_reports_nothing_until_it_continues() {
    let mut link = Link::open(echo_server().await, &LinkOptions::default()).await.unwrap();
    let (paused, other) = (link.start(ADS_DELTA), link.start(ADS_DELTA));
    link.set_paused(paused, true);
    link.send(paused, b"first");
    link.send(other, b"second");
    assert!(matches!(next(&mut link).await, Event::Message(stream, _) if stream == other));
    assert!(timeout(Duration::from_millis(50), link.next()).await.is_err());
    link.set_paused(paused, false);
    assert!(matches!(next(&mut link).await, Event::Message(stream, _) if stream == paused));
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let (own, other, folder) = (Authority::new(), Authority::new(), Folder::new("loadtest-ca"));
    let identity = own.sign("localhost");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate(&identity.certificate)], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            if let Ok(socket) = acceptor.accept(socket).await {
                tokio::spawn(serve(socket));
            }
        }
    });

    for (authority, is_trusted) in [(&own, true), (&other, false)] {
        folder.write("ca.pem", &authority.pem);
        let ca = Some(folder.0.join("ca.pem"));
        let options = TlsOptions { ca, server_name: Some("localhost".into()), ..TlsOptions::default() };
        let (address, tls) = resolve(&server, &options).await.unwrap();
        let link = Link::open(address, &LinkOptions { tls, ..LinkOptions::default() }).await;
        assert_eq!(link.is_ok(), is_trusted);
        let Ok(mut link) = link else { continue };
        let stream = link.start(ADS_DELTA);
        link.send(stream, vec![7; 100_000]);
        let Event::Message(_, message) = next(&mut link).await else { panic!("no message") };
        assert_eq!(message.into_bytes(), vec![7; 100_000]);
    }
}

#[tokio::test]
async fn a_server_may_be_at_a_unix_socket() {
    let folder = Folder::with_short_path("loadtest");
    let path = folder.socket();
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    let (target, tls) = resolve(&format!("unix:{}", path.display()), &TlsOptions::default()).await.unwrap();
    let mut link = Link::open(target, &LinkOptions { tls, ..LinkOptions::default() }).await.unwrap();
    let stream = link.start(ADS_DELTA);
    link.send(stream, vec![7; 100_000]);
    let Event::Message(_, message) = next(&mut link).await else { panic!("no message") };
    assert_eq!(message.into_bytes(), vec![7; 100_000]);
}

#[tokio::test]
async fn the_end_of_the_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let _ = connection.accept().await; // the first stream, and then the socket closes
    });
    let mut link = Link::open(address, &LinkOptions::default()).await.unwrap();
    link.start(ADS_DELTA);
    while !matches!(next(&mut link).await, Event::Closed(_)) {}
}

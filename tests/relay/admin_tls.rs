//! The admin address with TLS: which operators read, which change, and whose certificates no longer count.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::admin_access::{SILENCE, ask};
use super::certificates::{Authority, Identity};
use super::client_tls::{Connecting, VERSIONS, write_server};
use super::*;
use weir_testkit::folder::Folder;

/// A relay whose admin address has TLS, with its files.
pub(super) struct World {
    pub relay: Relay,
    pub folder: Folder,
    pub own: Authority,
    pub operators: Authority,
    _plane: Plane,
}

impl World {
    pub async fn new() -> Self {
        let (own, operators, folder) =
            (Authority::named("own"), Authority::named("operators"), Folder::with_short_path("tls"));
        let (workloads, plane) = (Authority::named("workloads"), Plane::start(&BOTH).await);
        write_server(&folder, &own.sign("localhost"));
        folder.write("operators.pem", &operators.pem);
        folder.write("operators.crl", &operators.revoke(&[], 2100));
        folder.write("workloads.pem", &workloads.pem);
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]
admin:
  address: '127.0.0.1:0'
  tls:
    certificate: server.pem
    key: server.key
    client_ca: operators.pem
    crl: operators.crl
    may_read: [{{dns: reader.example}}]
    may_change: [{{dns: '{{name}}.oncall.example'}}]
    may_tap: [{{dns: tapper.example}}]
upstream: {{servers: [{{uri: 'http://{}'}}]}}
",
            plane.address
        );
        let config = Config::parse(&folder.0.join("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        Self { relay, folder, own, operators, _plane: plane }
    }

    /// Returns the response to a request of an operator with this certificate.
    pub async fn ask(&self, identity: Option<&Identity>, line: &str, more: &[&str]) -> (u16, String) {
        let alpn = "http/1.1";
        let connecting =
            Connecting { roots: self.own.pem.clone(), identity: identity.cloned(), versions: VERSIONS.to_vec(), alpn };
        let stream = connecting.connect_to(self.relay.admin).await.unwrap();
        let line = format!("{line} HTTP/1.1");
        ask(stream, &[&[&*line, "host: localhost"], more].concat()).await
    }
}

#[tokio::test]
async fn identities_read_and_change_what_they_are_listed_for_and_others_only_probe() {
    let world = World::new().await;
    let [reader, oncall, other] =
        ["reader.example", "ann.oncall.example", "else.example"].map(|name| world.operators.sign(name));
    let change = "POST /log?filter=debug";
    for (who, probe, read, changed) in [(&reader, 200, 200, 403), (&oncall, 200, 200, 404), (&other, 200, 403, 403)] {
        assert_eq!(world.ask(Some(who), "GET /healthz", &[]).await.0, probe);
        assert_eq!(world.ask(Some(who), "GET /clients", &[]).await.0, read);
        assert_eq!(world.ask(Some(who), change, &[]).await.0, changed);
    }
    let (_, why) = world.ask(Some(&reader), change, &[]).await;
    assert_eq!(why, "dns:reader.example may change nothing: admin.tls.may_change lists who may\n");
    let (_, why) = world.ask(Some(&other), "GET /clients", &[]).await;
    assert_eq!(why, "dns:else.example may read nothing: admin.tls.may_read lists who may\n");
    let foreign = world.ask(Some(&oncall), change, &["origin: https://evil.example"]).await;
    assert_eq!((foreign.0, world.ask(Some(&oncall), change, &["origin: https://localhost"]).await.0), (403, 404));
}

#[tokio::test]
async fn i8_silent_connections_keep_no_operator_from_an_answer_and_end_no_connection_of_one() {
    let world = World::new().await;
    let reader = world.operators.sign("reader.example");
    let roots = world.own.pem.clone();
    let identity = Some(reader.clone());
    let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "http/1.1" };
    let mut known = connecting.connect_to(world.relay.admin).await.unwrap();
    known.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok\n") {
        answer.push(known.read_u8().await.unwrap());
    }
    let began = std::time::Instant::now();
    let mut silent = super::admin_access::silent_ones(world.relay.admin).await;
    for _ in 0..3 {
        assert_eq!(world.ask(Some(&reader), "GET /clients", &[]).await.0, 200);
        silent.push(TcpStream::connect(world.relay.admin).await.unwrap());
    }
    assert!(began.elapsed() < SILENCE, "none waited until silent ones had their time");
    assert_eq!(ask(known, &["GET /clients HTTP/1.1", "host: localhost"]).await.0, 200, "it was idle for longest");
}

#[tokio::test]
async fn without_a_certificate_of_the_ca_there_is_no_connection() {
    let world = World::new().await;
    let stranger = Authority::named("stranger").sign("ann.oncall.example");
    for identity in [None, Some(stranger)] {
        let roots = world.own.pem.clone();
        let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "http/1.1" };
        let answer = match connecting.connect_to(world.relay.admin).await {
            Err(error) => error,
            Ok(mut stream) => {
                let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.expect_err(&answer).to_string()
            }
        };
        assert!(answer.contains("alert"), "{answer}");
    }
    let mut plain = TcpStream::connect(world.relay.admin).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn a_connection_that_is_open_ends_what_it_may_when_its_certificate_is_revoked() {
    let world = World::new().await;
    let reader = world.operators.sign_uris(&["https://x.example"], |params| {
        params.subject_alt_names.push(rcgen::SanType::DnsName("reader.example".try_into().unwrap()));
    });
    let roots = world.own.pem.clone();
    let alpn = "http/1.1";
    let connecting = Connecting { roots, identity: Some(reader.clone()), versions: VERSIONS.to_vec(), alpn };
    let mut watching = connecting.connect_to(world.relay.admin).await.unwrap();
    watching.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let stream = connecting.connect_to(world.relay.admin).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut read = async || {
        let request = http::Request::get("/clients").header("host", "localhost");
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        send.ready().await.unwrap();
        let response = send.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(read().await.0, 200);
    let mut pictures = Vec::new();
    let watches = async {
        while !String::from_utf8_lossy(&pictures).contains("data: ") {
            assert!(watching.read_buf(&mut pictures).await.unwrap() > 0, "it does not watch: {pictures:?}");
        }
    };
    tokio::time::timeout(client::PATIENCE, watches).await.expect("there is no picture");
    world.folder.write("operators.crl", &world.operators.revoke(&[reader.serial], 2100));
    let deadline = tokio::time::Instant::now() + client::PATIENCE;
    loop {
        let (status, why) = read().await;
        if status == 401 {
            assert!(why.contains("revoked"), "{why}");
            break;
        }
        assert!(status == 200 && tokio::time::Instant::now() < deadline, "{status}: {why}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ends = tokio::time::timeout(client::PATIENCE, watching.read_to_end(&mut pictures)).await;
    assert!(ends.is_ok(), "it still watches");
}

//! TLS towards clients: which clients are accepted, and which error the others get.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir::config::Config;
use weir_core::protocol::session::Variant;

use crate::certificates::*;
use crate::client::{Client, PATIENCE};
use crate::log_lines::Lines;
use crate::plane::{Plane, Stream};
use crate::poller::{CLUSTERS, Poller};
use crate::{BOTH, CDS, Relay, TWO, get, run, say};
use weir_testkit::folder::Folder;

pub(super) type Version = &'static SupportedProtocolVersion;
pub(super) const VERSIONS: [Version; 2] = [&version::TLS12, &version::TLS13];

/// A relay with TLS towards clients, with its files.
pub(super) struct World {
    pub plane: Plane,
    pub relay: Relay,
    pub folder: Folder,
    /// The authority that signs the relay's own certificate.
    pub own: Authority,
    stream: Option<Stream>,
}

impl World {
    /// Starts a relay. The files that `tls` names have to be in the folder.
    pub async fn with(folder: Folder, tls: &str, rest: &str) -> Self {
        let (own, plane) = (Authority::named("own"), Plane::start(&BOTH).await);
        write_server(&folder, &own.sign("localhost"));
        let config = config(&folder, &plane, tls, rest);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        Self { plane, relay, folder, own, stream: None }
    }

    /// Returns how a client that trusts the relay connects.
    pub fn client(&self, identity: Option<&Identity>) -> Connecting {
        Connecting { roots: self.own.pem.clone(), identity: identity.cloned(), versions: VERSIONS.to_vec(), alpn: "h2" }
    }

    pub async fn connect(&self, connecting: &Connecting) -> Result<TlsStream<TcpStream>, String> {
        connecting.connect(&self.relay, connecting.config()).await
    }

    /// Opens a stream, and waits until it has received what the control plane sends.
    pub async fn served(&mut self, identity: Option<&Identity>) -> Client {
        let connection = self.connect(&self.client(identity)).await.unwrap();
        let mut client = Client::over_as(connection, Variant::Delta).await.expect("no stream");
        self.serve(&mut client).await;
        client
    }

    pub async fn serve(&mut self, client: &mut Client) {
        client.ask(CDS, &[], Some("web"));
        if self.stream.is_none() {
            let stream = self.plane.stream().await;
            say(&stream, "1", &TWO, &TWO, &[]);
            self.stream = Some(stream);
        }
        assert_eq!(client.sent().await.set, ["a", "b"]);
    }

    /// Changes a cluster at the control plane.
    pub fn change(&self, version: &str) {
        say(self.stream.as_ref().unwrap(), version, &[("a", version), ("b", "1")], &[("a", version)], &[]);
    }

    pub async fn metric(&self, name: &str) -> u64 {
        let text = get(self.relay.admin, "/metrics").await;
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub async fn failed(&self, reason: &str) -> u64 {
        let name = "weir_tls_handshakes_failed_total";
        self.metric(&format!("{name}{{listener=\"{}\",reason=\"{reason}\"}}", self.relay.address)).await
    }
}

pub(super) fn config(folder: &Folder, plane: &Plane, tls: &str, rest: &str) -> Config {
    let (path, plane) = (folder.0.join("relay.yaml"), plane.address);
    let tls = format!("{{certificate: server.pem, key: server.key, {tls}}}");
    let text = format!(
        "listen: [{{address: '127.0.0.1:0', tls: {tls}}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{plane}', variant: delta}}]}}\nviews: {{key: [cluster]}}\n{rest}"
    );
    Config::parse(Path::new(&path), &text).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn write_server(folder: &Folder, identity: &Identity) {
    folder.write("server.pem", &identity.certificate);
    folder.write("server.key", &identity.key);
}

/// How a client connects.
pub(super) struct Connecting {
    pub roots: String,
    pub identity: Option<Identity>,
    pub versions: Vec<Version>,
    /// Empty: no ALPN.
    pub alpn: &'static str,
}

impl Connecting {
    pub fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.roots)).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&self.versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key, .. }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = if self.alpn.is_empty() { Vec::new() } else { vec![self.alpn.into()] };
        config
    }

    pub async fn connect(&self, relay: &Relay, config: ClientConfig) -> Result<TlsStream<TcpStream>, String> {
        Self::connect_with(relay.address, config).await
    }

    pub async fn connect_to(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, String> {
        Self::connect_with(address, self.config()).await
    }

    async fn connect_with(address: SocketAddr, config: ClientConfig) -> Result<TlsStream<TcpStream>, String> {
        let socket = TcpStream::connect(address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.map_err(|error| error.to_string())
    }

    /// Returns why the relay rejects the client. In TLS 1.3 a client learns that only when it reads.
    async fn refused(&self, relay: &Relay) -> String {
        match self.connect(relay, self.config()).await {
            Err(error) => error,
            Ok(mut stream) => {
                let _ = stream.write_all(b"GET /v3/x HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n").await;
                let mut answer = Vec::new();
                match tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer") {
                    Err(error) => error.to_string(),
                    Ok(_) => panic!("let in: {}", String::from_utf8_lossy(&answer)),
                }
            }
        }
    }
}

#[tokio::test]
async fn both_versions_of_tls_and_of_http_are_served_with_and_without_alpn() {
    let mut world = World::with(Folder::with_short_path("tls"), "", "").await;
    for version in VERSIONS {
        for alpn in ["h2", ""] {
            let connecting = Connecting { versions: vec![version], alpn, ..world.client(None) };
            let connection = world.connect(&connecting).await.unwrap();
            assert_eq!(connection.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()).filter(|alpn| !alpn.is_empty()));
            assert_eq!(connection.get_ref().1.protocol_version(), Some(version.version));
            let mut client = Client::over_as(connection, Variant::Delta).await.expect("no stream");
            world.serve(&mut client).await;
        }
        for alpn in ["http/1.1", ""] {
            let connecting = Connecting { versions: vec![version], alpn, ..world.client(None) };
            let mut poller = Poller::over(world.connect(&connecting).await.unwrap()).await;
            assert_eq!(poller.polled(CLUSTERS, "web", serde_json::json!({})).await.status, 200);
        }
        let connecting = Connecting { versions: vec![version], alpn: "h3", ..world.client(None) };
        assert!(world.connect(&connecting).await.unwrap_err().contains("NoApplicationProtocol"));
    }
    let mut plain = TcpStream::connect(world.relay.address).await.unwrap();
    plain.write_all(b"GET /v3/discovery:clusters HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(world.failed("not_tls").await, 1);
}

/// A client that is rejected: the listener's TLS settings, the client's certificate, the alert, and the reason in the log and the metric.
struct Stranger {
    tls: &'static str,
    shows: Option<Identity>,
    alert: &'static str,
    said: &'static str,
    reason: &'static str,
}

const BY_CA: &str = "client_ca: clients.pem";
const BY_DOMAINS: &str =
    "trust_domains: [{name: prod.example, bundle: prod.pem}, {name: dev.example, bundle: dev.pem}]";
const BY_BOTH: &str = "client_ca: clients.pem, trust_domains: [{name: prod.example, bundle: prod.pem}]";
const BY_CA_AND_LISTS: &str = "client_ca: clients.pem, crl: clients.crl";
const OPTIONAL: &str = "client_auth: optional, client_ca: clients.pem";

#[tokio::test]
async fn nobody_gets_in_who_should_not_and_each_is_told_why() {
    let [clients, stranger, same_name] = ["clients", "stranger", "clients"].map(Authority::named);
    let [prod, dev] = ["prod", "dev"].map(Authority::named);
    let (revoked, below) = (clients.sign("revoked.example"), clients.below("below"));
    let lists = clients.revoke(&[revoked.serial, below.serial], 2100);
    let pay = "spiffe://prod.example/ns/pay";
    let case = |tls, shows: Identity, alert, said, reason| Stranger { tls, shows: Some(shows), alert, said, reason };
    let no_certificate = "no client certificate";
    let other_ca = "not signed by any CA in";
    let all = [
        Stranger {
            tls: BY_CA,
            shows: None,
            alert: "CertificateRequired",
            said: no_certificate,
            reason: "no_certificate",
        },
        Stranger {
            tls: BY_DOMAINS,
            shows: None,
            alert: "CertificateRequired",
            said: no_certificate,
            reason: "no_certificate",
        },
        case(BY_CA, clients.sign_until("a", 2020), "CertificateExpired", "client certificate expired", "expired"),
        case(BY_CA, clients.sign_uris(&[], NOT_YET), "CertificateExpired", "not valid yet", "not_trusted"),
        case(BY_CA, stranger.sign("a"), "UnknownCA", other_ca, "not_trusted"),
        case(BY_CA, same_name.sign("a"), "UnknownCA", other_ca, "not_trusted"),
        case(BY_CA, stranger.sign("a").with_chain(&clients), "UnknownCA", other_ca, "not_trusted"),
        case(OPTIONAL, stranger.sign("a"), "UnknownCA", other_ca, "not_trusted"),
        case(OPTIONAL, clients.sign_until("a", 2020), "CertificateExpired", "client certificate expired", "expired"),
        case(BY_CA, clients.sign_uris(&[], FOR_SERVERS), "", "client certificate not accepted", "not_trusted"),
        case(BY_CA, clients.sign_uris(&[], MAY_SIGN), "", "client certificate not accepted", "not_trusted"),
        case(BY_CA_AND_LISTS, revoked, "CertificateRevoked", "client certificate revoked", "revoked"),
        case(
            BY_CA_AND_LISTS,
            below.sign("a").with_chain(&below),
            "CertificateRevoked",
            "client certificate revoked",
            "revoked",
        ),
        // Authorities of other domains may sign anything, but count only for ids of their own domain.
        case(
            BY_DOMAINS,
            dev.sign_uris(&[pay], NOTHING),
            "UnknownCA",
            "not signed by any CA of its trust domain",
            "not_trusted",
        ),
        case(BY_DOMAINS, stranger.sign_uris(&[pay], NOTHING), "UnknownCA", "its trust domain", "not_trusted"),
        case(BY_BOTH, clients.sign_uris(&[pay], NOTHING), "UnknownCA", "its trust domain", "not_trusted"),
        case(
            BY_DOMAINS,
            prod.sign_uris(&["spiffe://other.example/a"], NOTHING),
            "UnknownCA",
            "trust domain other.example, which is not in trust_domains",
            "not_trusted",
        ),
        case(
            BY_BOTH,
            clients.sign_uris(&["spiffe://other.example/a"], NOTHING),
            "UnknownCA",
            "other.example",
            "not_trusted",
        ),
        case(BY_DOMAINS, prod.sign("pay.example"), "AccessDenied", "without a SPIFFE id", "not_trusted"),
        case(BY_BOTH, prod.sign("pay.example"), "UnknownCA", other_ca, "not_trusted"),
        case(
            BY_DOMAINS,
            prod.sign_uris(&[pay, "https://a.example"], NOTHING),
            "AccessDenied",
            "several URIs",
            "not_trusted",
        ),
        case(BY_DOMAINS, prod.sign_uris(&[pay, pay], NOTHING), "AccessDenied", "several URIs", "not_trusted"),
        case(
            BY_DOMAINS,
            prod.sign_uris(&["spiffe://prod.example"], NOTHING),
            "AccessDenied",
            "invalid SPIFFE id",
            "not_trusted",
        ),
        case(
            BY_BOTH,
            clients.sign_uris(&["SPIFFE://prod.example/ns/pay"], NOTHING),
            "AccessDenied",
            "invalid SPIFFE id",
            "not_trusted",
        ),
        case(BY_DOMAINS, prod.sign_uris(&[pay], MAY_SIGN), "AccessDenied", "may sign others", "not_trusted"),
        case(
            BY_DOMAINS,
            prod.sign_uris(&[pay], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1)),
            "CertificateExpired",
            "client certificate expired",
            "expired",
        ),
    ];
    for Stranger { tls, shows, alert, said, reason } in all {
        for version in VERSIONS {
            let (lines, _guard) = Lines::of_this_thread();
            let folder = Folder::with_short_path("tls");
            for (file, text) in
                [("clients.pem", &clients.pem), ("prod.pem", &prod.pem), ("dev.pem", &dev.pem), ("clients.crl", &lists)]
            {
                folder.write(file, text);
            }
            let world = World::with(folder, tls, "").await;
            let connecting = Connecting { versions: vec![version], ..world.client(shows.as_ref()) };
            let told = connecting.refused(&world.relay).await;
            assert!(told.contains("alert") && told.contains(alert), "{said} ({alert}): {told}");
            let logged = lines.with("TLS handshake failed");
            assert!(logged.len() == 1 && logged[0].1.contains(said), "{said}: {logged:?}");
            assert_eq!(world.failed(reason).await, 1, "{said}");
        }
    }
}

#[tokio::test]
async fn a_client_is_known_by_the_names_that_its_certificate_proves() {
    let [clients, prod] = ["clients", "prod"].map(Authority::named);
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    folder.write("prod.pem", &prod.pem);
    let optional = format!("client_auth: optional, {BY_BOTH}");
    let mut world = World::with(folder, &optional, "").await;
    let below = prod.below("below");
    let cases = [
        (Some(prod.sign_uris(&["spiffe://prod.example/ns/pay"], WITH_DNS)), " (spiffe://prod.example/ns/pay)"),
        (
            Some(below.sign_uris(&["spiffe://prod.example/ns/below"], NOTHING).with_chain(&below)),
            " (spiffe://prod.example/ns/below)",
        ),
        (Some(clients.sign("Pay.Example")), " (dns:pay.example)"),
        (Some(clients.sign_uris(&["https://pay.example/x"], NOTHING)), " (uri:https://pay.example/x)"),
        (Some(clients.sign("*.example")), ""),
        (None, ""),
    ];
    for (identity, shown) in cases {
        let _client = world.served(identity.as_ref()).await;
        let text = get(world.relay.admin, "/clients").await;
        let page: serde_json::Value = serde_json::from_str(&text).unwrap();
        let peer = page["clients"].as_array().unwrap().last().unwrap()["peer"].as_str().unwrap();
        assert_eq!(peer.find(' ').map_or("", |at| &peer[at..]), shown, "{text}");
        drop(_client);
        crate::until("it is gone", async || get(world.relay.admin, "/clients").await.contains("\"open\": 0")).await;
    }
}

#[tokio::test]
async fn a_certificate_without_a_trust_domain_that_is_known_here_is_no_spiffe_identity() {
    let clients = Authority::named("clients");
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    let mut world = World::with(folder, BY_CA, "").await;
    let _client = world.served(Some(&clients.sign_uris(&["spiffe://prod.example/ns/pay"], WITH_DNS))).await;
    let text = get(world.relay.admin, "/clients").await;
    assert!(text.contains("(dns:pay.example)") && !text.contains("spiffe"), "{text}");
}

/// Connects twice with a client that keeps TLS sessions, and returns the kind of the second handshake.
async fn second_handshake(world: &World, connecting: &Connecting) -> HandshakeKind {
    let mut config = connecting.config();
    config.resumption = Resumption::in_memory_sessions(8);
    let mut kind = None;
    for _ in 0..2 {
        let mut stream = connecting.connect(&world.relay, config.clone()).await.unwrap();
        stream.write_all(b"GET /v3/x HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap(); // tickets arrive before the response
        assert!(answer.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&answer));
        kind = stream.get_ref().1.handshake_kind();
    }
    kind.unwrap()
}

#[tokio::test]
async fn no_session_is_resumed_where_clients_show_certificates() {
    let clients = Authority::named("clients");
    for version in VERSIONS {
        for (tls, kind) in [(BY_CA, HandshakeKind::Full), (OPTIONAL, HandshakeKind::Full), ("", HandshakeKind::Resumed)]
        {
            let folder = Folder::with_short_path("tls");
            folder.write("clients.pem", &clients.pem);
            let world = World::with(folder, tls, "").await;
            let identity = clients.sign("a");
            let connecting = Connecting { versions: vec![version], alpn: "http/1.1", ..world.client(Some(&identity)) };
            assert_eq!(second_handshake(&world, &connecting).await, kind, "{tls} {version:?}");
        }
    }
}

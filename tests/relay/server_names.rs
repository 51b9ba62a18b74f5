//! Several certificates at one address: which of them a client is shown, and the effect of renewals, reloads and a hanging disk on each.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, NamedGroup, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificates::{Authority, Identity, certificate};
use super::client::PATIENCE;
use super::client_tls::{Connecting, VERSIONS, Version};
use super::hung_files::Hung;
use super::reload::{World, text};
use super::*;
use weir_testkit::folder::Folder;

/// Trusts every server, since only the shown certificate matters.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Offers the TLS sessions of one server name to servers of every name.
#[derive(Debug)]
struct AllAlike(ClientSessionMemoryCache);

fn alike() -> ServerName<'static> {
    "alike".try_into().unwrap()
}

impl ClientSessionStore for AllAlike {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(alike(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&alike())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(alike(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&alike())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&alike());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(alike(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&alike())
    }
}

fn trusting(version: Version) -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// Connects with this server name. For an IP address none is sent.
async fn connect(address: SocketAddr, config: &ClientConfig, name: &str) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config.clone())).connect(name, socket).await.unwrap()
}

/// Returns the certificate that a new client is shown for a name.
async fn shown(address: SocketAddr, name: &str) -> CertificateDer<'static> {
    let stream = connect(address, &trusting(VERSIONS[1]), name).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// Three certificates: for one name, for a wildcard, and for a name that the wildcard matches.
struct Three {
    own: Authority,
    folder: Folder,
}

const NAMES: [(&str, &str); 3] = [("one", "one.example"), ("wild", "*.b.example"), ("within", "x.b.example")];

impl Three {
    fn new(name: &str) -> Self {
        let three =
            Self { own: Authority::named("own"), folder: Folder::with_short_path(&format!("server-names-{name}")) };
        NAMES.iter().for_each(|(file, name)| drop(renew(&three.folder, file, &three.own.sign(name))));
        three
    }
}

fn write(folder: &Folder, name: &str, text: &str) {
    std::fs::write(folder.0.join(name), text).unwrap();
}

/// Writes a certificate and its key, and returns the certificate.
fn renew(folder: &Folder, file: &str, identity: &Identity) -> CertificateDer<'static> {
    write(folder, &format!("{file}.pem"), &identity.certificate);
    write(folder, &format!("{file}.key"), &identity.key);
    certificate(&identity.certificate)
}

fn listed(more: &str) -> String {
    let all: Vec<_> = NAMES.iter().map(|(file, _)| format!("{{certificate: {file}.pem, key: {file}.key}}")).collect();
    format!("certificates: [{}{more}]", all.join(", "))
}

fn config_with(plane: &Plane, tls: &str) -> String {
    let listen = format!("listen: [{{address: '127.0.0.1:0', tls: {{{tls}}}}}]");
    text(&[plane.address], "").replacen("listen: [{address: '127.0.0.1:0'}]", &listen, 1)
}

fn in_file(folder: &Folder, file: &str) -> CertificateDer<'static> {
    certificate(&std::fs::read_to_string(folder.0.join(format!("{file}.pem"))).unwrap())
}

/// Returns what `/certs` reports of each certificate: its file, its names, and whether it is outdated.
async fn reported(relay: &Relay) -> Vec<(String, Value, bool)> {
    let certs: Value = serde_json::from_str(&get(relay.admin, "/certs").await).unwrap();
    let rows = certs["listeners"][0]["certificates"].as_array().unwrap().iter().map(|row| {
        let file = Path::new(row["file"].as_str().unwrap()).file_stem().unwrap().to_str().unwrap().to_owned();
        (file, row["server_names"].clone(), row["outdated"].as_bool().unwrap())
    });
    rows.collect()
}

/// Returns the value of a metric for a certificate, or for the listener.
async fn metric(relay: &Relay, name: &str, file: &str) -> u64 {
    let metrics = get(relay.admin, "/metrics").await;
    let line = metrics.lines().find(|line| line.starts_with(&format!("weir_tls_{name}{{")) && line.contains(file));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn each_server_name_has_its_certificate_and_the_first_is_for_all_others() {
    let (plane, three) = (Plane::start(&BOTH).await, Three::new("each"));
    write(&three.folder, "clients.pem", &three.own.pem);
    for (number, auth) in ["", ", client_auth: optional, client_ca: clients.pem"].iter().enumerate() {
        let folder = Folder::with_short_path(&format!("server-names-each-{number}"));
        for name in ["one.pem", "one.key", "wild.pem", "wild.key", "within.pem", "within.key", "clients.pem"] {
            std::fs::copy(three.folder.0.join(name), folder.0.join(name)).unwrap();
        }
        let world = World::start_in(folder, &config_with(&plane, &format!("{}{auth}", listed("")))).await;
        for version in VERSIONS {
            for (name, expected) in [
                ("one.example", "one"),
                ("x.b.example", "within"),
                ("X.B.EXAMPLE", "within"),
                ("y.b.example", "wild"),
                ("y.x.b.example", "one"),
                ("b.example", "one"),
                ("unknown", "one"),
                ("127.0.0.1", "one"), // no server name is sent
            ] {
                let stream = connect(world.relay.address, &trusting(version), name).await;
                let found = &stream.get_ref().1.peer_certificates().unwrap()[0];
                assert_eq!(*found, in_file(&world.folder, expected), "{name} {auth}");
            }
        }
        // Clients that verify the shown certificate.
        let roots = three.own.pem.clone();
        let verifying = Connecting { roots, identity: None, versions: VERSIONS.to_vec(), alpn: "http/1.1" }.config();
        for name in ["one.example", "x.b.example", "z.b.example"] {
            connect(world.relay.address, &verifying, name).await;
        }
        let names = |names: &[&str]| serde_json::json!(names);
        assert_eq!(
            reported(&world.relay).await,
            [
                ("one".to_owned(), names(&["one.example"]), false),
                ("wild".to_owned(), names(&["*.b.example"]), false),
                ("within".to_owned(), names(&["x.b.example"]), false),
            ]
        );
    }
}

#[tokio::test]
async fn operators_are_shown_the_certificate_of_the_name_that_they_ask_for() {
    let (plane, three) = (Plane::start(&BOTH).await, Three::new("admin"));
    write(&three.folder, "operators.pem", &three.own.pem);
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0', tls: {{{}, client_ca: operators.pem, may_read: [{{dns: reader.example}}]}}}}
upstream: {{servers: [{{uri: 'http://{}'}}]}}
",
        listed(""),
        plane.address
    );
    let config = Config::parse(&three.folder.0.join("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let identity = Some(three.own.sign("reader.example"));
    let roots = three.own.pem.clone();
    let reader = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "http/1.1" }.config();
    for (name, expected) in [("one.example", "one"), ("x.b.example", "within"), ("y.b.example", "wild")] {
        let stream = connect(relay.admin, &reader, name).await;
        assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[0], in_file(&three.folder, expected));
    }
}

#[tokio::test]
async fn a_session_of_one_name_is_not_resumed_for_another() {
    let (plane, three) = (Plane::start(&BOTH).await, Three::new("resumed"));
    let Three { folder, .. } = three;
    let world = World::start_in(folder, &config_with(&plane, &listed(""))).await;
    for version in VERSIONS {
        let mut config = trusting(version);
        config.resumption = Resumption::store(Arc::new(AllAlike(ClientSessionMemoryCache::new(8))));
        for (name, kind, expected) in [
            ("one.example", HandshakeKind::Full, "one"),
            ("one.example", HandshakeKind::Resumed, "one"),
            ("x.b.example", HandshakeKind::Full, "within"),
            ("x.b.example", HandshakeKind::Resumed, "within"),
            ("127.0.0.1", HandshakeKind::Full, "one"),
            ("y.b.example", HandshakeKind::Full, "wild"),
        ] {
            let mut stream = connect(world.relay.address, &config, name).await;
            // In TLS 1.3 tickets arrive after the handshake.
            stream.write_all(b"GET /none HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n\r\n").await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            let session = stream.get_ref().1;
            assert_eq!(session.handshake_kind(), Some(kind), "{name} {:?}", version.version);
            assert_eq!(session.peer_certificates().unwrap()[0], in_file(&world.folder, expected), "{name}");
        }
    }
}

#[tokio::test]
async fn a_pair_that_is_broken_or_hangs_keeps_its_last_good_version_and_the_others_are_renewed() {
    let (plane, three) = (Plane::start(&BOTH).await, Three::new("broken"));
    let Three { own, folder } = three;
    let world = World::start_in(folder, &config_with(&plane, &listed(""))).await;
    let (relay, folder) = (&world.relay, &world.folder);
    let is_shown = async |name: &str, expected: &CertificateDer<'_>| shown(relay.address, name).await == *expected;
    let within = in_file(folder, "within");
    // This key does not match its certificate.
    write(folder, "within.key", &own.sign("x.b.example").key);
    let wild = renew(folder, "wild", &own.sign_until("*.b.example", 2090));
    until("the good one is renewed", async || is_shown("y.b.example", &wild).await).await;
    until("the broken one is known", async || reported(relay).await[2].2).await;
    assert!(is_shown("x.b.example", &within).await && is_shown("one.example", &in_file(folder, "one")).await);
    assert_eq!(reported(relay).await.iter().map(|row| row.2).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((metric(relay, "files_outdated", "").await, metric(relay, "reload_failures_total", "").await), (1, 1));
    for (file, year) in [("one.pem", 4_102_444_800), ("wild.pem", 3_786_912_000), ("within.pem", 4_102_444_800)] {
        assert_eq!(metric(relay, "certificate_expires_timestamp_seconds", file).await, year, "{file}");
    }
    // The disk of one certificate hangs: the others continue after at most the time limit of one access.
    std::fs::remove_file(folder.0.join("within.key")).unwrap();
    let hung = Hung::at(folder.0.join("within.key"));
    tokio::time::sleep(Duration::from_secs(2)).await; // so that a check hangs at it meanwhile
    let one = renew(folder, "one", &own.sign("one.example"));
    until("another one is renewed", async || is_shown("one.example", &one).await).await;
    assert!(is_shown("x.b.example", &within).await);
    drop(hung);
    let within = renew(folder, "within", &own.sign("x.b.example"));
    until("it is renewed too", async || is_shown("x.b.example", &within).await).await;
    until("nothing is outdated", async || metric(relay, "files_outdated", "").await == 0).await;
    assert!(reported(relay).await.iter().all(|row| !row.2));
}

/// A reload affects connected clients only by the rules for judging them, whatever certificates the listener shows.
#[tokio::test]
async fn a_reload_changes_the_certificates_and_ends_no_client_and_a_broken_one_does_not_stop_it() {
    let (mut plane, three) = (Plane::start(&BOTH).await, Three::new("reloaded"));
    let Three { own, folder } = three;
    let [clients, others] = ["clients", "others"].map(Authority::named);
    [("clients.pem", &clients), ("others.pem", &others)].iter().for_each(|(file, of)| write(&folder, file, &of.pem));
    let single = "certificate: one.pem, key: one.key, client_auth: optional, client_ca: clients.pem";
    let world = World::start_in(folder, &config_with(&plane, single)).await;
    let (address, folder) = (world.relay.address, &world.folder);
    let identity = Some(clients.sign("a.example"));
    let connecting = Connecting { roots: own.pem.clone(), identity, versions: VERSIONS.to_vec(), alpn: "h2" };
    let named = connect(address, &connecting.config(), "one.example").await;
    let mut client = Client::over_as(named, Variant::Delta).await.unwrap();
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    assert_eq!(shown(address, "x.b.example").await, in_file(folder, "one"));

    // A certificate in use whose file is broken stays in use; the new ones are added.
    let before = in_file(folder, "one");
    write(folder, "one.pem", "none");
    let several = |ca: &str| format!("{}, client_auth: optional, client_ca: {ca}.pem", listed(""));
    let report = world.change(&config_with(&plane, &several("clients"))).await;
    assert_eq!((report.changed, report.pending), (vec!["listen.tls".to_owned()], vec![]));
    assert_eq!(shown(address, "one.example").await, before);
    assert_eq!(shown(address, "x.b.example").await, in_file(folder, "within"));
    assert_eq!(metric(&world.relay, "files_outdated", "").await, 1);
    say(&stream, "2", &[("a", "2"), ("b", "1")], &[("a", "2")], &[]);
    assert_eq!(client.sent().await.set, ["a"]);
    let one = renew(folder, "one", &own.sign("one.example"));
    until("it is good again", async || shown(address, "one.example").await == one).await;

    // New certificates that are broken from the beginning are rejected, all of them at once, and nothing changes.
    let with_broken = listed(", {certificate: missing.pem, key: missing.key}, {certificate: bad.pem, key: one.key}");
    write(folder, "bad.pem", &own.sign("bad.example").certificate);
    world.write(&config_with(&plane, &format!("{with_broken}, client_auth: optional, client_ca: clients.pem")));
    let refused = format!("{:#}", world.reloads.reload().await.unwrap_err());
    for part in ["cannot read", "missing.pem", "; the key in", "does not belong to the certificate in", "bad.pem"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(shown(address, "y.b.example").await, in_file(folder, "wild"));

    // Clients are judged by the listener's settings, as with one certificate.
    world.change(&config_with(&plane, &several("others"))).await;
    let ended = tokio::time::timeout(PATIENCE, client.next_forever()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_relay_does_not_start_with_a_broken_pair_and_names_all_of_them() {
    let (plane, three) = (Plane::start(&BOTH).await, Three::new("start"));
    write(&three.folder, "wild.key", "none");
    std::fs::remove_file(three.folder.0.join("within.pem")).unwrap();
    let text = config_with(&plane, &listed(""));
    let config = Config::parse(&three.folder.0.join("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
    let Err(error) = crate::bind(config).await else { panic!("it starts") };
    let error = format!("{error:#}");
    for part in ["cannot listen on 127.0.0.1:0", "there is no private key in", "wild.key", "cannot read", "within.pem"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

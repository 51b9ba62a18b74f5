//! TLS and tokens towards a control plane: which clients it accepts, the messages to the others, and files that are renewed.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use tokio::task::JoinHandle;
use weir::config::Config;
use weir::relay::{Link, LinkEvent, LinkId, LinkReport, ReportReceiver, SharedConnector, report_channel};
use weir::transcode::Transcoder;
use weir::upstream::{AdsConnector, RestConnector, SourcePlan};
use weir_core::protocol::sources::StreamId;

use crate::asking::Weir;
use crate::certificates::{Authority, Identity, certificate, write_identity};
use crate::client::{Client, PATIENCE};
use crate::plane::{Plane, Stream};
use crate::poller::CLUSTERS;
use crate::rest_plane::RestPlane;
use crate::{BOTH, CDS};
use weir_testkit::folder::Folder;

/// Starts a control plane with this certificate. It accepts clients with a certificate of this authority, or all clients.
async fn plane(identity: &Identity, clients: Option<&Authority>) -> Plane {
    plane_that_speaks(&[&version::TLS13], identity, clients).await
}

async fn plane_that_speaks(
    versions: &[&'static SupportedProtocolVersion],
    identity: &Identity,
    clients: Option<&Authority>,
) -> Plane {
    Plane::start_with_tls(server_config(versions, identity, clients, b"h2")).await
}

pub(super) fn server_config(
    versions: &[&'static SupportedProtocolVersion],
    identity: &Identity,
    clients: Option<&Authority>,
    alpn: &[u8],
) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(&authority.pem)).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(vec![certificate(&identity.certificate)], key).unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// One link that the edge keeps open, with its events.
struct Opened {
    task: JoinHandle<()>,
    reports: ReportReceiver<LinkReport>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Opened {
    /// Opens the link through the configuration, as an operator would.
    fn to(server: &str, folder: &Folder) -> Self {
        let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{{server}}}]}}\n");
        Self::by(&folder.0, &text)
    }

    fn by(folder: &Path, text: &str) -> Self {
        let config = Config::parse(&folder.join("relay.yaml"), text).unwrap_or_else(|error| panic!("{error}"));
        let connector: SharedConnector = match config.upstream.servers[0].clone() {
            SourcePlan::Rest(server) => {
                Arc::new(RestConnector::new(*server, Arc::new(Transcoder::envoy), Arc::default()))
            }
            server => Arc::new(AdsConnector::new(server.ads().unwrap().clone())),
        };
        let (sender, reports) = report_channel(64);
        let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 0 };
        Self {
            task: connector.start(Link {
                id,
                variant: None,
                tenant: None,
                headers: Default::default(),
                reports: sender,
                reader: None,
                follows_another: false,
            }),
            reports,
        }
    }

    /// Waits for a response. Fails if the stream ends first.
    async fn is_answered(&mut self) {
        loop {
            let report = tokio::time::timeout(PATIENCE, self.reports.recv()).await.expect("no response").unwrap();
            match report.event {
                LinkEvent::Response(_) | LinkEvent::Received { .. } => return,
                LinkEvent::Ended { reason, .. } => panic!("the live stream has ended: {reason}"),
                _ => {}
            }
        }
    }

    /// Returns why the next attempt failed.
    async fn nack(&mut self) -> String {
        loop {
            let report = tokio::time::timeout(PATIENCE, self.reports.recv()).await.expect("it is not refused").unwrap();
            match report.event {
                LinkEvent::Ended { reason, answered, .. } => {
                    assert!(!answered, "{reason}");
                    return reason;
                }
                LinkEvent::Response(_) | LinkEvent::Received { .. } => panic!("an answer"),
                LinkEvent::Opened { .. }
                | LinkEvent::Snapshot(_)
                | LinkEvent::Relay
                | LinkEvent::Alive
                | LinkEvent::Receiving
                | LinkEvent::Moving
                | LinkEvent::Unchanged { .. }
                | LinkEvent::Refused(_)
                | LinkEvent::PollFailed { .. }
                | LinkEvent::Progress { .. }
                | LinkEvent::Trying { .. }
                | LinkEvent::Tried { .. }
                | LinkEvent::RefusedOtherwise
                | LinkEvent::Outage { .. } => {}
            }
        }
    }

    /// Waits until attempts fail for this reason. An earlier attempt may still be running when files change, and if a server closes at once, the
    /// relay may notice that before the reason.
    async fn refused_for(&mut self, parts: &[&str]) {
        loop {
            let nack = self.nack().await;
            if parts.iter().all(|part| nack.contains(part)) {
                return;
            }
            println!("not yet: {nack}");
        }
    }
}

async fn stream(plane: &mut Plane) -> Stream {
    tokio::time::timeout(PATIENCE, plane.stream()).await.expect("no stream came")
}

#[track_caller]
fn says(nack: &str, parts: &[&str]) {
    for part in parts {
        assert!(nack.contains(part), "{part:?} is missing in {nack:?}");
    }
}

const CA: &str = "tls: {ca: ca.pem}";
const BOTH_SIDES: &str = "tls: {ca: ca.pem, certificate: weir.pem, key: weir.key}";

#[tokio::test]
async fn a_server_with_a_good_certificate_is_spoken_to_by_name_by_address_and_under_another_name() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    for (name, host, tls) in [
        ("localhost", "localhost", CA),
        ("127.0.0.1", "127.0.0.1", CA),
        ("cp.example", "127.0.0.1", "tls: {ca: ca.pem, server_name: cp.example}"),
    ] {
        for version in [&version::TLS12, &version::TLS13] {
            let mut plane = plane_that_speaks(&[version], &authority.sign(name), None).await;
            let uri = format!("uri: 'https://{host}:{}', {tls}", plane.address.port());
            let _opened = Opened::to(&uri, &folder);
            assert!(!stream(&mut plane).await.headers.contains_key("authorization"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_rejected_with_the_reason_and_the_place() {
    let (authority, stranger, folder) = (Authority::new(), Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    let ca = folder.0.join("ca.pem").display().to_string();
    let cases: [(Identity, &str, &[&str]); 4] = [
        (stranger.sign("localhost"), CA, &["certificate not signed by any CA in ", &ca]),
        (authority.sign("other.example"), CA, &["its certificate is for", "other.example", "and not for localhost"]),
        (authority.sign_until("localhost", 2020), CA, &["its certificate has expired"]),
        (authority.sign("localhost"), "tls: {}", &["certificate not signed by any CA that the system trusts"]),
    ];
    for (identity, tls, parts) in cases {
        let plane = plane(&identity, None).await;
        let address = format!("127.0.0.1:{}: ", plane.address.port());
        let mut opened = Opened::to(&format!("uri: 'https://localhost:{}', {tls}", plane.address.port()), &folder);
        let nack = opened.nack().await;
        says(&nack, parts);
        says(&nack, &["Unavailable: ", &address]);
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_shown_it_and_says_what_it_misses() {
    let (authority, stranger, folder) = (Authority::new(), Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    for version in [&version::TLS12, &version::TLS13] {
        let mut plane = plane_that_speaks(&[version], &authority.sign("localhost"), Some(&authority)).await;
        let to = |tls: &str| Opened::to(&format!("uri: 'https://localhost:{}', {tls}", plane.address.port()), &folder);
        to(CA).refused_for(&["it wants a certificate from the relay, and tls.certificate is not given"]).await;
        write_identity(&folder, &stranger.sign("weir"));
        to(BOTH_SIDES).refused_for(&["it refuses", "weir.pem"]).await;
        write_identity(&folder, &authority.sign("weir"));
        let _opened = to(BOTH_SIDES);
        stream(&mut plane).await;
    }
}

#[tokio::test]
async fn boot_8_files_that_were_renewed_count_for_the_next_connection_and_live_streams_stay() {
    let (authority, old, folder) = (Authority::new(), Authority::new(), Folder::with_short_path("tls"));
    let mut plane = plane(&authority.sign("localhost"), Some(&authority)).await;
    folder.write("ca.pem", &old.pem);
    write_identity(&folder, &old.sign("weir"));
    let mut opened = Opened::to(&format!("uri: 'https://localhost:{}', {BOTH_SIDES}", plane.address.port()), &folder);
    opened.refused_for(&["certificate not signed by any CA in"]).await;
    folder.write("ca.pem", &authority.pem);
    opened.refused_for(&["it refuses", "weir.pem"]).await; // the relay uses the new authority
    write_identity(&folder, &authority.sign("weir"));
    let live = stream(&mut plane).await;
    folder.write("ca.pem", "gone");
    let server = format!("uri: 'https://localhost:{}', {BOTH_SIDES}", plane.address.port());
    Opened::to(&server, &folder).refused_for(&["there is no certificate in", "ca.pem"]).await;
    crate::say_any(&live, crate::CDS, &["a"]);
    opened.is_answered().await;
}

#[tokio::test]
async fn files_that_make_no_sense_are_named() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    let plane = plane(&authority.sign("localhost"), None).await;
    let mut opened = Opened::to(&format!("uri: 'https://localhost:{}', {BOTH_SIDES}", plane.address.port()), &folder);
    opened.refused_for(&["cannot read", "ca.pem", "No such file"]).await;
    folder.write("ca.pem", "nothing of the kind");
    opened.refused_for(&["there is no certificate in", "ca.pem"]).await;
    folder.write("ca.pem", &authority.pem);
    write_identity(&folder, &authority.sign("weir"));
    folder.write("weir.key", &authority.sign("weir").key);
    opened.refused_for(&["the key in", "weir.key", "does not belong to the certificate in", "weir.pem"]).await;
    folder.write("weir.key", "");
    opened.refused_for(&["there is no private key in", "weir.key"]).await;
}

/// Returns a token without a valid signature, which clients do not check.
fn token(valid_for: u64) -> String {
    use base64::Engine;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let claims = format!("{{\"exp\": {}, \"for\": {valid_for}}}", now + valid_for);
    format!("{}.{}.{}", encode("{\"alg\": \"none\"}"), encode(&claims), encode("signature"))
}

#[tokio::test]
async fn boot_6_and_boot_7_the_token_comes_with_each_stream_and_is_read_again() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    let mut plane = plane(&authority.sign("localhost"), None).await;
    let server = format!("uri: 'https://localhost:{}', {CA}, token_file: token", plane.address.port());
    let mut opened = Opened::to(&server, &folder);
    says(&opened.nack().await, &["Unavailable: cannot read the token in ", "token: No such file"]);
    folder.write("token", &token(20));
    opened.refused_for(&["has expired, or does so within 30 s"]).await;
    for valid_for in [3_000, 4_000] {
        let token = token(valid_for);
        folder.write("token", &format!("{token}\n"));
        let opened = stream(&mut plane).await;
        assert_eq!(opened.headers["authorization"], format!("Bearer {token}"));
        folder.write("token", ""); // an open stream does not need it; dropping it ends the stream
    }
}

#[tokio::test]
async fn boot_6_a_bootstrap_with_an_unknown_kind_beside_the_token_sends_it() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    let token = token(3_000);
    folder.write("token", &token);
    let mut plane = plane(&authority.sign("localhost"), None).await;
    let [ca, token_file] = ["ca.pem", "token"].map(|name| folder.0.join(name).display().to_string());
    let bootstrap = serde_json::json!({"xds_servers": [{
        "server_uri": format!("dns:///localhost:{}", plane.address.port()),
        "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {"ca_certificate_file": ca}}],
        "call_creds": [{"type": "own"}, {"type": "jwt_token_file", "config": {"jwt_token_file": token_file}}],
    }]});
    folder.write("bootstrap.json", &bootstrap.to_string());
    let text = "listen: [{address: '127.0.0.1:0'}]\nupstream: {bootstrap: bootstrap.json}\n";
    let _opened = Opened::by(&folder.0, text);
    assert_eq!(stream(&mut plane).await.headers["authorization"], format!("Bearer {token}"));
}

#[tokio::test]
async fn boot_7_a_token_is_never_sent_over_plain_text() {
    let folder = Folder::with_short_path("tls");
    folder.write("token", &token(3_000));
    let mut plane = Plane::start(&BOTH).await;
    let bootstrap = serde_json::json!({"xds_servers": [{
        "server_uri": plane.address.to_string(),
        "channel_creds": [{"type": "insecure"}],
        "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": folder.0.join("token")}}],
    }]});
    folder.write("bootstrap.json", &bootstrap.to_string());
    let text = "listen: [{address: '127.0.0.1:0'}]\nupstream: {bootstrap: bootstrap.json}\n";
    let _opened = Opened::by(&folder.0, text);
    assert!(!stream(&mut plane).await.headers.contains_key("authorization"));
}

#[tokio::test]
async fn boot_6_and_boot_8_a_server_that_is_polled_is_shown_the_same_and_trusted_no_more() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    write_identity(&folder, &authority.sign("weir.example"));
    folder.write("token", &token(3_000));
    let [known, stranger] = [authority.sign("localhost"), Authority::new().sign("localhost")];
    let config = |identity: &Identity| server_config(&[&version::TLS13], identity, Some(&authority), b"http/1.1");
    let start = |identity: &Identity| {
        RestPlane::start_at("127.0.0.1:0".parse().unwrap(), Some(Arc::new(config(identity)).into()))
    };
    let server = |plane: &RestPlane| {
        let tls = "tls: {ca: ca.pem, certificate: weir.pem, key: weir.key}, token_file: token";
        format!("rest: 'https://localhost:{}', {tls}", plane.address.port())
    };
    let wrong = start(&stranger).await;
    let mut rejected = Opened::to(&server(&wrong), &folder);
    says(&rejected.nack().await, &["certificate not signed by any CA in ", "ca.pem"]);

    let plane = start(&known).await;
    plane.script.has(CLUSTERS, "1", vec![serde_json::json!({"@type": CDS, "name": "a"})]);
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{{}}}]}}\nviews: {{key: [cluster]}}\n",
        server(&plane)
    );
    let app = crate::bind(Config::parse(&folder.0.join("relay.yaml"), &text).unwrap()).await.unwrap();
    let address = app.addresses()[0];
    let task = tokio::spawn(app.run());
    let mut client = Client::connect(address, weir_core::protocol::session::Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let sent = plane.script.polls()[0].authorization.clone().unwrap();
    assert!(sent.starts_with("Bearer "), "{sent}");
    task.abort();
}

#[tokio::test]
async fn weir_get_shows_certificate_and_token_and_says_what_is_wrong() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    let [ca, certificate, key, token_file] =
        ["ca.pem", "weir.pem", "weir.key", "token"].map(|name| folder.0.join(name).display().to_string());
    folder.write("ca.pem", &authority.pem);
    folder.write("token", &token(3_000));
    write_identity(&folder, &authority.sign("weir"));
    let mut plane = plane(&authority.sign("localhost"), Some(&authority)).await;
    let server = format!("https://localhost:{}", plane.address.port());
    let without = Weir::start_at(&server, &format!("get eds none --ca {ca}")).end().await;
    assert_eq!((without.0, without.1.as_str()), (2, "")); // the reason may be lost with the connection
    let line = format!("get eds none --ca {ca} --cert {certificate} --key {key} --token-file {token_file}");
    let other = Weir::start_at(&server, &format!("{line} --timeout 60s --server-name other")).end().await;
    assert!(other.0 == 2 && other.2.contains("and not for other"), "{}", other.2);
    let get = Weir::start_at(&server, &format!("{line} --timeout 10s"));
    assert!(stream(&mut plane).await.headers["authorization"].to_str().unwrap().starts_with("Bearer "));
    assert_eq!(get.end().await.0, 2); // the test's server sends no response
}

/// Connections to the wrong address: TLS to a plain address, admin requests to a client address, and the reverse of each.
#[tokio::test]
async fn who_asks_at_the_wrong_address_is_told_which_one_is_expected() {
    let (authority, folder) = (Authority::new(), Folder::with_short_path("tls"));
    folder.write("ca.pem", &authority.pem);
    let ca = folder.0.join("ca.pem").display().to_string();
    let secured = plane(&authority.sign("localhost"), None).await;
    let upper = Plane::start(&BOTH).await;
    let relay = crate::relay(upper.address, "").await;
    let (clients, operators, tls) = (relay.address, relay.admin, secured.address.port());
    let no_tls = "it does not speak TLS here: expected http://";
    let for_clients = "is an address for clients: expected that of operators, which is admin.address or admin.socket";
    let for_operators =
        "this address is for operators, and serves client status of v3 alone; expected an address for clients";
    for (line, part) in [
        (format!("get clusters --server https://localhost:{} --ca {ca}", clients.port()), no_tls),
        (format!("status --admin https://localhost:{} --ca {ca}", operators.port()), no_tls),
        (format!("status --admin https://localhost:{} --ca {ca}", clients.port()), no_tls),
        (format!("get clusters --server http://localhost:{tls}"), "TLS"),
        (format!("status --admin http://localhost:{tls}"), "does it expect TLS (https://)?"),
        (format!("get clusters --server {operators}"), for_operators),
        (format!("status --admin {clients}"), for_clients),
    ] {
        let line: Vec<_> = line.split(' ').collect();
        let (code, out, said) = crate::status::weir(&line).await;
        let last = said.lines().last().unwrap_or_default();
        assert!(code == 2 && out.is_empty() && last.starts_with("error: ") && last.contains(part), "{line:?}: {said}");
    }
}

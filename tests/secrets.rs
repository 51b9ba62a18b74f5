//! Secrets of every kind, planted in the program as it is built, and everything that it shows: none of them is there.
//!
//! Each surface has to be read and to have what it is for: one that is empty proves nothing. A page that is added is found by the index.

#[path = "relay/certificates.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod certificates;
#[path = "relay/client.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod client;
#[path = "relay/collector.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod collector;
#[path = "support/gzip.rs"]
mod gzip;
#[path = "relay/last_errors.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod last_errors;
#[path = "relay/load_plane.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod load_plane;
#[path = "relay/plane.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod plane;
#[path = "support/program.rs"]
mod program;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use certificates::{Authority, Folder, Identity, certificate};
use client::{Client, PATIENCE, channel_over, exchange, node};
use collector::Collector;
use plane::{Plane, Stream};
use program::{Program, field};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Request as Call;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use weir::proto::status::{ClientStatusRequest, ClientStatusResponse};
use weir::transcode::{Strictness, Transcoder};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

const PASSWORD: &str = "uri-Pass/word@77";
const ENVIRONMENT: &str = "environment-Value-91";
const OF_CLUSTER: &str = "cluster-Key-66";
const OF_STRUCT: &str = "struct-Hush-55";
const GENERIC: &str = "open sesame forty-seven";
const TICKET: &str = "ticket-Key-22 of thirty-two bytes";
const OF_CLIENT: &str = "client-Auth-33";
const OF_COLLECTOR: &str = "collector-Auth-88";
const OF_STATE: [u8; 32] = *b"state-Key-44-state-Key-44-state-";

/// What must not be seen, by what it is.
struct Secrets(Vec<(&'static str, Vec<u8>)>);

impl Secrets {
    /// Also as they are often encoded.
    fn of(all: &[(&'static str, &[u8])]) -> Self {
        let forms = |&(what, secret): &(&'static str, &[u8])| {
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            // The last letters of base64 depend on what follows.
            let base64 = STANDARD.encode(&secret[..secret.len() / 3 * 3]);
            [secret.to_vec(), hex.into_bytes(), base64.into_bytes()].map(|form| (what, form))
        };
        Self(all.iter().flat_map(forms).collect())
    }

    /// Checks that a surface has what is expected there, and no secret.
    fn are_not_in(&self, surface: &str, shown: &[u8], expected: &str) {
        assert!(has(shown, expected.as_bytes()), "{surface} lacks {expected:?}: {}", beginning(shown));
        if let Some(what) = self.found_in(shown) {
            panic!("{surface} shows a secret ({what}): {}", beginning(shown));
        }
    }

    fn found_in(&self, shown: &[u8]) -> Option<&'static str> {
        self.0.iter().find(|(_, secret)| has(shown, secret)).map(|(what, _)| *what)
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() && !text.is_empty() || !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

fn beginning(shown: &[u8]) -> String {
    String::from_utf8_lossy(&shown[..shown.len().min(20_000)]).into_owned()
}

/// Returns a line of a key that no other has.
fn line_of(key: &str) -> &str {
    key.lines().nth(1).unwrap()
}

fn token() -> String {
    let until = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let claims = format!(r#"{{"exp": {}, "sub": "the relay of this test"}}"#, until.as_secs());
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part(r#"{"alg": "none"}"#), part(&claims), part("signature of the token"))
}

fn made(kind: &str, json: Value) -> Any {
    let (_, name) = kind.split_once('/').unwrap();
    let value = Transcoder::envoy().from_json(name, &json, Strictness::Strict).unwrap();
    Any { type_url: kind.into(), value }
}

/// Returns what the control plane has of each type: secrets, and other resources with secrets in them.
fn resources(inline_key: &str) -> BTreeMap<&'static str, Vec<(&'static str, Any)>> {
    let cluster = json!({ "name": "shop", "type": "EDS", "transportSocket": { "name": "tls", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "commonTlsContext": { "tlsCertificates": [{
            "certificateChain": { "inlineString": "for-all" },
            "privateKey": { "inlineBytes": STANDARD.encode(OF_CLUSTER) } }] } } } });
    let filter = json!({ "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
        "typeUrl": "type.googleapis.com/acme.Login", "value": { "client_secret": OF_STRUCT } });
    let listener =
        json!({ "name": "door", "filterChains": [{ "filters": [{ "name": "login", "typedConfig": filter }] }] });
    let secrets = [
        (
            "cert-of-web",
            json!({ "name": "cert-of-web", "tlsCertificate": {
            "certificateChain": { "inlineString": "for-all" }, "privateKey": { "inlineString": inline_key } } }),
        ),
        ("words", json!({ "name": "words", "genericSecret": { "secret": { "inlineString": GENERIC } } })),
        (
            "tickets",
            json!({ "name": "tickets", "sessionTicketKeys": { "keys": [{ "inlineBytes": STANDARD.encode(TICKET) }] } }),
        ),
    ];
    BTreeMap::from([
        (CDS, vec![("shop", made(CDS, cluster))]),
        (LDS, vec![("door", made(LDS, listener))]),
        (SDS, secrets.map(|(name, json)| (name, made(SDS, json))).to_vec()),
    ])
}

/// Answers each name or type that is requested for the first time.
async fn serve(mut stream: Stream, all: BTreeMap<&'static str, Vec<(&'static str, Any)>>) {
    let (mut sent, mut number) = (HashSet::new(), 0);
    while let Some(request) = stream.requests.recv().await {
        let Request::Delta(request) = request else { panic!("delta is configured") };
        let Some((kind, set)) = all.get_key_value(&*request.type_url) else { continue };
        let is_named = |name: &str| *kind != SDS || request.resource_names_subscribe.iter().any(|named| named == name);
        let due: Vec<_> = set.iter().filter(|(name, _)| is_named(name) && sent.insert((*kind, *name))).collect();
        if due.is_empty() {
            continue;
        }
        number += 1;
        let wrap = |(name, any): &(&str, Any)| Resource {
            name: (*name).into(),
            version: "1".into(),
            resource: Some(any.clone()),
            ..Default::default()
        };
        stream.respond(&Response::Delta(DeltaDiscoveryResponse {
            type_url: request.type_url,
            nonce: number.to_string(),
            resources: due.into_iter().map(wrap).collect(),
            ..Default::default()
        }));
    }
}

/// A control plane that demands a certificate.
fn tls_of(identity: &Identity, clients: &Authority) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&clients.pem)).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_single_cert(vec![certificate(&identity.certificate)], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Opens a stream with a header that says who the client is.
async fn client_with_header(address: SocketAddr) -> Client {
    let channel = channel_over(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let (requests, stream) = mpsc::unbounded_channel::<DeltaDiscoveryRequest>();
    let mut call = Call::new(UnboundedReceiverStream::new(stream));
    call.metadata_mut().insert("authorization", format!("Bearer {OF_CLIENT}").parse().unwrap());
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources".parse().unwrap();
    let codec: ProstCodec<DeltaDiscoveryRequest, DeltaDiscoveryResponse> = ProstCodec::default();
    Client::Delta(requests, grpc.streaming(call, path, codec).await.unwrap().into_inner())
}

/// A running relay in which the secrets are planted.
struct World {
    secrets: Secrets,
    folder: Folder,
    relay: Program,
    operators: Authority,
    admin: SocketAddr,
    probes: SocketAddr,
    plain: SocketAddr,
    collector: Collector,
    token: String,
    server_key: String,
    inline_key: String,
}

impl World {
    async fn start(state_key: bool) -> Self {
        let (folder, own, operators) = (Folder::new(), Authority::named("own"), Authority::named("operators"));
        let [server, towards_servers, admin] = ["localhost", "relay.example", "localhost"].map(|name| own.sign(name));
        let inline_key = own.sign("inline").key;
        for (name, identity) in [("server", &server), ("own", &towards_servers), ("admin", &admin)] {
            folder.write(&format!("{name}.pem"), &identity.certificate);
            folder.write(&format!("{name}.key"), &identity.key);
        }
        folder.write("ca.pem", &own.pem);
        folder.write("operators.pem", &operators.pem);
        let token = token();
        folder.write("token", &token);
        std::fs::write(folder.0.join("state.key"), OF_STATE).unwrap();
        let mut plane = Plane::start_with_tls(tls_of(&own.sign("localhost"), &own)).await;
        let (collector, address) = (Collector::start().await, plane.address);
        let all = resources(&inline_key);
        tokio::spawn(async move {
            while let Some(stream) = plane.streams.recv().await {
                tokio::spawn(serve(stream, all.clone()));
            }
        });
        let config = config(address, if state_key { "{path: state, key: state.key}" } else { "{path: state}" });
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["--log", "trace"]).env("WEIR_TEST_SECRET", ENVIRONMENT);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address));
        command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Basic%20{OF_COLLECTOR}"));
        command.env("OTEL_BSP_SCHEDULE_DELAY", "1");
        let path = folder.0.join("relay.yaml");
        let relay =
            tokio::task::block_in_place(|| Program::start_by(command, path.to_str().unwrap(), &config, PATIENCE));
        let started = relay.logged("weir started").pop().unwrap();
        let of = |name: &str| field(&started, name).unwrap().parse().unwrap();
        let listens = started.split("listen=\"").nth(1).unwrap().split('"').next().unwrap();
        let plain = listens.split(' ').nth(1).unwrap().parse().unwrap();
        let secrets = Secrets::of(&[
            ("token", token.as_bytes()),
            ("signature of the token", token.rsplit('.').next().unwrap().as_bytes()),
            ("key towards clients", line_of(&server.key).as_bytes()),
            ("key towards servers", line_of(&towards_servers.key).as_bytes()),
            ("key towards operators", line_of(&admin.key).as_bytes()),
            ("key of a secret", line_of(&inline_key).as_bytes()),
            ("key in a cluster", OF_CLUSTER.as_bytes()),
            ("secret in a typed struct", OF_STRUCT.as_bytes()),
            ("generic secret", GENERIC.as_bytes()),
            ("session ticket key", TICKET.as_bytes()),
            ("password in a URI", PASSWORD.as_bytes()),
            ("rest of a password in a URI", b"word@77".as_slice()),
            ("value of the environment", ENVIRONMENT.as_bytes()),
            ("header of a client", OF_CLIENT.as_bytes()),
            ("header for the collector", OF_COLLECTOR.as_bytes()),
            ("key of the state", OF_STATE.as_slice()),
        ]);
        let (admin, probes, server_key) = (of("admin"), of("probes"), server.key);
        Self { secrets, folder, relay, operators, admin, probes, plain, collector, token, server_key, inline_key }
    }

    /// Asks as an operator, over the socket.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let socket = UnixStream::connect(self.folder.0.join("admin.sock")).await.unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OF_CLIENT}\r\n");
        let rest =
            format!("content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        exchange(socket, &(head + &rest)).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        let begin = body.find(['{', '[']).unwrap();
        let end = body.rfind(['}', ']']).unwrap();
        serde_json::from_str(&unchunked(&body[begin..=end])).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Runs a command of the program.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).env("WEIR_TEST_SECRET", ENVIRONMENT).stdin(Stdio::null());
        tokio::task::block_in_place(|| command.output().unwrap())
    }

    /// The same, and checks what it prints.
    fn shows(&self, arguments: &[&str], expected: &str) {
        let Output { stdout, stderr, .. } = self.run(arguments);
        self.secrets.are_not_in(&format!("weir {}", arguments.join(" ")), &[stdout, stderr].concat(), expected);
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).to_str().unwrap().to_owned()
    }
}

/// Bodies in chunks have the lengths of these on lines of their own.
fn unchunked(body: &str) -> String {
    let is_length = |line: &str| !line.is_empty() && line.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit());
    match serde_json::from_str::<Value>(body) {
        Ok(_) => body.to_owned(),
        Err(_) => body.split("\r\n").filter(|line| !is_length(line)).collect(),
    }
}

fn config(plane: SocketAddr, state: &str) -> String {
    format!(
        "listen:
- {{address: '127.0.0.1:0', tls: {{certificate: server.pem, key: server.key}}}}
- {{address: '127.0.0.1:0'}}
admin:
  address: '127.0.0.1:0'
  socket: admin.sock
  tls: {{certificate: admin.pem, key: admin.key, client_ca: operators.pem, may_read: [{{dns: reader.example}}]}}
probes: {{address: '127.0.0.1:0'}}
views: {{key: [cluster]}}
drain: {{grace: 0s, spread: 0s}}
clients: {{control_plane_identifier: 'a ${{WEIR_TEST_SECRET}}'}}
state: {state}
upstream:
  servers:
  - uri: 'https://localhost:{}'
    variant: delta
    token_file: token
    tls: {{ca: ca.pem, certificate: own.pem, key: own.key}}
",
        plane.port()
    )
}

/// Clients that have everything, and of which one quotes what it rejects.
async fn clients(world: &World) -> (Client, Client) {
    let mut client = client_with_header(world.plain).await;
    let Client::Delta(requests, _) = &client else { panic!() };
    requests.send(DeltaDiscoveryRequest { node: node("web"), type_url: CDS.into(), ..Default::default() }).unwrap();
    let sent = client.sent().await;
    assert_eq!(sent.set, ["shop"]);
    client.refuse_for(
        CDS,
        &[],
        &sent,
        &format!("shop: {{\"privateKey\": {{\"inlineBytes\": \"{}\"}}}}", STANDARD.encode(OF_CLUSTER)),
    );
    client.ask(LDS, &[], None);
    let sent = client.sent().await;
    assert_eq!(sent.set, ["door"]);
    client.refuse_for(
        LDS,
        &[],
        &sent,
        &format!("door: fields {{ key: \"client_secret\" }} client_secret: \"{OF_STRUCT}\""),
    );
    client.ask(SDS, &["cert-of-web", "words", "tickets"], None);
    let mut names = Vec::new();
    let mut last = None;
    while names.len() < 3 {
        let sent = client.sent().await;
        names.extend(sent.set.clone());
        last = Some(sent);
    }
    let quoted = format!(
        "secret cert-of-web: cannot use {} nor generic_secret {{ secret {{ inline_string: \"{GENERIC}\" }} }} nor {}",
        world.inline_key,
        STANDARD.encode(TICKET)
    );
    client.refuse_for(SDS, &[], &last.unwrap(), &quoted);
    let mut other = Client::connect(world.plain, Variant::Sotw).await;
    other.ask(CDS, &[], Some("web"));
    let sent = other.sent().await;
    other.ack(CDS, &[], &sent);
    (client, other)
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A configuration in which everything is wrong that could quote a secret.
fn faulty(world: &World) -> String {
    let key = world.server_key.replace('\n', "\\n");
    format!(
        "listen:
- {{address: 'unix:${{WEIR_TEST_SECRET}}', mode: '${{WEIR_TEST_SECRET}}'}}
- {{address: '127.0.0.1:0', tls: {{certificate: server.pem, key: \"{key}\"}}}}
upstream:
  servers:
  - {{uri: 'https://user:{PASSWORD}@localhost:1', connect_timeout: '${{WEIR_TEST_SECRET}}'}}
  - {{uri: 'user:{PASSWORD}@localhost:1'}}
  - {{uri: 'https://localhost:1/?token={}'}}
  - {{rest: 'https://user:{PASSWORD}@localhost:1'}}
  - {{uri: 'https://localhost:1', token_file: '{}'}}
  - {{uri: 'https://localhost:1', tls: {{ca: '${{WEIR_TEST_SECRET}}/ca.pem'}}}}
",
        world.token, world.token
    )
}

const FAULTS: [&str; 4] = ["connect_timeout", "no user and no password", "nothing after the host", "has this in it"];

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_shown_on_any_surface() {
    let mut world = World::start(true).await;
    let _clients = clients(&world).await;
    until("the NACKs are known", async || {
        world.ask("GET", "/nacks?nacked", "").await.1.matches("\"reason\"").count() >= 3
    })
    .await;
    pages(&world).await;
    metrics_and_live(&world).await;
    client_status(&world).await;
    polls(&world).await;
    refused_configurations(&world).await;
    commands(&world).await;
    traces(&world).await;

    until("the NACKs are logged", async || !world.relay.logged("[redacted]").is_empty()).await;
    // What was logged until now, at the finest level.
    let log = world.relay.logged("").join("\n");
    assert!(log.contains("TRACE"), "it logs at the finest level");
    for expected in ["weir started", "NACK", "invalid configuration", "[redacted]"] {
        world.secrets.are_not_in("log", log.as_bytes(), expected);
    }
    let state = world.folder.0.join("state");
    until("the state is saved", async || has(&std::fs::read(&state).unwrap(), b"cert-of-web")).await;
    world.relay.signal("-TERM");
    tokio::task::block_in_place(|| assert!(world.relay.has_succeeded(PATIENCE)));
    world.secrets.are_not_in("log", world.relay.logged("").join("\n").as_bytes(), "SIGTERM");
    world.secrets.are_not_in("state file", &std::fs::read(&state).unwrap(), "cert-of-web");
    let (state, key) = (world.path("state"), world.path("state.key"));
    world.shows(&["snapshot", "show", "--state", &state, "--key", &key], "cert-of-web");
    assert!(!world.run(&["snapshot", "show", "--state", &state]).status.success());
    world.shows(&["snapshot", "show", "--state", &state], "key");
}

/// docs/warm-start.md: without a key no secrets are written. What is in other types is, so that is not looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_without_a_key_has_no_secrets() {
    let mut world = World::start(false).await;
    let _clients = clients(&world).await;
    let state = world.folder.0.join("state");
    let is_saved = async || {
        let state = std::fs::read(&state).unwrap();
        has(&state, b"shop") && has(&state, OF_STRUCT.as_bytes())
    };
    until("it is saved", is_saved).await;
    world.relay.signal("-TERM");
    tokio::task::block_in_place(|| assert!(world.relay.has_succeeded(PATIENCE)));
    world.secrets.0.retain(|(what, _)| !["key in a cluster", "secret in a typed struct"].contains(what));
    let state = std::fs::read(&state).unwrap();
    world.secrets.are_not_in("state file", &state, "shop");
    assert!(has(&state, OF_STRUCT.as_bytes()), "it has the other resources as they are");
}

/// Each path of the index, as it is asked.
async fn pages(world: &World) {
    let index = world.ask("GET", "/", "").await.1;
    world.secrets.are_not_in("/", index.as_bytes(), "/config_dump");
    let clients = world.get("/clients").await;
    let sessions = clients["clients"].as_array().unwrap();
    let of = |state: &str| sessions.iter().find(|client| client.to_string().contains(state)).unwrap();
    let nacking = of("NACKED");
    let (session, view) = (nacking["session"].to_string(), nacking["view"].as_str().unwrap());
    let mut read = 0;
    for row in index.lines() {
        let title = row.split("  ").next().unwrap();
        let asked: Vec<(String, &str)> = match title {
            "/live" => continue, // see below
            "/healthz" => vec![("/healthz".into(), "ok")],
            "/ready" => vec![("/ready".into(), "ready"), ("/ready?strict".into(), "ready")],
            "/metrics" => vec![("/metrics".into(), "weir_build_info")],
            "/clients" => vec![("/clients".into(), "[redacted]")],
            "/clients/{session}" => vec![(format!("/clients/{session}"), "[redacted]")],
            "/laggards" => vec![("/laggards".into(), "{")],
            "/diff" => vec![(format!("/diff?client={session}"), "session")],
            "/explain" => {
                [("secrets", "cert-of-web"), ("secrets", "words"), ("clusters", "shop"), ("listeners", "door")]
                    .map(|(kind, name)| (format!("/explain?client={session}&type={kind}&name={name}"), name))
                    .to_vec()
            }
            "/upstreams" => vec![("/upstreams".into(), "https://localhost")],
            "/resources" => vec![("/resources".into(), "cert-of-web"), ("/resources?type=secrets".into(), "words")],
            "/nacks" => vec![("/nacks".into(), "[redacted]"), ("/nacks?nacked".into(), "[redacted]")],
            "/dangling" => vec![("/dangling".into(), "[")],
            "/waits" => vec![("/waits".into(), "{")],
            "/brakes" => vec![("/brakes".into(), "[")],
            "/files" => vec![("/files".into(), "[")],
            "/rest" => vec![("/rest".into(), "{")],
            "/config_dump" => {
                let all = [format!("client={session}"), format!("view={view}")];
                all.map(|query| (format!("/config_dump?{query}"), "cert-of-web")).to_vec()
            }
            "/server_info" => vec![("/server_info".into(), "relay.yaml")],
            "/config" => vec![("/config".into(), "${WEIR_TEST_SECRET}")],
            "/certs" => vec![("/certs".into(), "server_names"), ("/certs".into(), "own.pem")],
            "/log" => vec![("/log".into(), "trace")],
            "POST /brakes/release" => vec![("POST /brakes/release".into(), "generation")],
            "POST /config/reload" => continue, // see below
            "POST /v3/discovery:client_status" => vec![("POST /v3/discovery:client_status".into(), "cert-of-web")],
            "POST /log" => vec![("POST /log?filter=trace,x=debug".into(), "trace")],
            other => panic!("{other} is new: say how it is asked, and what it shows"),
        };
        for (path, expected) in asked {
            let (method, path) = path.split_once(' ').unwrap_or(("GET", &path));
            let (_, body) = world.ask(method, path, if path.contains("status") { "{}" } else { "" }).await;
            world.secrets.are_not_in(path, body.as_bytes(), expected);
            read += 1;
        }
    }
    assert!(read > 25, "{read} pages");
    // What the redaction leaves is there: the pages have bodies.
    let dump = world.ask("GET", &format!("/config_dump?view={view}"), "").await.1;
    assert!(dump.matches("[redacted]").count() + dump.matches("W3JlZGFjdGVkXQ").count() >= 4, "{dump}");
}

async fn metrics_and_live(world: &World) {
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (_, of_probes) = exchange(TcpStream::connect(world.probes).await.unwrap(), request).await;
    world.secrets.are_not_in("/metrics for probes", of_probes.as_bytes(), "weir_tls_certificate_expires");
    let reader = world.operators.sign("reader.example");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&std::fs::read_to_string(world.folder.0.join("ca.pem")).unwrap())).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let key = PrivateKeyDer::from_pem_slice(reader.key.as_bytes()).unwrap();
    let config = builder.with_client_auth_cert(vec![certificate(&reader.certificate)], key).unwrap();
    let socket = TcpStream::connect(world.admin).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut of_operators = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut of_operators).await; // it may end without a farewell
    world.secrets.are_not_in("/metrics for operators", &of_operators, "weir_client_streams_open");
    let live = tokio::time::timeout(PATIENCE, async {
        let mut socket = UnixStream::connect(world.folder.0.join("admin.sock")).await.unwrap();
        let request = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut socket, request).await.unwrap();
        let mut read = Vec::new();
        while String::from_utf8_lossy(&read).matches("data: ").count() < 3 {
            tokio::io::AsyncReadExt::read_buf(&mut socket, &mut read).await.unwrap();
        }
        read
    });
    world.secrets.are_not_in("/live", &live.await.unwrap(), "data: ");
}

async fn client_status(world: &World) {
    let socket = UnixStream::connect(world.folder.0.join("admin.sock")).await.unwrap();
    let mut grpc = Grpc::new(channel_over(socket).await.unwrap()).max_decoding_message_size(16 << 20);
    let codec = ProstCodec::<ClientStatusRequest, ClientStatusResponse>::default;
    let path =
        |method: &str| format!("/envoy.service.status.v3.ClientStatusDiscoveryService/{method}").parse().unwrap();
    for of_clients in [false, true] {
        let mut request = ClientStatusRequest::default();
        if of_clients {
            request.node_matchers.push(Default::default());
        }
        grpc.ready().await.unwrap();
        let status = grpc.unary(Call::new(request.clone()), path("FetchClientStatus"), codec()).await.unwrap();
        let encoded = prost::Message::encode_to_vec(status.get_ref());
        world.secrets.are_not_in("client status", &encoded, "cert-of-web");
        grpc.ready().await.unwrap();
        let call = Call::new(tokio_stream::iter([request]));
        let mut stream = grpc.streaming(call, path("StreamClientStatus"), codec()).await.unwrap().into_inner();
        let encoded = prost::Message::encode_to_vec(&stream.message().await.unwrap().unwrap());
        world.secrets.are_not_in("stream of client status", &encoded, "cert-of-web");
    }
}

/// What pollers are sent besides resources.
async fn polls(world: &World) {
    let node = r#"{"id": "p", "cluster": "web"}"#;
    for (path, body, expected) in [
        ("/v3/discovery:secrets", "{".to_owned(), ""),
        ("/v3/discovery:nothing", "{}".to_owned(), ""),
        ("/v3/discovery:secrets", "{}".to_owned(), ""),
        ("/v3/discovery:secrets", format!(r#"{{"node": {node}, "resource_names": 7}}"#), ""),
        ("/v3/discovery:secrets", format!(r#"{{"node": {node}, "version_info": []}}"#), ""),
    ] {
        let socket = TcpStream::connect(world.plain).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: relay\r\nauthorization: Bearer {OF_CLIENT}\r\n");
        let rest =
            format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let (status, answer) = exchange(socket, &(head + &rest + &body)).await;
        assert!((400..500).contains(&status), "{path}: {status} {answer}");
        world.secrets.are_not_in(path, answer.as_bytes(), expected);
    }
}

async fn refused_configurations(world: &World) {
    let before = std::fs::read_to_string(world.folder.0.join("relay.yaml")).unwrap();
    let faulty = faulty(world);
    let unclosed = format!("{before}\n  - uri: \"https://user:{PASSWORD}@localhost\n");
    let texts = [(&faulty, &FAULTS[..]), (&unclosed, &["quote"][..])];
    for (text, expected) in texts {
        world.folder.write("relay.yaml", text);
        let (_, answer) = world.ask("POST", "/config/reload", "").await;
        for (page, body) in [("reload", answer), ("/config", world.ask("GET", "/config", "").await.1)] {
            expected.iter().for_each(|part| world.secrets.are_not_in(page, body.as_bytes(), part));
        }
        let info = world.ask("GET", "/server_info", "").await.1;
        world.secrets.are_not_in("/server_info", info.as_bytes(), "relay.yaml");
        let path = world.path("relay.yaml");
        for part in expected {
            world.shows(&["check", "--config", &path], part);
            world.shows(&["--config", &path, "--log", "trace"], part);
        }
    }
    // A URI is also in arguments and variables.
    let uri = format!("http://user:{PASSWORD}@127.0.0.1:1");
    for command in
        [&["get", "cds", "--server", &uri][..], &["status", "--admin", &uri], &["watch", "cds", "--server", &uri]]
    {
        world.shows(command, "no user and no password");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["--log", "trace", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).stderr(Stdio::piped());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("ftp://user:{PASSWORD}@127.0.0.1:1")).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let log = tokio::task::block_in_place(|| {
        let mut all = String::new();
        while !all.contains("weir started") {
            assert!(std::io::BufRead::read_line(&mut stderr, &mut all).unwrap() > 0, "it has ended: {all}");
        }
        let _ = (child.kill(), child.wait());
        all
    });
    world.secrets.are_not_in("log with a collector that is none", log.as_bytes(), "traces cannot be exported");
    world.folder.write("relay.yaml", &before);
    let (status, report) = world.ask("POST", "/config/reload", "").await;
    world.secrets.are_not_in("reload", report.as_bytes(), "changed");
    assert_eq!(status, 200);
}

/// The commands of the program, as they print by default.
async fn commands(world: &World) {
    let admin = format!("unix:{}", world.path("admin.sock"));
    let (server, config) = (world.plain.to_string(), world.path("relay.yaml"));
    world.shows(&["check", "--config", &config], "https://localhost");
    world.shows(&["status", "--admin", &admin], "NACKED");
    for (kind, name) in [("sds", "cert-of-web"), ("sds", "words"), ("cds", "shop"), ("lds", "door")] {
        world.shows(&["explain", "--client", "test", kind, name, "--admin", &admin], name);
        world.shows(&["explain", "--client", "test", kind, name, "--json", "--admin", &admin], name);
    }
    let of_web = ["--cluster", "web", "--id", "cli", "--server", &server];
    for output in ["yaml", "json", "text", "names"] {
        world.shows(&[&["get", "cds", "--output", output][..], &of_web].concat(), "shop");
        world.shows(&[&["get", "lds", "--output", output][..], &of_web].concat(), "door");
        let secrets = ["get", "sds", "cert-of-web", "words", "tickets", "--output", output];
        world.shows(&[&secrets[..], &of_web].concat(), "cert-of-web");
    }
    world.shows(&[&["get", "sds", "words", "--output", "wire"][..], &of_web].concat(), "--show-secrets");
    world.shows(&["release", "--admin", &admin], "");
    world.shows(&["schema"], "token_file");
    let shown = world.run(&[&["get", "sds", "words", "--show-secrets"][..], &of_web].concat()).stdout;
    assert!(has(&shown, GENERIC.as_bytes()), "it is shown on demand, so the test can find it");
}

async fn traces(world: &World) {
    until("spans are exported", async || !world.collector.spans("client stream start").is_empty()).await;
    let names = ["client stream start", "upstream change", "poll"];
    let spans: Vec<_> = names.iter().flat_map(|name| world.collector.spans(name)).collect();
    let text = format!("{spans:?} {:?}", world.collector.resource());
    world.secrets.are_not_in("traces", text.as_bytes(), "weir.");
}

/// The test itself: it finds a secret as it is, and in the forms that things are encoded in.
#[test]
fn secrets_are_found_in_each_form() {
    let secrets = Secrets::of(&[("one", b"hush-hush-hush".as_slice()), ("other", OF_STATE.as_slice())]);
    let base64 = STANDARD.encode("hush-hush-hush and more");
    let hex: String = OF_STATE.iter().map(|byte| format!("{byte:02x}")).collect();
    for (text, found) in
        [("a hush-hush-hush b", Some("one")), (&base64, Some("one")), (&hex, Some("other")), ("hush", None)]
    {
        assert_eq!(secrets.found_in(text.as_bytes()), found, "{text}");
    }
}

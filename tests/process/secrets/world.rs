//! The program in which the secrets are planted, with its control plane, its clients and its operators.

use super::*;

/// Answers the first request for each name or type.
pub(super) async fn serve(mut stream: Stream, all: BTreeMap<&'static str, Vec<(&'static str, Any)>>) {
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

/// Returns the TLS settings of a control plane that requires client certificates.
pub(super) fn tls_of(identity: &Identity, clients: &Authority) -> ServerConfig {
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

/// Opens a stream with a header that identifies the client, and requests all clusters.
pub(super) async fn client_with_header(address: SocketAddr) -> Client {
    let channel = channel_over(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let token = format!("Bearer {OF_CLIENT}");
    Client::call_for_clusters(channel, &[("authorization", token.as_str())], "web").await.unwrap()
}

/// A running relay in which the secrets are planted.
pub(super) struct World {
    pub(super) secrets: Secrets,
    pub(super) folder: Folder,
    pub(super) relay: Program,
    pub(super) operators: Authority,
    pub(super) admin: SocketAddr,
    pub(super) probes: SocketAddr,
    pub(super) plain: SocketAddr,
    pub(super) collector: Collector,
    pub(super) token: String,
    pub(super) server_key: String,
    pub(super) inline_key: String,
}

impl World {
    pub(super) async fn start(state_key: bool) -> Self {
        let (folder, own, operators) =
            (Folder::with_short_path("secrets"), Authority::named("own"), Authority::named("operators"));
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
        folder.write("header", OF_SERVER);
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
        let mut command = Command::new(WEIR);
        command.args(["--log", "trace"]).env("WEIR_TEST_SECRET", ENVIRONMENT).env("WEIR_TEST_HEADER", OF_VARIABLE);
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
            ("header for a server", OF_SERVER.as_bytes()),
            ("header from the environment", OF_VARIABLE.as_bytes()),
            ("header for the collector", OF_COLLECTOR.as_bytes()),
            ("key of the state", OF_STATE.as_slice()),
        ]);
        let (admin, probes, server_key) = (of("admin"), of("probes"), server.key);
        Self { secrets, folder, relay, operators, admin, probes, plain, collector, token, server_key, inline_key }
    }

    /// Sends a request as an operator, over the admin socket.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let socket = UnixStream::connect(self.folder.0.join("admin.sock")).await.unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OF_CLIENT}\r\n");
        let rest =
            format!("content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        exchange(socket, &(head + &rest)).await
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        let begin = body.find(['{', '[']).unwrap();
        let end = body.rfind(['}', ']']).unwrap();
        serde_json::from_str(&unchunked(&body[begin..=end])).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Runs a command of the program.
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(WEIR);
        command
            .args(arguments)
            .env("WEIR_TEST_SECRET", ENVIRONMENT)
            .env("WEIR_TEST_HEADER", OF_VARIABLE)
            .stdin(Stdio::null());
        tokio::task::block_in_place(|| command.output().unwrap())
    }

    /// Runs a command of the program, and checks what it prints.
    pub(super) fn shows(&self, arguments: &[&str], expected: &str) {
        let Output { stdout, stderr, .. } = self.run(arguments);
        self.secrets.are_not_in(&format!("weir {}", arguments.join(" ")), &[stdout, stderr].concat(), expected);
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.0.join(name).to_str().unwrap().to_owned()
    }
}

/// Removes the lengths of chunks, which are on lines of their own.
pub(super) fn unchunked(body: &str) -> String {
    let is_length = |line: &str| !line.is_empty() && line.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit());
    match serde_json::from_str::<Value>(body) {
        Ok(_) => body.to_owned(),
        Err(_) => body.split("\r\n").filter(|line| !is_length(line)).collect(),
    }
}

pub(super) fn config(plane: SocketAddr, state: &str) -> String {
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
    headers: {{x-own: {{file: header}}, x-other: {{environment: WEIR_TEST_HEADER}}}}
    tls: {{ca: ca.pem, certificate: own.pem, key: own.key}}
",
        plane.port()
    )
}

/// Connects clients that receive everything. One of them quotes what it rejects.
pub(super) async fn clients(world: &World) -> (Client, Client) {
    let mut client = client_with_header(world.plain).await;
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

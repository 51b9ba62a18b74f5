//! The surfaces: each is read, has its usual content, and shows no secret.

use super::*;

/// Requests each path of the index.
pub(super) async fn pages(world: &World) {
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
            "/live" | "/tap" => continue, // tested elsewhere in this file
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
            "/problems" => vec![("/problems".into(), "[redacted]")],
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
            "POST /config/reload/dry_run" => vec![("POST /config/reload/dry_run".into(), "changed")],
            "POST /config/reload" => continue, // tested elsewhere in this file
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
    // The page has the resources with secrets, since it has what the redaction puts in their place.
    let dump = world.ask("GET", &format!("/config_dump?view={view}"), "").await.1;
    assert!(dump.matches("[redacted]").count() + dump.matches("W3JlZGFjdGVkXQ").count() >= 4, "{dump}");
}

pub(super) async fn metrics_and_live(world: &World) {
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
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut of_operators).await; // the connection may break at the end
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

/// Taps of a client, with its secrets in both directions.
pub(super) async fn taps(world: &World) {
    let tapped = tokio::time::timeout(PATIENCE, async {
        let mut socket = UnixStream::connect(world.folder.0.join("admin.sock")).await.unwrap();
        let request = b"GET /tap?client=test&full HTTP/1.1\r\nhost: localhost\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut socket, request).await.unwrap();
        let mut read = Vec::new();
        let mut until = async |part: &str| {
            while !has(&read, part.as_bytes()) {
                tokio::io::AsyncReadExt::read_buf(&mut socket, &mut read).await.unwrap();
            }
        };
        until("\"event\":\"tap\"").await;
        let others = world::clients(world).await;
        until("tickets").await; // in the last request
        until("{\"name\":\"words\",\"resource\"").await;
        until("cannot use [redacted]").await;
        drop(others);
        read
    });
    let tapped = tapped.await.expect("it shows all");
    world.secrets.are_not_in("/tap", &tapped, "[redacted]");
    assert!(has(&tapped, b"client_secret") && has(&tapped, b"shop"), "messages have bodies");
}

pub(super) async fn client_status(world: &World) {
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

/// Everything besides resources that pollers are sent.
pub(super) async fn polls(world: &World) {
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

pub(super) async fn refused_configurations(world: &World) {
    let before = std::fs::read_to_string(world.folder.0.join("relay.yaml")).unwrap();
    let faulty = faulty(world);
    let unclosed = format!("{before}\n  - uri: \"https://user:{PASSWORD}@localhost\n");
    let texts = [(&faulty, &FAULTS[..]), (&unclosed, &["quote"][..])];
    for (text, expected) in texts {
        world.folder.write("relay.yaml", text);
        let (_, answer) = world.ask("POST", "/config/reload", "").await;
        let foretold = world.ask("POST", "/config/reload/dry_run", "").await.1;
        for (page, body) in
            [("reload", answer), ("foretold", foretold), ("/config", world.ask("GET", "/config", "").await.1)]
        {
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
    // A URI may also be in arguments and variables.
    let uri = format!("http://user:{PASSWORD}@127.0.0.1:1");
    for command in
        [&["get", "cds", "--server", &uri][..], &["status", "--admin", &uri], &["watch", "cds", "--server", &uri]]
    {
        world.shows(command, "no user and no password");
    }
    let mut command = Command::new(WEIR);
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

/// The output of the program's commands by default.
pub(super) async fn commands(world: &World) {
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

pub(super) async fn traces(world: &World) {
    until("spans are exported", async || !world.collector.spans("client stream start").is_empty()).await;
    let names = ["client stream start", "upstream change", "poll"];
    let spans: Vec<_> = names.iter().flat_map(|name| world.collector.spans(name)).collect();
    let text = format!("{spans:?} {:?}", world.collector.resource());
    world.secrets.are_not_in("traces", text.as_bytes(), "weir.");
}

/// Returns a configuration with every error that could quote a secret.
pub(super) fn faulty(world: &World) -> String {
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
  - {{uri: 'https://localhost:1', headers: {{x-a: '{OF_SERVER}', x-b: {{value: ['{OF_SERVER}']}}, x-c: {{value: '{OF_SERVER}', file: f}}}}}}
",
        world.token, world.token
    )
}

pub(super) const FAULTS: [&str; 5] = [
    "connect_timeout",
    "no user and no password",
    "nothing after the host",
    "has this in it",
    "a mapping with one of value",
];

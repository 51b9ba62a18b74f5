//! Which clients may read and change what at the admin address and the admin socket.

use std::fs;
use std::os::unix::fs::MetadataExt;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::live::Watcher;
use super::*;
use weir_testkit::folder::Folder;

/// Sends a request of these lines, and returns the status and the body of the response.
pub(super) async fn ask(mut stream: impl client::Io, lines: &[&str]) -> (u16, String) {
    let request = format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(super) async fn app(folder: &Folder, plane: SocketAddr, keys: &str) -> App {
    let socket = folder.socket();
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]
admin: {{socket: '{}'{keys}}}
upstream: {{servers: [{{uri: 'http://{plane}'}}]}}
",
        socket.display()
    );
    crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_address_reads_and_the_socket_reads_and_changes() {
    let folder = Folder::with_short_path("admin");
    let plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    assert_eq!(fs::symlink_metadata(folder.socket()).unwrap().mode() & 0o7777, 0o600);
    let over_tcp = async |lines: &[&str]| ask(TcpStream::connect(relay.admin).await.unwrap(), lines).await;
    let over_unix = async |lines: &[&str]| ask(UnixStream::connect(folder.socket()).await.unwrap(), lines).await;
    for (path, status) in [("/clients", 200), ("/healthz", 200), ("/log", 200), ("/none", 404)] {
        let get = format!("GET {path} HTTP/1.1");
        assert_eq!(over_tcp(&[&get, "host: 127.0.0.1:19000"]).await.0, status, "{path}");
        assert_eq!(over_unix(&[&get, "host: localhost"]).await.0, status, "{path}");
    }
    let change = "POST /log?filter=debug HTTP/1.1";
    let (status, why) = over_tcp(&[change, "host: localhost"]).await;
    assert!(status == 403 && why.contains("curl --unix-socket") && why.contains("weir.sock"), "{status}: {why}");
    // The request reached the handler: the relay of this test has no log of its own.
    assert_eq!(over_unix(&[change, "host: localhost"]).await, (404, "this process has no log of its own\n".into()));
    let (status, why) = over_unix(&["POST /log?filter=verbose HTTP/1.1", "host: localhost"]).await;
    assert!(status == 400 && why.contains("expected error, warn, info"), "{why}");
    assert_eq!(over_unix(&["GET /log?filter=debug HTTP/1.1", "host: localhost"]).await, (200, "off\n".into()));
    assert_eq!(over_unix(&[change, "host: localhost", "origin: http://evil.example"]).await.0, 403);
    let (status, why) = over_unix(&["DELETE /clients HTTP/1.1", "host: localhost"]).await;
    assert!(status == 405 && why.contains("the Allow header"), "{status}: {why}");
    assert_eq!(over_unix(&["GET /brakes/release HTTP/1.1", "host: localhost"]).await.0, 405, "no change by GET");
    let (status, why) = over_tcp(&[change, "host: localhost", "origin: http://evil.example"]).await;
    assert!(status == 403 && why.contains("another origin"), "{why}");
}

#[tokio::test]
async fn a_change_is_logged_with_who_asked_for_it_also_if_it_was_refused() {
    let (lines, _guard) = log_lines::Lines::of_this_thread();
    let folder = Folder::with_short_path("logged");
    let plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    let change = ["POST /log?filter=debug HTTP/1.1", "host: localhost"];
    ask(UnixStream::connect(folder.socket()).await.unwrap(), &change).await;
    let uid = nix::unistd::Uid::effective();
    let line = format!("message=change requested by=unix (uid:{uid}) target=/log?filter=debug status=404");
    assert_eq!(lines.with(&line).len(), 1, "{:?}", lines.with("change requested"));
    ask(TcpStream::connect(relay.admin).await.unwrap(), &change).await;
    assert_eq!(lines.with("by=127.0.0.1:").len(), 1, "{:?}", lines.with("change requested"));
    ask(TcpStream::connect(relay.admin).await.unwrap(), &["GET /log HTTP/1.1", "host: localhost"]).await;
    assert_eq!(lines.with("change requested").len(), 2, "reading is no change");
}

/// How long a connection may send nothing.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Opens connections that send nothing, more than there are slots.
pub(super) async fn silent_ones(address: SocketAddr) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    silent
}

#[tokio::test]
async fn i8_silent_connections_keep_no_probe_from_its_answer() {
    let plane = Plane::start(&BOTH).await;
    let servers = format!("upstream: {{servers: [{{uri: 'http://{}'}}]}}\n", plane.address);
    let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nprobes: {{address: '127.0.0.1:0'}}\n{servers}");
    let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let probes = app.probes_address().unwrap();
    let serving = tokio::spawn(app.run());
    let ready = async || ask(TcpStream::connect(probes).await.unwrap(), &["GET /ready HTTP/1.1", "host: x"]).await.0;
    until("it is ready", async || ready().await == 200).await;
    let began = std::time::Instant::now();
    let mut first = TcpStream::connect(probes).await.unwrap();
    let mut silent = silent_ones(probes).await;
    for path in ["/healthz", "/ready", "/metrics", "/healthz", "/healthz", "/healthz"] {
        let line = format!("GET {path} HTTP/1.1");
        assert_eq!(ask(TcpStream::connect(probes).await.unwrap(), &[&line, "host: x"]).await.0, 200, "{path}");
        silent.push(TcpStream::connect(probes).await.unwrap());
    }
    let closed = tokio::time::timeout(client::PATIENCE, first.read(&mut [0])).await.expect("it is still open");
    assert!(closed.is_ok_and(|read| read == 0), "the one that was idle longest gave way");
    assert!(began.elapsed() < SILENCE, "none waited until silent ones had their time, and the first did not have it");
    // Connections that have sent their requests before they are accepted are all answered.
    let mut asking = Vec::new();
    for _ in 0..60 {
        let mut stream = TcpStream::connect(probes).await.unwrap();
        stream.write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        asking.push(stream);
    }
    for mut stream in asking {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with('\n'), "{answer}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_response_that_goes_on_keeps_its_connection_when_all_places_are_taken() {
    let folder = Folder::with_short_path("going-on");
    let plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    let mut watcher = Watcher::of(&relay).await;
    watcher.picture().await.expect("it is answered"); // the response is still open, so the connection is not idle
    let _silent = silent_ones(relay.admin).await;
    for _ in 0..3 {
        let over_tcp = TcpStream::connect(relay.admin).await.unwrap();
        assert_eq!(ask(over_tcp, &["GET /healthz HTTP/1.1", "host: localhost"]).await.0, 200);
        watcher.picture().await.expect("it still watches");
    }
}

#[tokio::test]
async fn probes_are_answered_under_any_name_and_see_nothing_else() {
    let folder = Folder::with_short_path("probes");
    let plane = Plane::start(&BOTH).await;
    let socket = folder.socket();
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]
admin: {{socket: '{}'}}
probes: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{}'}}]}}
",
        socket.display(),
        plane.address
    );
    let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let (probes, admin) = (app.probes_address().unwrap(), app.admin_address());
    assert_eq!(admin, None);
    let serving = tokio::spawn(app.run());
    let ask_as = async |line: &str| {
        let line = format!("{line} HTTP/1.1");
        ask(TcpStream::connect(probes).await.unwrap(), &[&line, "host: weir.monitoring.svc:19001"]).await
    };
    assert_eq!(ask_as("GET /healthz").await, (200, "ok\n".into()));
    until("it is ready", async || ask_as("GET /ready").await.0 == 200).await;
    assert!(ask_as("GET /metrics").await.1.contains("weir_build_info"));
    let (status, index) = ask_as("GET /").await;
    let paths: Vec<_> = index.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!((status, paths), (200, vec!["/healthz", "/ready", "/metrics"]));
    let over_socket = ask(UnixStream::connect(&socket).await.unwrap(), &["GET / HTTP/1.1", "host: x"]).await.1;
    let paths = over_socket.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    for path in paths.filter(|path| !["/healthz", "/ready", "/metrics"].contains(path)) {
        assert_eq!(ask_as(&format!("GET {path}")).await.0, 404, "{path}");
        assert_eq!(ask_as(&format!("POST {path}")).await.0, 404, "{path}");
    }
    assert_eq!(ask_as("POST /healthz").await.0, 405);
    serving.abort();
}

#[tokio::test]
async fn a_name_that_could_lead_anywhere_is_no_host_unless_it_is_configured() {
    let folder = Folder::with_short_path("hosts");
    let plane = Plane::start(&BOTH).await;
    let keys = ", address: '127.0.0.1:0', hosts: [weir.monitoring.svc]";
    let relay = run(app(&folder, plane.address, keys).await, std::future::pending());
    for (host, status) in [
        ("host: 127.0.0.1", 200),
        ("host: localhost:19000", 200),
        ("host: weir.monitoring.svc:19000", 200),
        ("host: evil.example", 421),
        ("host: evil.example:19000", 421),
    ] {
        let (found, why) =
            ask(TcpStream::connect(relay.admin).await.unwrap(), &["GET /resources HTTP/1.1", host]).await;
        assert_eq!(found, status, "{host}: {why}");
        assert_eq!(status == 421, why.contains("expected an IP address, localhost, or a name in admin.hosts"), "{why}");
    }
}

#[tokio::test]
async fn a_relay_may_have_the_socket_alone() {
    let folder = Folder::with_short_path("alone");
    let plane = Plane::start(&BOTH).await;
    let app = app(&folder, plane.address, "").await;
    assert_eq!((app.admin_address(), app.admin_socket()), (None, Some(folder.socket().as_path())));
    let serving = tokio::spawn(app.run());
    let stream = UnixStream::connect(folder.socket()).await.unwrap();
    assert_eq!(ask(stream, &["GET /healthz HTTP/1.1", "host: localhost"]).await, (200, "ok\n".into()));
    serving.abort();
    until("the socket is gone", async || !folder.socket().exists()).await;
}

#[tokio::test]
async fn no_page_shows_the_content_of_a_resource() {
    let folder = Folder::with_short_path("content");
    let mut plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let content = "do-not-show";
    let set = [("a", content)];
    say(&plane.stream().await, "1", &set, &set, &[]);
    let sent = client.sent().await;
    client.refuse(CDS, &sent);
    until("the NACK is known", async || get(relay.admin, "/clients").await.contains("\"nacked\": true")).await;
    let pages = get(relay.admin, "/").await;
    assert!(get(relay.admin, "/resources").await.contains("\"name\": \"a\""));
    for path in pages.lines().filter_map(|line| line.split_whitespace().next()).filter(|path| path.starts_with('/')) {
        let page = match path {
            "/live" => Watcher::of(&relay).await.picture().await.expect("it is answered").to_string(),
            _ => get(relay.admin, path).await,
        };
        assert!(!page.contains(content), "{path}: {page}");
    }
}

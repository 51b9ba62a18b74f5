//! Clients on Unix sockets: processes of this machine, identified by their user and group.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use nix::unistd::{Gid, Uid};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::asking::Weir;
use super::poller::{CLUSTERS, Poller};
use super::*;
use weir_testkit::folder::Folder;

fn text(folder: &Folder, plane: SocketAddr, keys: &str, rest: &str) -> String {
    let socket = folder.socket();
    format!(
        "listen: [{{address: 'unix:{}'{keys}}}, {{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{plane}', variant: delta}}]}}
views: {{key: [cluster]}}
{rest}",
        socket.display()
    )
}

async fn app(folder: &Folder, plane: SocketAddr, keys: &str, rest: &str) -> anyhow::Result<App> {
    crate::bind(Config::parse(Path::new("test.yaml"), &text(folder, plane, keys, rest)).unwrap()).await
}

async fn client(folder: &Folder, variant: Variant) -> Client {
    Client::over_as(UnixStream::connect(folder.socket()).await.unwrap(), variant).await.unwrap()
}

#[tokio::test]
async fn clients_of_both_variants_and_pollers_are_served_and_shown_by_their_user() {
    let folder = Folder::with_short_path("served");
    let mut plane = Plane::start(&BOTH).await;
    let limits = "limits: {connections_per_address: 1}\n"; // these clients have no address
    let relay = run(app(&folder, plane.address, "", limits).await.unwrap(), std::future::pending());
    let mut clients = Vec::new();
    for variant in BOTH {
        let client = client(&folder, variant).await;
        client.ask(CDS, &[], Some("web"));
        clients.push(client);
    }
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    for client in &mut clients {
        assert_eq!(client.sent().await.set, ["a", "b"]);
    }
    let mut poller = Poller::over(UnixStream::connect(folder.socket()).await.unwrap()).await;
    let answer = poller.polled(CLUSTERS, "web", serde_json::json!({})).await;
    assert_eq!(answer.status.as_u16(), 200);
    let peer = format!("\"peer\": \"unix (uid:{})\"", Uid::effective());
    // The poll ends a moment after its answer.
    until("there are two", async || get(relay.admin, "/clients").await.matches(&peer).count() == 2).await;
}

#[tokio::test]
async fn the_socket_has_the_mode_and_owner_of_the_configuration() {
    let folder = Folder::with_short_path("mode");
    let plane = Plane::start(&BOTH).await;
    let (user, group) = (Uid::effective(), Gid::effective());
    for (keys, mode) in [
        (String::new(), 0o600),
        (", mode: '0666'".to_owned(), 0o666),
        (format!(", mode: '660', owner: {user}, group: '{group}'"), 0o660),
    ] {
        let app = app(&folder, plane.address, &keys, "").await.unwrap();
        let found = fs::symlink_metadata(folder.socket()).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, user.as_raw(), group.as_raw()), "{keys}");
        drop(app);
        assert!(!folder.socket().exists());
    }
}

#[tokio::test]
async fn a_socket_in_use_is_an_error_and_one_in_an_open_folder_too() {
    let folder = Folder::with_short_path("in-use");
    let mut plane = Plane::start(&BOTH).await;
    let first = run(app(&folder, plane.address, "", "").await.unwrap(), std::future::pending());
    let address = plane.address;
    let fails = async || format!("{:#}", app(&folder, address, "", "").await.err().unwrap());
    let second = fails().await;
    assert!(second.contains("cannot listen on unix:") && second.contains("is in use"), "{second}");
    let mut still = client(&folder, Variant::Delta).await;
    still.ask(CDS, &[], Some("web"));
    say(&plane.stream().await, "1", &TWO, &TWO, &[]);
    assert_eq!(still.sent().await.set, ["a", "b"], "the first still serves");
    drop(first);
    until("the socket is gone", async || !folder.socket().exists()).await;
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let open = fails().await;
    assert!(open.contains("is writable by everybody"), "{open}");
}

#[tokio::test]
async fn a_relay_that_drains_removes_the_socket_and_ends_streams_in_order() {
    let folder = Folder::with_short_path("drain");
    let mut plane = Plane::start(&BOTH).await;
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    let drain = "drain: {grace: 0s, spread: 0s}\n";
    let relay = run(app(&folder, plane.address, "", drain).await.unwrap(), stopped);
    let mut client = client(&folder, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    say(&plane.stream().await, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    stop.send(()).unwrap();
    assert_eq!(client.ended().await, Code::Unavailable);
    until("the socket is gone", async || !folder.socket().exists()).await;
    drop(relay);
}

#[tokio::test]
async fn weir_get_asks_over_a_unix_socket() {
    let folder = Folder::with_short_path("get");
    let mut plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, "", "").await.unwrap(), std::future::pending());
    let server = format!("unix:{}", folder.socket().display());
    let asking = Weir::start_at(&server, "get clusters --cluster web -o names");
    say(&plane.stream().await, "1", &TWO, &TWO, &[]);
    assert_eq!(asking.end().await, (0, "a\nb\n".into(), String::new()));
    drop(relay);
    until("the socket is gone", async || !folder.socket().exists()).await;
    let (code, _, error) = Weir::start_at(&server, "get clusters").end().await;
    assert!(code == 2 && error.contains("weir.sock: No such file or directory"), "{code}: {error}");
}

#[tokio::test]
async fn processes_of_one_user_are_one_identity_for_limits_and_clients_without_one_are_not_concerned() {
    let folder = Folder::with_short_path("identity");
    let mut plane = Plane::start(&BOTH).await;
    let limits = "limits: {connections_per_identity: 1}\n";
    let relay = run(app(&folder, plane.address, "", limits).await.unwrap(), std::future::pending());
    let mut first = client(&folder, Variant::Delta).await;
    first.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(first.sent().await.set, ["a", "b"]);
    let mut second = Poller::over(UnixStream::connect(folder.socket()).await.unwrap()).await;
    let answer = second.poll(CLUSTERS, "web", serde_json::json!({})).await;
    assert_eq!(answer.status.as_u16(), 429, "{answer:?}");
    assert!(answer.nack().1.contains(" is 1 (limits.connections_per_identity)"), "{answer:?}");
    say(&stream, "2", &[("a", "2")], &[("a", "2")], &[]);
    assert_eq!(first.sent().await.set, ["a"]);
    drop(first);
    until("it is served", async || {
        let mut again = Poller::over(UnixStream::connect(folder.socket()).await.unwrap()).await;
        again.poll(CLUSTERS, "web", serde_json::json!({})).await.status == 200
    })
    .await;
    drop(relay);
}

/// A server may be on a Unix socket, a file or an abstract one, by the configuration or by a bootstrap file.
#[tokio::test]
async fn a_server_on_a_unix_socket_is_asked_as_any_other() {
    let folder = Folder::with_short_path("server");
    let mut plane = Plane::start(&BOTH).await;
    let first = run(app(&folder, plane.address, "", "").await.unwrap(), std::future::pending());
    let abstract_name = format!("weir-test-{}", std::process::id());
    let _forwarded = forward(&abstract_name, &folder).await;
    let bootstrap = folder.0.join("bootstrap.json");
    let target = format!("unix://{}", folder.socket().display());
    let creds = serde_json::json!({"xds_servers": [{"server_uri": target, "channel_creds": [{"type": "insecure"}]}]});
    fs::write(&bootstrap, creds.to_string()).unwrap();
    let upstreams = [
        "servers: [{uri: 'unix:weir.sock'}]".to_owned(),
        format!("servers: [{{uri: 'unix-abstract:{abstract_name}'}}]"),
        "bootstrap: bootstrap.json".to_owned(),
    ];
    let mut stream = None;
    for upstream in upstreams {
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {{{upstream}}}\nviews: {{key: [cluster]}}\n"
        );
        let config = Config::parse(&folder.0.join("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
        let second = run(crate::bind(config).await.unwrap(), std::future::pending());
        let mut client = Client::connect(second.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        if stream.is_none() {
            let opened = plane.stream().await;
            say(&opened, "1", &TWO, &TWO, &[]);
            stream = Some(opened);
        }
        assert_eq!(client.sent().await.set, ["a", "b"], "{upstream}");
    }
    drop(first);
}

/// Forwards connections from an abstract socket to the socket in a folder, until the result is dropped.
async fn forward(name: &str, folder: &Folder) -> tokio::task::JoinSet<()> {
    let listener = tokio::net::UnixListener::bind(format!("\0{name}")).unwrap();
    let (path, mut task) = (folder.socket(), tokio::task::JoinSet::new());
    task.spawn(async move {
        while let Ok((mut one, _)) = listener.accept().await {
            let mut other = UnixStream::connect(&path).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
            });
        }
    });
    task
}

//! `/tap` and `weir tap`: the requests and replies of one client, as they happen.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

use super::admin_access::{app, ask};
use super::admin_tls;
use super::client::PATIENCE;
use super::poller::{CLUSTERS, Poller};
use super::status::weir;
use super::*;
use weir_testkit::folder::Folder;

/// A reader of a tap.
struct Tapping {
    socket: UnixStream,
    read: String,
}

impl Tapping {
    /// Opens a tap over the admin socket in a folder, and returns its first line too.
    async fn begin(folder: &Folder, query: &str) -> (Self, Value) {
        let mut socket = UnixStream::connect(folder.socket()).await.unwrap();
        let request = format!("GET /tap?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut this = Self { socket, read: String::new() };
        let first = this.line().await.expect("a first line");
        assert_eq!(first["event"], "tap");
        (this, first)
    }

    /// Returns the next line; `None` at the end.
    async fn line(&mut self) -> Option<Value> {
        loop {
            while let Some((line, rest)) = self.read.split_once('\n') {
                let line = line.to_owned();
                self.read = rest.to_owned();
                if line.starts_with('{') {
                    return Some(serde_json::from_str(&line).unwrap());
                }
                if line == "0\r" {
                    return None;
                }
            }
            let mut bytes = vec![0; 16 << 10];
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut bytes)).await.expect("nothing more comes");
            let read = read.unwrap_or_default();
            self.read.push_str(&String::from_utf8_lossy(&bytes[..read]));
            if read == 0 {
                return None;
            }
        }
    }

    async fn next(&mut self, event: &str) -> Value {
        let line = self.line().await.expect("it has ended");
        assert_eq!(line["event"], event, "{line}");
        line
    }
}

async fn tapped_relay(name: &str) -> (Folder, Plane, Relay) {
    let (folder, plane) = (Folder::with_short_path(name), Plane::start(&BOTH).await);
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    (folder, plane, relay)
}

fn of(count: usize, first: &[&str]) -> Value {
    json!({"count": count, "first": first})
}

#[tokio::test]
async fn requests_and_replies_of_a_client_are_shown_as_they_go_in_either_variant_and_no_other_clients() {
    for variant in BOTH {
        let (folder, mut plane, relay) = tapped_relay(&format!("tap-{}", variant.name())).await;
        let (mut tapping, first) = Tapping::begin(&folder, "client=test").await;
        assert_eq!((&first["connected"], &first["count"]), (&json!(false), &json!(0)));
        let mut other = Client::connect(relay.address, variant).await;
        let node = weir_core::proto::node::Node { id: "other".into(), cluster: "web".into(), ..Default::default() };
        other.ask_as(&node, CDS, &[]);
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
        assert_eq!(other.sent().await.set, ["a"]);

        let mut client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        let opened = tapping.next("opened").await;
        assert_eq!((&opened["node"], &opened["variant"]), (&json!("test"), &json!(variant.name())));
        let request = tapping.next("request").await;
        assert_eq!((&request["type"], &request["answer"]), (&json!("envoy.config.cluster.v3.Cluster"), &Value::Null));
        assert_eq!((&request["names"], &request["session"]), (&of(0, &[]), &opened["session"]));
        assert!(request.get("body").is_none(), "not asked for");
        let sent = client.sent().await;
        let reply = tapping.next("reply").await;
        assert_eq!((&reply["nonce"], &reply["variant"]), (&json!(sent.nonce), &json!(variant.name())));
        assert_eq!(reply["names"], of(sent.set.len(), &sent.set.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(reply["version"], if variant == Variant::Sotw { json!(sent.version) } else { Value::Null });
        assert!(reply["bytes"].as_u64().unwrap() > 20, "{reply}");
        client.ask(EDS, &["x", "y"], None);
        let request = tapping.next("request").await;
        assert_eq!(request["type"], "envoy.config.endpoint.v3.ClusterLoadAssignment");
        assert_eq!(request["names"], of(2, &["x", "y"]));
        client.refuse_for(CDS, &[], &sent, "a: bad password: hush");
        let nack = tapping.next("request").await;
        assert_eq!((&nack["answer"], &nack["nonce"]), (&json!("nack"), &json!(sent.nonce)));
        assert_eq!(nack["error"], json!({"code": 13, "message": "a: bad password: [redacted]"}));
        drop(client);
        tapping.next("ended").await;
        drop(other);
    }
}

#[tokio::test]
async fn a_session_is_tapped_by_its_number_and_is_told_how_its_stream_ends() {
    let (folder, mut plane, relay) = tapped_relay("tap-session").await;
    let mut clients =
        [Client::connect(relay.address, Variant::Delta).await, Client::connect(relay.address, Variant::Delta).await];
    for client in &mut clients {
        client.ask(CDS, &[], Some("web"));
        until("it is open", async || get(relay.admin, "/clients").await.contains("\"session\"")).await;
    }
    let stream = plane.stream().await;
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    for client in &mut clients {
        client.sent().await;
    }
    let page: Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
    let session = page["clients"][1]["session"].clone();
    let (mut tapping, first) = Tapping::begin(&folder, &format!("client={session}&full")).await;
    assert_eq!((&first["connected"], &first["streams"][0]["session"]), (&json!(true), &session));
    say(&stream, "2", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]);
    for client in &mut clients {
        client.sent().await;
    }
    let reply = tapping.next("reply").await;
    assert_eq!((&reply["session"], &reply["names"]), (&session, &of(1, &["b"])));
    assert_eq!(reply["body"]["resources"][0]["resource"], json!({"name": "b"}), "what has no descriptor is not shown");
    // A stream whose client changes its key ends.
    clients.iter().for_each(|client| client.ask(CDS, &[], Some("other")));
    let request = tapping.next("request").await;
    assert_eq!(request["body"]["node"]["cluster"], "other");
    let ended = tapping.next("ended").await;
    assert!(ended["status"] != 0 && !ended["reason"].as_str().unwrap().is_empty(), "{ended}");
}

#[tokio::test]
async fn polls_are_shown_with_what_they_are_answered() {
    let (folder, mut plane, relay) = tapped_relay("tap-polls").await;
    let (mut tapping, _) = Tapping::begin(&folder, "client=poller&full").await;
    let polling = tokio::spawn(async move {
        let mut poller = Poller::connect(relay.address).await;
        let answer = poller.polled(CLUSTERS, "web", json!({})).await;
        let version = serde_json::from_slice::<Value>(&answer.body).unwrap()["versionInfo"].clone();
        let again = poller.poll(CLUSTERS, "web", json!({"version_info": version})).await;
        assert_eq!(again.status, 304);
        (relay, version)
    });
    let stream = plane.stream().await;
    let set = super::rest::cluster("a", "content");
    stream.respond(&match stream.variant {
        Variant::Sotw => panic!("delta is tried first"),
        Variant::Delta => super::asking::deltas(CDS, "1", vec![("a", set)], &[]),
    });
    let (_relay, version) = polling.await.unwrap();
    let mut request = tapping.next("request").await;
    assert_eq!(request["body"]["node"]["id"], "poller");
    let mut line = tapping.line().await.unwrap();
    while line["event"] == "ended" {
        assert_eq!(line["status"], 503, "it has polled a cold cache");
        request = tapping.next("request").await;
        line = tapping.line().await.unwrap();
    }
    assert_eq!((&request["version"], &line["version"]), (&Value::Null, &version));
    assert_eq!((&line["names"], &line["body"]["resources"][0]["name"]), (&of(1, &["a"]), &json!("a")));
    assert_eq!(tapping.next("request").await["version"], version);
    tapping.next("unchanged").await;
}

/// How many lines a socket buffers depends on the machine. The test makes changes until the relay has dropped some lines.
#[tokio::test]
async fn i8_a_tap_that_is_not_read_loses_lines_and_its_client_gets_every_change() {
    const ROUNDS: u32 = 5;
    let (folder, mut plane, relay) = tapped_relay("tap-slow").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "0", &[("a", "0")], &[("a", "0")], &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("it has answered", async || get(relay.admin, "/clients").await.contains("SYNCED")).await;
    let (mut tapping, _) = Tapping::begin(&folder, "client=test").await;
    // The log line of a reply contains these names: 10 kB.
    let names: Vec<_> = (0..20).map(|number| format!("{number:02}-{}", "long".repeat(120))).collect();
    let (mut last, mut dropped) = (0, 0);
    for round in 0..ROUNDS {
        let changes: u64 = 250 << round;
        for _ in 0..changes {
            last += 1;
            let version = last.to_string();
            let set: Vec<_> = names.iter().map(|name| (name.as_str(), version.as_str())).collect();
            say(&stream, &version, &set, &set, &[]);
            let sent = client.sent().await;
            assert_eq!(sent.set, names, "the client waits for no reader of a tap");
            client.ack(CDS, &[], &sent);
        }
        until("it has answered", async || get(relay.admin, "/clients").await.contains("SYNCED")).await;
        let mut shown = 0;
        while shown + dropped < 2 * changes {
            let line = tapping.line().await.expect("it has ended");
            match line["event"].as_str().unwrap() {
                "request" | "reply" => shown += 1,
                "dropped" => dropped += line["dropped"].as_u64().unwrap(),
                other => panic!("{other}"),
            }
        }
        assert_eq!(shown + dropped, 2 * changes);
        if dropped > 0 {
            assert!(shown >= 256, "as many as a tap may be behind: {shown}");
            break;
        }
    }
    assert!(dropped > 0, "a socket that is not read has room for {} replies of 10 kB", 250 << (ROUNDS - 1));
    let set = [("last", "1")];
    say(&stream, "last", &set, &set, &[]);
    assert_eq!(tapping.next("reply").await["names"], of(1, &["last"]), "it goes on");
}

#[tokio::test]
async fn a_tap_is_a_right_of_its_own_and_each_use_is_logged() {
    let (lines, _guard) = log_lines::Lines::of_this_thread();
    let (folder, _plane, relay) = tapped_relay("tap-rights").await;
    let tcp = TcpStream::connect(relay.admin).await.unwrap();
    let (status, why) = ask(tcp, &["GET /tap?client=test HTTP/1.1", "host: localhost"]).await;
    assert!(status == 403 && why.contains("this address only reads: a tap needs the Unix socket"), "{status} {why}");
    let refused = lines.with("message=tap of a client refused");
    assert!(
        refused.len() == 1 && refused[0].1.contains("by=127.0.0.1:") && refused[0].1.contains("client=test"),
        "{refused:?}"
    );
    let foreign = ["GET /tap?client=test HTTP/1.1", "host: localhost", "origin: http://evil.example"];
    assert_eq!(ask(UnixStream::connect(folder.socket()).await.unwrap(), &foreign).await.0, 403);
    let (status, why) =
        ask(UnixStream::connect(folder.socket()).await.unwrap(), &["GET /tap HTTP/1.1", "host: localhost"]).await;
    assert!(status == 400 && why.contains("client missing"), "{status} {why}");

    let (tapping, _) = Tapping::begin(&folder, "client=test&full").await;
    let uid = nix::unistd::Uid::effective();
    let begun = format!("message=tap of a client begins by=unix (uid:{uid}) client=test full=true");
    assert_eq!(lines.with(&begun).len(), 1, "{:?}", lines.with("tap of a client"));
    drop(tapping);
    let ended = "message=tap of a client ends";
    until("its end is logged", async || !lines.with(ended).is_empty()).await;
    let (_, end) = lines.with(ended).pop().unwrap();
    assert!(end.contains("client=test lines=0 dropped=0 reason=\"the caller has left\""), "{end}");
}

#[tokio::test]
async fn of_those_with_certificates_they_may_tap_who_are_listed_for_it() {
    let world = admin_tls::World::new().await;
    let [reader, oncall, tapper] =
        ["reader.example", "ann.oncall.example", "tapper.example"].map(|name| world.operators.sign(name));
    // Without a client parameter the request fails at once.
    for (who, status, read) in [(&reader, 403, 200), (&oncall, 403, 200), (&tapper, 400, 403)] {
        assert_eq!(world.ask(Some(who), "GET /tap", &[]).await.0, status);
        assert_eq!(world.ask(Some(who), "GET /clients", &[]).await.0, read);
    }
    let (_, why) = world.ask(Some(&oncall), "GET /tap", &[]).await;
    assert_eq!(why, "dns:ann.oncall.example may tap no client: admin.tls.may_tap lists who may\n");
}

#[tokio::test]
async fn there_are_four_taps_at_most_and_they_end_when_the_relay_drains() {
    let (folder, plane) = (Folder::with_short_path("tap-drain"), Plane::start(&BOTH).await);
    let app = app(&folder, plane.address, ", address: '127.0.0.1:0'}\ndrain: {delay: 1h").await;
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = run(app, async move { drop(stopped.await) });
    let mut tapping = Vec::new();
    for _ in 0..4 {
        tapping.push(Tapping::begin(&folder, "client=test").await.0);
    }
    let beyond = async || {
        let socket = UnixStream::connect(folder.socket()).await.unwrap();
        assert_eq!(ask(socket, &["GET /tap?client= HTTP/1.1", "host: localhost"]).await.0, 400);
        let mut socket = UnixStream::connect(folder.socket()).await.unwrap();
        socket
            .write_all(b"GET /tap?client=test HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut head = [0; 12];
        socket.read_exact(&mut head).await.unwrap();
        String::from_utf8(head.to_vec()).unwrap()
    };
    assert_eq!(beyond().await, "HTTP/1.1 503");
    tapping.pop();
    until("there is room again", async || beyond().await == "HTTP/1.1 200").await;
    stop.send(()).unwrap();
    for mut tapping in tapping {
        assert_eq!(tapping.next("end").await["reason"], "the relay drains");
        assert_eq!(tapping.line().await, None);
    }
    drop(relay);
}

#[tokio::test]
async fn the_command_waits_for_a_client_and_shows_it_in_either_form() {
    let (lines, _guard) = log_lines::Lines::of_this_thread();
    let (folder, mut plane, relay) = tapped_relay("tap-command").await;
    let admin = format!("unix:{}", folder.socket().display());
    let showing = ["table", "json"].map(|form| {
        let admin = admin.clone();
        tokio::spawn(
            async move { weir(&["tap", "--client", "test", "--count", "2", "-o", form, "--admin", &admin]).await },
        )
    });
    until("both tap", async || lines.with("tap of a client begins").len() == 2).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    client.sent().await;
    let [table, json] = showing;
    let (code, out, error) = table.await.unwrap();
    assert_eq!((code, error.as_str()), (0, "note: test is not connected; waiting\n"), "{out}");
    let shown: Vec<_> = out.lines().collect();
    assert!(
        shown.len() == 3 && shown[0].contains("stream opened: node test") && shown[1].contains("request  CDS"),
        "{out}"
    );
    assert!(shown[2].contains("reply    CDS") && shown[2].contains("1 resources: a"), "{out}");
    let (code, out, _) = json.await.unwrap();
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((code, events), (0, vec!["tap", "opened", "request", "reply"]), "{out}");

    let (code, _, error) = weir(&["tap", "--client", "test", "--admin", &relay.admin.to_string()]).await;
    assert!(code == 2 && error.contains("a tap needs the Unix socket"), "{code} {error}");
    let (code, _, error) = weir(&["tap", "--client", "test", "--admin", "127.0.0.1:1"]).await;
    assert!(code == 2 && error.contains("cannot reach"), "{code} {error}");
}

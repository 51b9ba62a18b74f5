//! The page at the admin address, and the pictures of the relay that it shows.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::client::PATIENCE;
use super::*;

/// A client that reads `/live`.
pub(super) struct Watcher {
    socket: TcpStream,
    received: String,
}

impl Watcher {
    pub(super) async fn of(relay: &Relay) -> Self {
        let mut socket = TcpStream::connect(relay.admin).await.unwrap();
        socket.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        Self { socket, received: String::new() }
    }

    async fn read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut bytes)).await.expect("nothing more comes");
        let read = read.unwrap_or_default();
        self.received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    }

    /// Returns the next picture; `None` at the end of the stream.
    pub(super) async fn picture(&mut self) -> Option<Value> {
        loop {
            let found = self.received.split_once("data: ").and_then(|(_, rest)| rest.split_once("\n\n"));
            if let Some((data, rest)) = found.map(|(data, rest)| (data.to_owned(), rest.to_owned())) {
                self.received = rest;
                return Some(serde_json::from_str(&data).unwrap());
            }
            if self.received.ends_with("0\r\n\r\n") || !self.read().await {
                return None;
            }
        }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let looking = async {
            loop {
                let picture = self.picture().await.expect("the stream has ended");
                if holds(&picture) {
                    return picture;
                }
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"))
    }
}

fn of_clusters(picture: &Value) -> &Value {
    let types = picture["types"].as_array().unwrap();
    types.iter().find(|of| of["type"] == "envoy.config.cluster.v3.Cluster").unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_change_spreads_a_client_stays_behind_and_another_refuses() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut clients = Client::connect_many(relay.address, 3).await;
    clients.iter().for_each(|client| client.ask(CDS, &[], Some("web")));
    let stream = plane.stream().await;
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    for client in &mut clients {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    let mut watcher = Watcher::of(&relay).await;
    let picture = watcher.until("all have it", |picture| of_clusters(picture)["acked"] == 3).await;
    assert_eq!(of_clusters(&picture)["sent"], 3);
    assert_eq!((&picture["totals"]["clients"], &picture["relay"]["state"]), (&json!(3), &json!("ready")));
    assert_eq!(picture["views"][0]["states"], json!({"SYNCED": 3, "NOT_SENT": 0, "STALE": 0, "NACKED": 0}));
    assert_eq!(picture["views"][0]["ladders"][0]["state"], "active");
    assert_eq!(picture["servers"][0]["connected"], 1);
    assert!(picture["laggards"].as_array().unwrap().is_empty() && picture["nacks"].as_array().unwrap().is_empty());

    say(&stream, "2", &[("a", "2")], &[("a", "2")], &[]);
    let mut answers = clients.iter_mut();
    let (first, second, third) = (answers.next().unwrap(), answers.next().unwrap(), answers.next().unwrap());
    let sent = first.sent().await;
    first.ack(CDS, &[], &sent);
    let sent = second.sent().await;
    second.refuse_for(CDS, &[], &sent, "too sharp");
    third.sent().await; // its client does not answer
    let holds = |picture: &Value| of_clusters(picture)["nacked"] == 1 && of_clusters(picture)["acked"] == 1;
    let picture = watcher.until("one has it, and one has refused it", holds).await;
    assert_eq!(of_clusters(&picture)["sent"], 3);
    assert!(of_clusters(&picture)["spreading_seconds"].as_f64().is_some(), "{picture}");
    assert_eq!(picture["views"][0]["states"], json!({"SYNCED": 1, "NOT_SENT": 0, "STALE": 1, "NACKED": 1}));
    let laggards = picture["laggards"].as_array().unwrap();
    assert!(laggards.len() == 1 && laggards[0]["state"] == "STALE", "who has refused it has answered: {picture}");
    assert!(picture["nacks"].to_string().contains("too sharp"), "{picture}");
    let command = "curl -sN 127.0.0.1:19000/live | sed -n 's/^data: //p' | head -1 | jq";
    super::examples::assert_documented(command, &picture.to_string());
    let lagging: u64 = picture["lags"].as_array().unwrap().iter().map(|lag| lag["clients"].as_u64().unwrap()).sum();
    assert_eq!(lagging, 1);
}

#[tokio::test]
async fn watchers_are_limited_share_a_picture_and_leave_room_when_they_go() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut watchers = Vec::new();
    for _ in 0..16 {
        let mut watcher = Watcher::of(&relay).await;
        watcher.picture().await.expect("it is answered");
        watchers.push(watcher);
    }
    let times = async |watcher: &mut Watcher| watcher.picture().await.unwrap()["at"].clone();
    let mut last = watchers.pop().unwrap();
    let [mut one, mut other] = [times(&mut last).await, times(&mut watchers[0]).await];
    for _ in 0..30 {
        if one == other {
            break;
        }
        // One watcher may be pictures behind the other, and may be sent not every one.
        match one.as_str() < other.as_str() {
            true => one = times(&mut last).await,
            false => other = times(&mut watchers[0]).await,
        }
    }
    assert_eq!(one, other, "it is made once");

    let (status, reason) = probe(relay.admin, "/live").await;
    assert!(status == 503 && reason.contains("too many watchers: the limit is 16"), "{status} {reason}");
    drop(watchers);
    drop(last);
    until("there is room again", async || {
        let mut watcher = Watcher::of(&relay).await;
        watcher.picture().await.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_relay_that_drains_says_so_and_lets_watchers_go() {
    let plane = Plane::start(&BOTH).await;
    let config = config(plane.address, "", "views: {key: [cluster]}\ndrain: {delay: 1h}\n");
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let mut watcher = Watcher::of(&relay).await;
    watcher.picture().await.expect("it is answered");
    stop.send(()).unwrap();
    watcher.until("it drains", |picture| picture["relay"]["state"] == "draining").await;
    let ends = async { while watcher.picture().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ends).await.expect("it goes on");
}

#[tokio::test]
async fn browsers_get_the_page_and_other_programs_the_list_of_paths() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    assert!(get(relay.admin, "/").await.contains("/clients/{session}"));
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\naccept: text/html,*/*;q=0.8\r\nconnection: close\r\n\r\n";
    let (status, page) = exchange(TcpStream::connect(relay.admin).await.unwrap(), request).await;
    assert!(status == 200 && page.contains("<!doctype html>"), "{page}");
}

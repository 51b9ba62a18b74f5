//! The memory of the relay is one budget, of which greedy clients leave others a share; and limits that a reload changes at once.

use std::time::Duration;

use super::poller::{ENDPOINTS, Poller};
use super::reload::{World, text};
use super::*;

async fn start(plane: &Plane, memory: &str) -> Relay {
    let config = config(plane.address, "", &format!("views: {{key: [cluster]}}\nlimits: {{memory: {memory}}}\n"));
    run(crate::bind(config).await.unwrap(), std::future::pending())
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

fn ask(client: &Client, names: &[String]) {
    client.ask(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), Some("web"));
}

/// Returns why a stream has ended, if it ends within a moment.
async fn end_of(client: &mut Client) -> Option<tonic::Status> {
    let Client::Delta(_, responses) = client else { panic!("a delta client") };
    tokio::time::timeout(Duration::from_millis(300), responses.message()).await.ok()?.err()
}

pub(super) async fn series(relay: &Relay, name: &str) -> usize {
    metric(relay, name).await as usize
}

const OF_CLIENTS: &str = "weir_memory_charged_bytes{to=\"clients\"}";

/// Waits until the bytes charged to clients satisfy a condition.
pub(super) async fn charged(relay: &Relay, are_meant: impl Fn(usize) -> bool) {
    let charged = async || are_meant(series(relay, OF_CLIENTS).await);
    until("so much is charged", charged).await;
}

/// Less than what the names of one client take, and more than their text.
const OF_ONE: usize = 4 << 20;

#[tokio::test]
async fn i8_clients_with_made_up_names_are_refused_before_the_memory_is_full_and_others_are_not() {
    let _turn = super::HEAVY.lock().await;
    let plane = Plane::start(&[Variant::Delta]).await;
    let relay = start(&plane, "64MiB").await;
    assert_eq!(series(&relay, "weir_memory_budget_bytes").await, 64 << 20);
    let (mut greedy, mut refused) = (Vec::new(), None);
    for round in 0..20 {
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        let before = series(&relay, OF_CLIENTS).await;
        ask(&client, &names(&format!("made-up-{round}"), 20_000));
        // One at a time: what several requests take while they are read would be refused together.
        until("it has its names or is refused", async || {
            refused = end_of(&mut client).await;
            refused.is_some() || series(&relay, OF_CLIENTS).await > before + OF_ONE
        })
        .await;
        greedy.push(client);
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("nothing is refused");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let said = refused.message();
    assert!(said.starts_with("too little memory: ") && said.ends_with("(limits.memory); retry later"), "{said}");
    assert!(series(&relay, "weir_limit_reached_total{limit=\"limits.memory\"}").await > 0);
    charged(&relay, |bytes| bytes > 30 << 20).await;

    let mut small = Client::connect(relay.address, Variant::Delta).await;
    ask(&small, &names("small", 20));
    assert!(end_of(&mut small).await.is_none(), "others have room");
    assert!(end_of(&mut greedy[0]).await.is_none(), "who is there stays");
    drop((greedy, small));
    charged(&relay, |bytes| bytes < 2 << 20).await;
}

#[tokio::test]
async fn a_poll_for_which_there_is_no_memory_gets_503_and_may_come_again() {
    let _turn = super::HEAVY.lock().await;
    let plane = Plane::start(&[Variant::Delta]).await;
    let relay = start(&plane, "16MiB").await;
    let mut poller = Poller::connect(relay.address).await;
    let many = serde_json::json!({"resource_names": names("x", 60_000), "type_url": EDS});
    let answer = poller.poll(ENDPOINTS, "web", many).await;
    assert_eq!(answer.status, http::StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("too little memory"), "{answer:?}");
}

#[tokio::test]
async fn limits_that_count_at_once_end_nobody_and_hold_for_who_comes_then() {
    let plane = Plane::start(&[Variant::Delta]).await;
    let with = |limits: &str| text(&[plane.address], &format!("limits: {{{limits}}}\n"));
    let world = World::start("limits-at-once", &with("streams: 5000, memory: 64MiB")).await;
    let mut first = Client::connect(world.relay.address, Variant::Delta).await;
    ask(&first, &names("a", 1));
    let report = world.change(&with("streams: 4097, streams_per_connection: 1, memory: 60MiB")).await;
    assert_eq!(report.changed, ["limits.memory", "limits.streams", "limits.streams_per_connection"]);
    assert!(report.pending.is_empty());
    assert_eq!(world.metric("weir_memory_budget_bytes").await as usize, 60 << 20);
    let report = world.change(&with("streams: 1, streams_per_connection: 1")).await;
    assert_eq!(report.changed, ["limits.memory", "limits.streams"]);
    let refused = poll(&world).await;
    assert!(refused.contains("the limit for all clients is 1 (limits.streams)"), "{refused}");
    assert!(end_of(&mut first).await.is_none(), "it was there before");

    world.change(&with("streams: 4096, connections_per_address: 1")).await;
    let refused = poll(&world).await;
    assert!(
        refused.contains("the limit is 1 (limits.connections_per_address)"),
        "who was there before counts: {refused}"
    );
    world.change(&with("streams: 4096")).await;
    let mut second = Client::connect(world.relay.address, Variant::Delta).await;
    ask(&second, &names("a", 1));
    assert!(end_of(&mut second).await.is_none(), "there is no limit any more");
}

/// Polls on a new connection, and returns the text of the response.
async fn poll(world: &World) -> String {
    let mut poller = Poller::connect(world.relay.address).await;
    let answer = poller.poll(ENDPOINTS, "web", serde_json::json!({"resource_names": ["a"]})).await;
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[tokio::test]
async fn new_resources_without_room_are_rejected_by_name_and_requested_again_when_there_is_room() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let with = |memory: &str| text(&[plane.address], &format!("limits: {{memory: {memory}}}\n"));
    let (small, large) = (with("20MiB"), with("1GiB"));
    let world = World::start("resources-without-room", &small).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    let mut stream = plane.stream().await;
    let all: Vec<_> = (0..200).map(|number| format!("cluster-{number:03}")).collect();
    let body = "x".repeat(100 << 10);
    let set: Vec<_> = all.iter().map(|name| (name.as_str(), body.as_str())).collect();
    stream.request().await;
    say(&stream, "1", &set, &set, &[]);
    let reason = nack_of(&mut stream, "1").await.expect("not all have room");
    assert!(reason.contains("cluster-199: no room for its 102"), "{reason}");
    assert!(reason.contains(" of 20 MiB are in use (limits.memory)"), "{reason}");
    assert!(world.metric("weir_limit_reached_total{limit=\"limits.memory\"}").await > 0.0);

    say(&stream, "2", &[], &[("cluster-000", "changed")], &["cluster-001"]);
    assert_eq!(nack_of(&mut stream, "2").await, None, "what is there changes");
    let is_changed = |has: &[String]| has.iter().filter(|name| *name == "cluster-000").count() == 2;
    let mut has = sent_until(&mut client, is_changed).await;
    assert_eq!(has.pop().as_deref(), Some("cluster-000"));
    assert!((20..180).contains(&has.len()) && has == all[..has.len()], "{has:?}");

    world.change(&large).await;
    let mut again = plane.stream().await;
    let Request::Delta(request) = again.request().await else { panic!("delta") };
    let states = request.initial_resource_versions;
    assert!(states.contains_key("cluster-002") && !states.contains_key("cluster-199"), "{states:?}");
    let missing: Vec<_> = set[2..].iter().filter(|(name, _)| !states.contains_key(*name)).copied().collect();
    say(&again, "3", &[], &missing, &[]);
    assert_eq!(nack_of(&mut again, "3").await, None);
    has.extend(sent_until(&mut client, |has| has.len() == missing.len()).await);
    assert_eq!(has, all, "none was removed for want of room");
}

/// Returns the reason with which the relay NACKs a response; `None` if it ACKs.
async fn nack_of(stream: &mut Stream, nonce: &str) -> Option<String> {
    loop {
        let Request::Delta(request) = stream.request().await else { panic!("delta") };
        if request.response_nonce == nonce {
            return request.error_detail.map(|status| status.message);
        }
    }
}

/// Reads and ACKs responses until the names in them satisfy a condition. Returns the names.
async fn sent_until(client: &mut Client, are_all: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut has = Vec::new();
    while !are_all(&has) {
        let sent = client.sent().await;
        client.ack(CDS, &["*"], &sent);
        has.extend(sent.set.iter().cloned());
        assert!(sent.removed.iter().all(|name| name == "cluster-001"), "{:?}", sent.removed);
    }
    has
}

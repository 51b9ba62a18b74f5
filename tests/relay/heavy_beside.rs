//! Requests for thousands of names and their replies, beside what ends streams and views, or changes what they have. No test here knows when a thread
//! works on them, so some go over several moments.

use std::collections::BTreeSet;
use std::time::Instant;

use tokio::sync::oneshot;
use tonic::Status;
use weir_core::proto::node::Node;
use weir_testkit::folder::Folder;

use super::certificates::Authority;
use super::client::PATIENCE;
use super::memory::{charged, series};
use super::reload::{World, text};
use super::tenants::{self, RULES};
use super::*;

const MANY: usize = 3_000;
const SOON_AGAIN: &str = ", variant: delta, backoff: {initial: 10ms, max: 10ms}";
/// At how many moments of a request and its reply something else happens: at once, and at later ones.
const MOMENTS: u32 = 5;
/// Where connections of clients live.
const PLACES: [&str; 2] = ["", "shards: 1\n"];

fn many(prefix: &str) -> Vec<String> {
    (0..MANY).map(|number| format!("{prefix}-{number}")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Sends what a request names, unless it states this version of it. Returns the names.
fn give(stream: &Stream, request: Request, version: &str) -> Vec<String> {
    let Request::Delta(request) = request else { panic!("delta") };
    let (names, stated) = (request.resource_names_subscribe, request.initial_resource_versions);
    let is_news = |name: &&String| stated.get(*name).is_none_or(|has| has != version);
    let news: Vec<_> = names.iter().filter(is_news).cloned().collect();
    if !news.is_empty() {
        change(stream, &news, version);
    }
    names
}

/// Gives the relay each name that it requests, until these are so many.
async fn give_many(stream: &mut Stream, count: usize) {
    let mut given = BTreeSet::new();
    while given.len() < count {
        let request = stream.request().await;
        given.extend(give(stream, request, "1"));
    }
}

/// Gives the relay what it requests, for as long as it keeps the stream.
fn go_on_giving(mut stream: Stream, version: &'static str) {
    tokio::spawn(async move {
        while let Some(request) = stream.requests.recv().await {
            give(&stream, request, version);
        }
    });
}

/// Lets a control plane have every name.
fn have_all(mut plane: Plane) {
    tokio::spawn(async move {
        while let Some(stream) = plane.streams.recv().await {
            go_on_giving(stream, "1");
        }
    });
}

/// Sends a version of all of these names.
fn change(stream: &Stream, names: &[String], version: &str) {
    let news: Vec<_> = names.iter().map(|name| (name.as_str(), version)).collect();
    say(stream, version, &[], &news, &[]);
}

/// Adds names that a client was sent. None comes twice, and none is removed.
fn add(names: &mut BTreeSet<String>, told: client::Told) {
    assert!(told.removed.is_empty(), "{:?}", told.removed);
    for name in told.set {
        assert!(names.insert(name.clone()), "{name} comes twice");
    }
}

/// Reads and ACKs what a client is sent, until it has so many names.
async fn receive(client: &mut Client, count: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    while names.len() < count {
        let told = client.sent().await;
        client.ack(CDS, &[], &told);
        add(&mut names, told);
    }
    names
}

/// Waits until one of the moments of what takes so long.
async fn moment(number: u32, takes: Duration) {
    tokio::time::sleep(takes * number / MOMENTS).await;
}

/// Reads until a client is sent this name. Returns the status if its stream ends.
async fn receive_one(client: &mut Client, name: &str) -> Result<(), Status> {
    loop {
        let next = tokio::time::timeout(PATIENCE, client.next_forever()).await.expect("nothing comes");
        let told = next?.expect("it ends without a status");
        if told.set.iter().any(|sent| sent == name) {
            return Ok(());
        }
    }
}

/// Reads until the stream ends. Returns its status.
async fn end_of(client: &mut Client) -> Status {
    let mut names = BTreeSet::new();
    loop {
        match tokio::time::timeout(PATIENCE, client.next_forever()).await.expect("it does not end") {
            Ok(told) => add(&mut names, told.expect("it ends without a status")),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names at ten moments"]
async fn night_whenever_a_drain_begins_after_a_long_request_the_stream_ends_and_its_client_is_sent_nothing_twice() {
    let _turn = super::HEAVY.lock().await;
    for (place, number) in PLACES.into_iter().flat_map(|place| (0..MOMENTS).map(move |number| (place, number))) {
        let mut plane = Plane::start(&BOTH).await;
        let rest = format!("views: {{key: [cluster]}}\ndrain: {{spread: 0s}}\n{place}");
        let config = config(plane.address, SOON_AGAIN, &rest);
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let (mut client, names) = (Client::connect(relay.address, Variant::Delta).await, many("c"));
        let start = Instant::now();
        client.ask(CDS, &texts(&names), Some("web"));
        let mut stream = plane.stream().await;
        give_many(&mut stream, MANY).await;
        let received = receive(&mut client, MANY).await;
        let takes = start.elapsed();
        assert!(names.iter().all(|name| received.contains(name)));
        change(&stream, &names, "2");
        client.ask(CDS, &texts(&many("more")), None);
        moment(number, takes).await;
        stop.send(()).unwrap();
        let status = end_of(&mut client).await;
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        drop(client);
        until("the relay has ended", async || relay.task.is_finished()).await;
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names at five moments"]
async fn night_whenever_a_reload_ends_a_view_after_a_long_request_the_client_gets_all_from_the_next_one() {
    let _turn = super::HEAVY.lock().await;
    let plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let with = |more: &str| text(&[address], &format!("reload: {{spread: 0s}}\nshards: 1\n{more}"));
    have_all(plane);
    let world = World::start("heavy-beside", &with("")).await;
    for number in 0..MOMENTS {
        let after = with(&format!("limits: {{names_per_stream: {}}}\n", 100_001 + number));
        let mut client = Client::connect(world.relay.address, Variant::Delta).await;
        let (first, second) = (many(&format!("a{number}")), many(&format!("b{number}")));
        let start = Instant::now();
        client.ask(CDS, &texts(&first), Some("web"));
        receive(&mut client, MANY).await;
        let takes = start.elapsed();
        client.ask(CDS, &texts(&second), None);
        moment(number, takes).await;
        assert_eq!(world.change(&after).await.changed, ["limits.names_per_stream"]);
        let status = end_of(&mut client).await;
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert_eq!(status.message(), "the configuration of the relay has changed; reconnect");
        let all: BTreeSet<String> = first.into_iter().chain(second).collect();
        let mut back = Client::connect(world.relay.address, Variant::Delta).await;
        back.ask(CDS, &all.iter().map(String::as_str).collect::<Vec<_>>(), Some("web"));
        assert_eq!(receive(&mut back, all.len()).await, all);
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names"]
async fn night_a_long_request_for_more_than_its_tenant_may_have_ends_its_own_stream_and_gives_the_names_back() {
    let _turn = super::HEAVY.lock().await;
    let rules = format!("{RULES}limits: {{names_per_tenant: 5000, resource_timer: 200ms}}\n");
    let (folder, own, prod) = (Folder::with_short_path("tls"), Authority::named("own"), Authority::named("prod"));
    let world = tenants::World::start_beside(folder, own, prod, "files: resources.yaml", &rules).await.0;
    let (pay, bill) = (world.workload("pay"), world.workload("bill"));
    let asks = async |prefix: &str, count: usize| {
        let client = world.client(Some(&pay), Variant::Delta).await;
        let mut names = many(prefix);
        names.truncate(count);
        names.push("pay-a".to_owned());
        client.ask(CDS, &texts(&names), Some("pay-web"));
        client
    };
    let mut one = asks("pay-x", MANY).await;
    receive_one(&mut one, "pay-a").await.unwrap();
    let mut two = asks("pay-y", MANY).await;
    let status = receive_one(&mut two, "none").await.expect_err("there is no such name");
    let text = "too many names of one tenant: the limit is 5000 (limits.names_per_tenant)";
    assert!(status.code() == Code::ResourceExhausted && status.message().contains(text), "{status}");
    until("there is room for half as many", async || {
        let mut half = asks("pay-z", MANY / 2).await;
        receive_one(&mut half, "pay-a").await.is_ok()
    })
    .await;
    one.ask(CDS, &["pay-a"], None);
    receive_one(&mut one, "pay-a").await.expect("it goes on");
    let mut other = world.client(Some(&bill), Variant::Delta).await;
    other.ask(CDS, &["bill-a"], Some("bill-web"));
    receive_one(&mut other, "bill-a").await.expect("another tenant has its own names");
}

/// Sends a resource that lives for a minute from now on, or a heartbeat of it.
fn prolong(stream: &Stream, name: &str, has_body: bool) {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let resource = has_body.then(|| cluster(name, "1"));
    let resources = vec![Resource { name: name.into(), version: "1".into(), resource, ttl, ..Default::default() }];
    let (type_url, nonce) = (CDS.into(), "ttl".into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { resources, type_url, nonce, ..Default::default() }));
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names"]
async fn night_a_client_is_sent_heartbeats_beside_long_replies() {
    let _turn = super::HEAVY.lock().await;
    for place in PLACES {
        let mut plane = Plane::start(&BOTH).await;
        let config = config(plane.address, SOON_AGAIN, &format!("views: {{key: [cluster]}}\n{place}"));
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let client_features = vec!["envoy.config.supports-resource-ttl".to_owned()];
        let node = Node { id: "test".into(), cluster: "web".into(), client_features, ..Node::default() };
        let (mut client, names) = (Client::connect(relay.address, Variant::Delta).await, many("c"));
        client.ask_as(&node, CDS, &texts(&names));
        let mut stream = plane.stream().await;
        give_many(&mut stream, MANY).await;
        receive(&mut client, MANY).await;
        client.ask(CDS, &["mortal"], None);
        loop {
            let Request::Delta(request) = stream.request().await else { panic!("delta") };
            if request.resource_names_subscribe == ["mortal"] {
                break;
            }
        }
        prolong(&stream, "mortal", true);
        receive(&mut client, 1).await;
        let Client::Delta(requests, responses) = &mut client else { panic!("delta") };
        for version in ["2", "3", "4"] {
            change(&stream, &names, version);
            prolong(&stream, "mortal", false);
            let (mut changed, mut beats) = (BTreeSet::new(), 0);
            while changed.len() < MANY || beats == 0 {
                let next = tokio::time::timeout(PATIENCE, responses.message()).await;
                let response = next.expect("nothing comes").unwrap().expect("the stream has ended");
                assert!(response.removed_resources.is_empty(), "{:?}", response.removed_resources);
                let (type_url, response_nonce) = (CDS.to_owned(), response.nonce);
                requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).unwrap();
                for sent in response.resources {
                    if sent.name == "mortal" {
                        assert!(sent.resource.is_none() && sent.ttl.is_some(), "{sent:?}");
                        beats += 1;
                    } else {
                        assert!(changed.insert(sent.name.clone()), "{} comes twice", sent.name);
                    }
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names of many clients"]
async fn night_clients_that_leave_while_their_long_requests_and_replies_are_worked_on_are_charged_nothing_in_the_end() {
    let _turn = super::HEAVY.lock().await;
    let plane = Plane::start(&BOTH).await;
    let address = plane.address;
    have_all(plane);
    for place in PLACES {
        let rest = format!("views: {{key: [cluster]}}\nlimits: {{linger: 0s, memory: 4GiB}}\n{place}");
        let relay = run(crate::bind(config(address, SOON_AGAIN, &rest)).await.unwrap(), std::future::pending());
        // The view stays charged for whom it was made.
        let mut first = Client::connect(relay.address, Variant::Delta).await;
        first.ask(CDS, &["first"], Some("web"));
        receive(&mut first, 1).await;
        drop(first);
        until("it has left", async || series(&relay, "weir_client_connections").await == 0).await;
        let before = series(&relay, "weir_memory_charged_bytes{to=\"clients\"}").await;
        let names = many("c");
        for round in 0..10 {
            let mut client = Client::connect(relay.address, Variant::Delta).await;
            client.ask(CDS, &texts(&names), Some("web"));
            match round % 2 {
                0 => drop(client.sent().await),
                _ => charged(&relay, |bytes| bytes > before).await,
            }
        }
        charged(&relay, |bytes| bytes <= before).await;
        let mut stays = Client::connect(relay.address, Variant::Delta).await;
        stays.ask(CDS, &texts(&names), Some("web"));
        receive(&mut stays, MANY).await;
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: thousands of names"]
async fn night_a_server_that_disconnects_during_long_requests_and_replies_makes_nothing_be_lost_or_sent_twice() {
    let _turn = super::HEAVY.lock().await;
    for place in PLACES {
        let mut plane = Plane::start(&BOTH).await;
        let config = config(plane.address, SOON_AGAIN, &format!("views: {{key: [cluster]}}\n{place}"));
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let (mut client, names) = (Client::connect(relay.address, Variant::Delta).await, many("c"));
        client.ask(CDS, &texts(&names), Some("web"));
        let mut stream = plane.stream().await;
        stream.request().await;
        drop(stream);
        let mut stream = plane.stream().await;
        give_many(&mut stream, MANY).await;
        receive(&mut client, MANY).await;
        change(&stream, &names, "2");
        plane.cut();
        go_on_giving(plane.stream().await, "2"); // the relay may have received the change, or not
        receive(&mut client, MANY).await;
    }
}

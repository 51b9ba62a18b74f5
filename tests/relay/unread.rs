//! Streams whose clients read nothing of a reply: they stay when their sessions have left, and keep no view.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc::UnboundedSender;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

use super::driver::{Connection, clients, everything, everything_of, everything_stating};
use super::memory::charged;
use super::reload::{World, text};
use super::*;

/// Whether the reply to the only client waits until the client reads.
fn is_unread(report: &serde_json::Value) -> bool {
    report[0]["unread_seconds"].is_number()
}

/// Waits until no view has a client, so that each may make room for another.
async fn are_unused(relay: &Relay) {
    until("no view has a client", async || {
        let views: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
        views.as_array().unwrap().iter().all(|view| view["clients"] == 0)
    })
    .await;
}

/// What such clients have wanted lingers, so only the end of their views ends the streams to the server.
#[tokio::test]
async fn i10_views_that_make_room_end_though_their_clients_half_close_and_read_nothing() {
    let server = Server::start(Way::GivesOnly(&TWO)).await;
    let rest = "views: {key: [cluster]}\nlimits: {linger: 1h, views_per_connection: 2}\n";
    let config = config(server.address, ", variant: delta", rest);
    let relay = run(bind(config).await.unwrap(), std::future::pending());
    let mut connection = Connection::with_window(&relay, Some(0)).await;
    let mut unread = Vec::new();
    for number in 1..=4 {
        let (requests, response) = connection.stream();
        requests.send(everything_of(&format!("made-up-{number}"))).unwrap();
        clients(&relay, "a reply is made", is_unread).await;
        drop(requests);
        clients(&relay, "the half-close is seen", |report| report.as_array().unwrap().is_empty()).await;
        are_unused(&relay).await;
        server.sees("no more streams than there may be views", |seen| seen.open <= 2).await;
        unread.push(response.await.unwrap());
    }
}

#[tokio::test]
async fn the_views_of_a_replaced_configuration_end_though_a_client_reads_nothing_of_its_last_reply() {
    let server = Server::start(Way::GivesOnly(&TWO)).await;
    let with =
        |limits: &str| text(&[server.address], &format!("reload: {{spread: 0s}}\nlimits: {{linger: 1h{limits}}}\n"));
    let world = World::start("unread", &with("")).await;
    let mut connection = Connection::with_window(&world.relay, Some(0)).await;
    let (requests, response) = connection.stream();
    requests.send(everything()).unwrap();
    clients(&world.relay, "a reply is made", is_unread).await;
    assert_eq!(world.change(&with(", names_per_stream: 100")).await.changed, ["limits.names_per_stream"]);
    server.sees("the stream of the earlier view has ended", |seen| seen.open == 0).await;
    drop((requests, response));
}

/// The streams of a client that states what no server has, and the bytes of the names that each of them states.
const STREAMS: usize = 8;
const STATED: usize = 128 * 16_000;
/// Has room for the first reply, which has the clusters.
const WINDOW: u32 = 1024;

/// Opens streams that each state names of their own, and reads the beginning of the reply that removes them.
async fn unread_removals(connection: &mut Connection) -> Vec<(UnboundedSender<Bytes>, Incoming)> {
    let mut unread = Vec::new();
    for stream in 0..STREAMS {
        let (requests, response) = connection.stream();
        let names = (0..128).map(|number| format!("{stream}-{number}-{}", "x".repeat(16_000)));
        requests.send(everything_stating(names)).unwrap();
        let mut response = response.await.unwrap().into_body();
        let mut read = 0;
        while read < WINDOW as usize {
            let frame = tokio::time::timeout(client::PATIENCE, response.frame()).await.expect("no removals come");
            read += frame.unwrap().unwrap().into_data().unwrap().len();
        }
        unread.push((requests, response));
    }
    unread
}

/// Neither the session nor the view has these names any more.
#[tokio::test]
async fn i8_removals_that_a_half_closed_client_does_not_read_are_charged_to_it_and_give_way() {
    let _turn = super::HEAVY.lock().await;
    let server = Server::start(Way::GivesOnly(&TWO)).await;
    let with = |memory: &str| {
        text(&[server.address], &format!("limits: {{memory: {memory}}}\n")).replace("variant: delta", "variant: sotw")
    };
    let world = World::start("unread-removals", &with("1GiB")).await;
    let mut reader = Client::connect(world.relay.address, Variant::Delta).await;
    reader.ask(CDS, &[], Some("web"));
    assert_eq!(reader.sent().await.set, ["a", "b"]);
    report_with(&world.relay, "/upstreams", "\"completeness\": \"complete\"").await;
    let mut connection = Connection::with_window(&world.relay, Some(WINDOW)).await;
    let (requests, unread): (Vec<_>, Vec<_>) = unread_removals(&mut connection).await.into_iter().unzip();
    drop(requests);
    clients(&world.relay, "the half-closes are seen", |report| report.as_array().unwrap().len() == 1).await;
    charged(&world.relay, |bytes| bytes >= STREAMS * STATED).await;
    assert_eq!(world.change(&with("24MiB")).await.changed, ["limits.memory"]);
    charged(&world.relay, |bytes| bytes < (STREAMS - 1) * STATED).await;
    drop(unread);
    charged(&world.relay, |bytes| bytes < STATED).await;
}

/// The contents differ, so that each configuration sends a body of its own.
#[tokio::test]
async fn i10_what_unread_replies_of_all_configurations_keep_has_one_limit() {
    let large = |content: &str| BTreeMap::from([("large".to_owned(), content.repeat(700 << 10))]);
    let has = |content: &str| Way::Has(BTreeMap::from([(CDS, large(content))]));
    let server = Server::start(has("x")).await;
    let with = |names: usize| {
        let limits = format!("{{linger: 1h, outdated_reply_bytes: 1MiB, names_per_stream: {names}}}");
        text(&[server.address], &format!("reload: {{spread: 0s}}\nlimits: {limits}\n"))
    };
    let world = World::start("unread-of-all", &with(100)).await;
    let mut connection = Connection::with_window(&world.relay, Some(0)).await;
    let first = connection.stream();
    first.0.send(everything()).unwrap();
    clients(&world.relay, "a reply is made", is_unread).await;
    world.change(&with(101)).await;
    clients(&world.relay, "its session has left", |report| report.as_array().unwrap().is_empty()).await;
    server.sees("the stream of the earlier view has ended", |seen| seen.open == 0).await;
    server.turn(has("y"));
    let second = connection.stream();
    second.0.send(everything_of("other")).unwrap();
    clients(&world.relay, "another reply is made", is_unread).await;
    server.turn(has("z"));
    let key = "limits.outdated_reply_bytes";
    until("one of the two is given up", async || reached(&world.relay, key).await == 1).await;
    drop((first, second));
}

//! Streams whose clients read nothing of a reply: they stay when their sessions have left, and keep no view.

use weir_testkit::script::Way;
use weir_testkit::server::Server;

use super::driver::{Connection, clients, everything, everything_of};
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

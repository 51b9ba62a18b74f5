//! Headers that the configuration has for a server: they are sent with each stream and poll, renewed from their file, and never quoted.

use super::reload::World;
use super::rest_plane::RestPlane;
use super::rest_source::cluster as polled;
use super::*;
use weir_testkit::folder::Folder;

const PERMISSION_DENIED: u8 = 7;

fn text(server: &str, headers: &str) -> String {
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0', socket: admin.sock}}\nviews: {{key: [cluster]}}\n\
         upstream: {{servers: [{{{server}, headers: {headers}}}], backoff: {{initial: 10ms, max: 10ms}}}}\n\
         brakes: {{enabled: false}}\ndrain: {{grace: 0s, spread: 0s}}\nreload: {{spread: 0s}}\n"
    )
}

fn delta(address: SocketAddr) -> String {
    format!("uri: 'http://{address}', variant: delta")
}

#[tokio::test]
async fn a_renewed_file_counts_from_the_next_stream_on_and_nothing_quotes_a_value() {
    let mut plane = Plane::start(&BOTH).await;
    let folder = Folder::with_short_path("server-headers");
    std::fs::write(folder.0.join("token"), "first-token\n").unwrap();
    let headers = "{x-token: {file: token}, x-place: {value: given-place}}";
    let world = World::start_in(folder, &text(&delta(plane.address), headers)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(
        (&stream.headers["x-token"], &stream.headers["x-place"]),
        (&"first-token".parse().unwrap(), &"given-place".parse().unwrap())
    );
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    assert_eq!(client.sent().await.set, ["a"]);
    // The server quotes the token that it was sent, while the file already has a newer one.
    std::fs::write(world.folder.0.join("token"), "second-token\n").unwrap();
    stream.end_quoting(PERMISSION_DENIED, "first-token is revoked");
    let again = plane.stream().await;
    assert_eq!(again.headers["x-token"], "second-token");
    until("the end is shown", async || get(world.relay.admin, "/upstreams").await.contains("is revoked")).await;
    let mut pages = String::new();
    for page in ["/upstreams", "/clients", "/config", "/metrics", "/waits"] {
        pages.push_str(&get(world.relay.admin, page).await);
    }
    for value in ["first-token", "second-token", "given-place"] {
        assert!(!pages.contains(value), "{value} in {pages}");
    }
    assert!(pages.contains("[redacted] is revoked") && pages.contains("\"value\": \"[redacted]\""), "{pages}");
}

#[tokio::test]
async fn a_reload_shows_another_value_on_the_streams_that_follow() {
    let mut plane = Plane::start(&BOTH).await;
    let server = delta(plane.address);
    let world = World::start("server-headers-reload", &text(&server, "{x-token: {value: one}}")).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(stream.headers["x-token"], "one");
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    assert_eq!(client.sent().await.set, ["a"]);
    let report = world.change(&text(&server, "{x-token: {value: two}}")).await;
    assert_eq!(report.changed, ["upstream.servers"]);
    client.end().await;
    let back = Client::connect(world.relay.address, Variant::Delta).await;
    back.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(stream.headers["x-token"], "two");
}

#[tokio::test]
async fn polls_show_it_too_and_an_answer_that_quotes_it_is_shown_without() {
    let plane = RestPlane::start().await;
    plane.script.has(crate::poller::CLUSTERS, "1", vec![polled("a", "1")]);
    let server = format!("rest: 'http://{}', refresh_delay: 40ms", plane.address);
    let world = World::start("server-headers-rest", &text(&server, "{x-token: {value: polled-token}}")).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    assert!(plane.script.polls().iter().all(|poll| poll.headers["x-token"] == "polled-token"));
}

#[tokio::test]
async fn a_relay_shows_its_own_header_and_passes_on_none_of_another_relay() {
    let mut plane = Plane::start(&BOTH).await;
    let upper =
        World::start("server-headers-upper", &text(&delta(plane.address), "{x-upper: {value: of-upper}}")).await;
    let lower = text(&delta(upper.relay.address), "{x-lower: {value: of-lower}}");
    let lower = World::start("server-headers-lower", &lower).await;
    let client = Client::connect(lower.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(stream.headers["x-upper"], "of-upper");
    assert!(!stream.headers.contains_key("x-lower"));
}

//! What the servers have sent for a name, and whether they are reachable.

use super::*;
use crate::reload::{self, World};
use weir_testkit::folder::Folder;

#[tokio::test]
async fn a_name_that_was_requested_is_waited_for_until_its_server_speaks_or_is_silent() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let timer = |options: &mut ProtocolOptions| options.upstream.resource_timer = Duration::from_secs(5);
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", timer).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["here", "gone", "silent"], Some("web"));
    let stream = plane.stream().await;
    let of = cluster_of(&relay);
    let waits = ["subscribed_by_name", "server_unheard", "requested", "unknown", "not_sent"];
    let page = of("gone").is("unknown", &waits).await;
    situation(&page, "Asked for, and the server is silent", "unknown", "was asked for the name, and has not answered");
    say(&stream, "1", &[], &[("here", "1")], &["gone"]);
    of("here").is("unacked", &["subscribed_by_name", ACTIVE, "present", "sent", "unacked"]).await;
    let told = ["subscribed_by_name", ACTIVE, "server_reports_absent", "absent", "removal_sent", "unacked"];
    let page = of("gone").is("absent", &told).await;
    assert!(text(&page, "absent").contains("its server says so"), "{page:#}");
    let silent = ["subscribed_by_name", ACTIVE, "server_silent", "absent", "removal_sent", "unacked"];
    let page = of("silent").is("absent", &silent).await;
    assert!(text(&page, "absent").contains("was silent about it"), "{page:#}");
}

#[tokio::test]
async fn a_server_that_is_away_is_said_to_be_and_the_cache_is_served() {
    let (relay, plane, stream, client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    drop((plane.kill().await, stream));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, "servers_down", "present", "sent", "acked"]).await;
    situation(&page, "The server is away, and it is cached", "acked", "no server is reachable");
    advised(&page, "servers_down", "no server is reachable");
    let last_error = async || {
        let report: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
        report[0]["streams"][0]["last_error"].as_str().unwrap_or_default().to_owned()
    };
    until("the reason is the last error of the server", async || {
        let (page, error) = (of("a").page().await, last_error().await);
        !error.is_empty() && text(&page, "servers_down").contains(&format!("({error})"))
    })
    .await;
    client.ask(EDS, &["e"], None);
    let endpoints = Asked { kind: "endpoints", ..of("e") };
    let page = endpoints.is("unknown", &["subscribed_by_name", "servers_down", "unknown", "not_sent"]).await;
    situation(&page, "The server is away, and it is not cached", "unknown", "nothing is known of the name yet");
}

#[tokio::test]
async fn a_fallback_server_is_named_with_the_reason() {
    let nowhere = any_address().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_with_options(&servers(&[nowhere, plane.address], ", variant: delta"), "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    let page = cluster_of(&relay)("a").is("unacked", &[STAR, "fallback_active", "present", "sent", "unacked"]).await;
    assert!(text(&page, "fallback_active").contains("Connection refused"), "{page:#}");
    situation(&page, "It comes from a fallback server", "unacked", "a fallback server is active");
    advised(&page, "fallback_active", "a fallback server is active");
}

#[tokio::test]
async fn a_server_that_is_unreachable_while_all_is_cached_is_said_to_be() {
    let (mut plane, other) = (Plane::start(&[Variant::Delta]).await, Plane::start(&[Variant::Delta]).await);
    let upstream = servers(&[plane.address, other.address], ", variant: delta");
    let relay = relay_with_options(&upstream, "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    drop((plane.kill().await, stream));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, "server_unreachable", "present", "sent", "acked"]).await;
    advised(&page, "server_unreachable", "the server is unreachable");
}

#[tokio::test]
async fn what_comes_from_disk_is_said_to() {
    let folder = Folder::with_short_path("explain-disk");
    let state = format!("state: {{path: {}}}\ndrain: {{grace: 0s, spread: 0s}}\n", folder.0.join("state").display());
    let (relay, plane, _stream, client, sent) = two_clusters(&state).await;
    client.ack(CDS, &[], &sent);
    crate::warm_start::is_saved(&relay).await;
    let address = plane.kill().await;
    drop(relay);
    let config = || config(address, ", variant: delta", &format!("views: {{key: [cluster]}}\n{state}"));
    let relay = loop {
        // The state file can be opened once the first relay has ended.
        let relay = run(crate::bind(config()).await.unwrap(), std::future::pending());
        if get(relay.admin, "/ready").await.contains("from disk") {
            break relay;
        }
        drop(relay);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.sent().await;
    let asked = cluster_of(&relay);
    until("it is from disk", async || codes_of(&asked("a").page().await).contains(&"from_disk")).await;
    let page = asked("a").page().await;
    situation(
        &page,
        "It comes from disk, unconfirmed",
        "unacked",
        "loaded from disk or kept over a reload, and not confirmed",
    );
}

/// The servers of the two configurations have different places in their plans.
#[tokio::test]
async fn during_a_reload_a_resource_is_said_to_be_from_the_server_that_sent_it() {
    let (mut earlier, mut newer) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
    let text_of = |servers: &[SocketAddr]| reload::text(servers, "reload: {spread: 1h}\n");
    let world = World::start("sent-by", &text_of(&[earlier.address])).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = earlier.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    let report = world.change(&text_of(&[newer.address, earlier.address])).await;
    assert_eq!(report.changed, ["upstream.servers"]);
    let page = cluster_of(&world.relay)("a").shows("unacked", "present").await;
    let sent_by = format!("from http://{}", earlier.address);
    assert!(text(&page, "present").ends_with(&sent_by), "expected {sent_by}: {page:#}");

    let next = Client::connect(world.relay.address, Variant::Delta).await;
    next.ask(CDS, &[], Some("web"));
    let stream_of_next = newer.stream().await;
    let news = [("a", "2"), ("b", "1")];
    say(&stream_of_next, "2", &news, &news, &[]);
    let sent_by = format!("\"server\": \"http://{}\"", newer.address);
    let page = report_with(&world.relay, "/resources?type=clusters&name=a", &sent_by).await;
    let page: Value = serde_json::from_str(&page).unwrap();
    let rows = page["resources"].as_array().unwrap().len();
    assert_eq!((rows, page["total"].as_u64()), (1, Some(1)), "{page:#}");
}

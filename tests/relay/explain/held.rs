//! Resources that a view keeps although its server has removed or changed them.

use super::*;

#[tokio::test]
async fn what_the_order_of_changes_keeps_back_is_said_with_what_it_waits_for() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("limits: {reference_hold: 1h}\n").await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    until("listeners are asked for", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    say_listener(&stream, "2", "a", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    let of = cluster_of(&relay);

    say(&stream, "3", &[], &[], &["a"]);
    let deferred = [STAR, ACTIVE, "removal_deferred", "present", "referred_by", "sent", "acked"];
    let page = of("a").is("held", &deferred).await;
    situation(&page, "Order keeps it", "held", "it stays while something refers to it, or did until recently");
    assert_eq!(text(&page, "referred_by"), "Listener l refers to it");
    assert_eq!((&page["referred_by"][0], &page["referred_by_count"]), (&format!("{} l", &LDS[20..]).into(), &1.into()));
    let until = reason(&page, "removal_deferred")["until_seconds"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&until), "{page:#}");
    advised(&page, "removal_deferred", "it stays while something refers to it");
}

#[tokio::test]
async fn a_change_of_routing_waits_for_clusters_that_are_named() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    until("listeners are asked for", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    say_listener(&stream, "2", "a", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    // The set of clusters has to be settled: before that, nothing is known to be missing from it.
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    let listeners = Asked { kind: "listeners", ..cluster_of(&relay)("l") };
    listeners.shows("acked", "acked").await;
    // A change waits for a second. If its page is not there by then, the next one waits for another cluster.
    for version in 3.. {
        assert!(version < 20, "no change waits");
        let (version, cluster) = (version.to_string(), format!("missing-{version}"));
        let said = tokio::time::Instant::now();
        say_listener(&stream, &version, &cluster, &version);
        tokio::select! {
            page = listeners.shows("held", "change_deferred") => {
                let codes = codes_of(&page).into_iter().filter(|code| !code.starts_with("refers_to_"));
                assert!(codes.eq([STAR, ACTIVE, "change_deferred", "present", "sent", "acked"]), "{page:#}");
                let waits = format!("missing clusters: {cluster}");
                assert!(text(&page, "change_deferred").ends_with(&waits), "{page:#}");
                advised(&page, "change_deferred", "which waits for missing clusters");
                break;
            }
            sent = client.sent() => {
                assert!(said.elapsed() > Duration::from_millis(900), "it has not waited: {:?}", said.elapsed());
                client.ack(LDS, &[], &sent);
                listeners.shows("acked", "acked").await;
            }
        }
    }
}

#[tokio::test]
async fn what_is_held_after_an_outage_is_said() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let rest = "views: {key: [cluster]}\nbrakes: {after_outage: 1h}\n";
    let more = ", variant: delta, backoff: {initial: 10ms, max: 10ms}";
    let relay = run(bind_with_brakes(config(plane.address, more, rest)).await.unwrap(), std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = [("a", "1"), ("b", "1")];
    say(&stream, "1", &all, &all, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    let mut plane = Plane::start_at(plane.kill().await, &[Variant::Delta]).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "2", &[], &[], &["a"]);
    let of = cluster_of(&relay);
    let page = of("a").is("held", &[STAR, ACTIVE, "after_outage", "present", "sent", "acked"]).await;
    assert!(reason(&page, "after_outage")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "after_outage", "that is not believed at once");
}

#[tokio::test]
async fn what_a_brake_holds_is_said() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let rest = "views: {key: [cluster]}\nbrakes: {share: 30, count: 2, window: 10m, grace: 1h, empty_grace: 1h}\n";
    let app = bind_with_brakes(config(plane.address, ", variant: delta", rest)).await.unwrap();
    let relay = run(app, std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
    say(&stream, "1", &all, &all, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    say(&stream, "2", &[], &[], &["a", "b", "c"]);
    let of = cluster_of(&relay);
    let page = of("a").is("held", &[STAR, ACTIVE, "braked", "present", "sent", "acked"]).await;
    situation(&page, "A brake holds it", "held", "a brake holds that (/brakes)");
    assert!(reason(&page, "braked")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "braked", "a brake holds that");
    of("d").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
}

#[tokio::test]
async fn a_version_that_cannot_be_used_is_said_with_the_reason() {
    let (relay, _plane, stream, client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let flaw = Resource { name: "a".into(), version: "9".into(), ..Default::default() };
    let (type_url, nonce) = (CDS.into(), "2".into());
    let resources = vec![flaw];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, ACTIVE, "resource_rejected", "present", "sent", "acked"]).await;
    assert!(text(&page, "resource_rejected").contains("no body"), "{page:#}");
    advised(&page, "resource_rejected", "has sent a version that cannot be used");
}

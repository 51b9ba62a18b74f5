//! Which resources a client rejects: in delta those in the reply, in SotW only those that the reason quotes.

use super::super::status::weir;
use super::*;

const REASON: &str = "Error adding/updating cluster(s):\n  it is bad";

/// Returns the counts in `/nacks` for the first version of clusters.
async fn nacked(relay: &Relay) -> Value {
    let page =
        async || -> Value { serde_json::from_str(&get(relay.admin, "/nacks?type=clusters&nacked").await).unwrap() };
    until("the NACK is shown", async || page().await["total"] == 1).await;
    page().await["types"][0]["versions"][0].take()
}

fn named(names: &[&str]) -> Value {
    names.iter().map(|name| serde_json::json!({"name": name, "clients": 1})).collect()
}

#[tokio::test]
async fn a_delta_reply_of_one_resource_that_is_rejected_is_about_that_one_and_what_was_accepted_is_acked() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let of = cluster_of(&relay);
    say(&stream, "2", &[], &[("b", "2")], &[]);
    let sent = client.sent().await;
    client.refuse_for(CDS, &[], &sent, REASON);
    let page = of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await;
    situation(
        &page,
        "A delta reply of one is rejected",
        "nacked",
        "the client rejected a reply that had this resource alone",
    );
    let page = of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked", "others_nacked"]).await;
    situation(
        &page,
        "Another reply is rejected",
        "acked",
        "the client rejected a reply that did not have this resource",
    );
    let version = nacked(&relay).await;
    assert_eq!((&version["suspected"], &version["in_reply"]), (&named(&["b"]), &named(&[])));
    let diff: Value = serde_json::from_str(&get(relay.admin, "/diff?client=test").await).unwrap();
    assert_eq!(diff[0]["types"][0]["suspected"], serde_json::json!(["b"]));

    let admin = relay.admin.to_string();
    let (code, out, _) = weir(&["nacks", "--admin", &admin]).await;
    assert!(code == 1 && out.contains("  suspected  b (1)\n") && !out.contains("in reply"), "{out}");
    assert!(out.contains("  reason     Error adding/updating cluster(s): it is bad\n"), "{out}");
    let explain = ["explain", "--admin", &admin, "--client", "test", "clusters"];
    let (code, out, _) = weir(&[&explain[..], &["b"]].concat()).await;
    assert!(
        code == 1 && out.contains("had this resource alone: Error adding/updating cluster(s): it is bad (for"),
        "{out}"
    );
    let (code, out, _) = weir(&[&explain[..], &["a"]].concat()).await;
    assert!(code == 0 && out.contains(": acked\n") && !out.contains("\\n"), "{code} {out}");

    say(&stream, "3", &[], &[("a", "2")], &[]);
    let sent = client.sent().await;
    of("a").is("unacked", &[STAR, ACTIVE, "present", "sent", "unacked", "others_nacked"]).await;
    client.ack(CDS, &[], &sent);
    of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked", "others_nacked"]).await;
    of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await; // the NACKed reply did not have this name
    say(&stream, "4", &[], &[("b", "3")], &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    of("b").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
}

#[tokio::test]
async fn of_a_reply_of_several_the_quoted_ones_are_suspected_and_the_others_are_in_it() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let of = cluster_of(&relay);
    say(&stream, "2", &[], &[("b", "2"), ("c", "1")], &[]);
    let sent = client.sent().await;
    client.refuse_for(CDS, &[], &sent, "Error adding/updating cluster(s) c: no hosts");
    of("c").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await;
    let page = of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "type_nacked"]).await;
    let sentence = "the client rejected a reply that had this resource too, and named another";
    situation(&page, "Another of the same reply is rejected", "nacked", sentence);
    of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked", "others_nacked"]).await;
    let version = nacked(&relay).await;
    assert_eq!((&version["suspected"], &version["in_reply"]), (&named(&["c"]), &named(&["b"])));
    let (_, out, _) = weir(&["nacks", "--admin", &relay.admin.to_string()]).await;
    assert!(out.contains("  suspected  c (1)\n  in reply   b (1)\n"), "{out}");
}

#[tokio::test]
async fn a_sotw_reply_has_the_whole_set_and_its_reason_says_what_is_bad() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    client.refuse_for(CDS, &[], &sent, "Error adding/updating cluster(s) a: no hosts");
    let of = cluster_of(&relay);
    let page = of("a").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await;
    situation(
        &page,
        "A SotW reply is rejected, and the reason quotes it",
        "nacked",
        "the client rejected a reply and named this resource",
    );
    let page = of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "type_nacked"]).await;
    assert!(
        text(&page, "type_nacked").starts_with("the client rejected a reply of the type, and it is not known "),
        "{page:#}"
    );
    assert_eq!(nacked(&relay).await["in_reply"], named(&[]), "it would be the whole set");
}

#[tokio::test]
async fn of_a_large_reply_sixteen_names_are_known_and_what_cannot_be_among_the_others_was_accepted() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let names: Vec<_> = (0..40).map(|number| format!("c{number:02}")).collect();
    let news: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    say(&stream, "2", &[], &news, &[]);
    let sent = client.sent().await;
    assert_eq!(sent.set.len(), 40);
    client.refuse_for(CDS, &[], &sent, "no");
    let version = nacked(&relay).await;
    assert_eq!((&version["suspected"], version["in_reply"].as_array().unwrap().len()), (&named(&[]), 16));
    let of = cluster_of(&relay);
    let page = of("c39").is("nacked", &[STAR, ACTIVE, "present", "sent", "type_nacked"]).await;
    assert!(text(&page, "type_nacked").starts_with("the client rejected a reply "), "{page:#}");
    of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked", "others_nacked"]).await;
}

#[tokio::test]
async fn a_nack_is_of_the_resource_that_its_reason_names() {
    let (relay, _plane, _stream, client, sent) = two_clusters("").await;
    let of = cluster_of(&relay);
    client.refuse_for(CDS, &[], &sent, "Error adding/updating cluster(s) a: no hosts");
    let page = of("a").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await;
    assert!(
        text(&page, "nacked").ends_with("cluster(s) a: no hosts") && reason(&page, "nacked")["since_seconds"].is_f64()
    );
    advised(&page, "nacked", "the client rejected a reply");
    of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "type_nacked"]).await;
}

//! The variant that the relay uses with a control plane if none is configured.

use super::plane::{Answers, Habits};
use super::*;

#[tokio::test]
async fn a_server_without_delta_is_spoken_to_in_sotw() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(stream.variant, Variant::Sotw);
    say(&stream, "1", &TWO, &[], &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
}

/// Waits until attempts fail with an error that contains this.
async fn fails(relay: &Relay, why: &str) {
    until(why, async || get(relay.admin, "/upstreams").await.contains(why)).await;
}

#[tokio::test]
async fn fb_32_a_server_that_has_answered_in_a_variant_is_not_taken_for_one_without_it() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    drop(stream);
    let nobody = Plane::refusing_at(plane.kill().await, 12).await;
    fails(&relay, "Unimplemented").await;
    let mut plane = Plane::start_at(nobody.kill().await, &BOTH).await;
    assert_eq!(plane.stream().await.variant, Variant::Delta);
}

#[tokio::test]
async fn fb_32_what_a_proxy_without_a_way_answers_says_nothing_of_the_server() {
    let habits = Habits { variants: &[], answers: Answers::Http(404), ..Habits::default() };
    let proxy = Plane::with(plane::own_address(), habits).await;
    let relay = relay(proxy.address, "").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    fails(&relay, "404").await;
    let mut plane = Plane::start_at(proxy.kill().await, &BOTH).await;
    assert_eq!(plane.stream().await.variant, Variant::Delta);
}

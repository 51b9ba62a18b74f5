//! The variant that the relay uses with a control plane if none is configured.

use super::evidence::servers;
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
    fails(&relay, " 404").await; // with the space, no port contains it
    let mut plane = Plane::start_at(proxy.kill().await, &BOTH).await;
    assert_eq!(plane.stream().await.variant, Variant::Delta);
}

/// Waits until the relay requests these clusters in SotW.
async fn requests(stream: &mut Stream, names: &[&str]) {
    loop {
        let Request::Sotw(request) = stream.request().await else { panic!("a request in delta") };
        if request.type_url == CDS && request.resource_names == names {
            return;
        }
    }
}

#[tokio::test]
async fn fb_32_a_server_without_delta_is_not_tried_in_it_again_when_its_stream_is_opened_again() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay_with_options(&servers(&[plane.address], ""), "limits: {linger: 100ms}\n", |_| {}).await;
    let stays = Client::connect(relay.address, Variant::Delta).await;
    stays.ask(EDS, &["a"], Some("web"));
    let mut first = plane.stream().await;
    let mut leaves = Client::connect(relay.address, Variant::Delta).await;
    leaves.ask(CDS, &[], Some("web"));
    requests(&mut first, &[]).await;
    say(&first, "1", &TWO, &[], &[]);
    assert_eq!(leaves.sent().await.set, ["a", "b"]);
    drop(leaves);
    requests(&mut first, &["*"]).await; // the way to leave all of them

    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    first.requests_end().await;
    drop(first);
    let mut second = plane.stream().await;
    requests(&mut second, &[]).await;
    say(&second, "1", &TWO, &[], &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    let calls = plane.calls.lock().unwrap();
    let in_delta = calls.iter().filter(|call| call.path.ends_with("/DeltaAggregatedResources"));
    assert_eq!(in_delta.count(), 1, "before the first stream");
}

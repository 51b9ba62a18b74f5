//! A bad entry affects only its own name: the rest of the set is served.

use super::evidence::servers;
use super::holder::{ALL_CLUSTERS, Holder, Record};
use super::*;

const NAMES: [&str; 9] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

fn entry(name: &str, content: &str) -> Resource {
    let resource = Some(cluster(name, content));
    Resource { name: name.into(), version: content.into(), resource, ..Default::default() }
}

fn say_entries(stream: &Stream, nonce: &str, resources: Vec<Resource>) {
    let (type_url, nonce) = (CDS.into(), nonce.into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

/// Returns nine clusters, and a tenth name without a body.
fn nine_and_a_flaw() -> Vec<Resource> {
    let bodyless = Resource { name: "flaw".into(), version: "1".into(), ..Default::default() };
    NAMES.map(|name| entry(name, "1")).into_iter().chain([bodyless]).collect()
}

async fn flawed_set() -> (Plane, Stream, Relay) {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let quick = |options: &mut weir_core::protocol::options::ProtocolOptions| {
        options.upstream.settle_fresh = Duration::from_millis(50);
        options.upstream.settle_stated = Duration::from_millis(100);
    };
    let relay = relay_with_options(&servers(&[plane.address], ""), "", quick).await;
    let first = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let stream = plane.stream().await;
    say_entries(&stream, "1", nine_and_a_flaw());
    first.until("the nine", has_the_nine).await;
    (plane, stream, relay)
}

fn has_the_nine(record: &Record) -> bool {
    record.holds.iter().eq(NAMES)
}

#[tokio::test]
async fn up_23_up_25_clients_without_state_get_all_but_the_entry_without_a_body_and_its_later_changes() {
    let (_plane, stream, relay) = flawed_set().await;
    for (variant, nonce) in [(Variant::Sotw, "2"), (Variant::Delta, "3")] {
        let client = Holder::new(relay.address, variant, ALL_CLUSTERS).await;
        client.until("the nine", has_the_nine).await;
        let before = client.record().responses;
        say_entries(&stream, nonce, vec![entry("c3", nonce)]);
        client.until("a later change", |record| record.responses > before).await;
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn up_25_a_client_that_comes_back_with_the_set_without_the_bad_entry_gets_later_changes() {
    let (_plane, stream, relay) = flawed_set().await;
    let client = Holder::new(relay.address, Variant::Sotw, ALL_CLUSTERS).await;
    client.until("the nine", has_the_nine).await;
    let version = client.record().version;
    drop(client);
    driver::clients(&relay, "it has left", |report| report.as_array().is_some_and(Vec::is_empty)).await;

    let held = NAMES.map(str::to_owned);
    let back = Holder::with(relay.address, Variant::Sotw, ALL_CLUSTERS, &held, &version).await;
    driver::clients(&relay, "it is back", |report| report.as_array().is_some_and(|clients| clients.len() == 1)).await;
    say_entries(&stream, "2", vec![entry("c3", "2")]);
    back.until("a later change", |record| !record.version.is_empty() && record.version != version).await;
    assert!(has_the_nine(&back.record()));
    back.has_lost_nothing();
}

#[tokio::test]
async fn up_22_equal_duplicates_are_one_resource_for_everybody_and_are_rejected_all_the_same() {
    each_translation(|up, down| async move {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let client = Holder::new(relay.address, down, ALL_CLUSTERS).await;
        let mut stream = plane.stream().await;
        stream.request().await;
        let twice = [("a", "1"), ("b", "1"), ("b", "1")];
        say(&stream, "1", &twice, &twice, &[]);
        let answer = stream.request().await;
        assert_eq!(nonce_of(&answer), "1");
        assert!(answer.is_nack(), "{answer:?}");
        client.until("both", |record| record.holds.iter().eq(["a", "b"])).await;
        client.has_lost_nothing();

        // Different bodies under one name make the entry bad. Clients keep the last good body.
        let torn = [("a", "2"), ("b", "2"), ("b", "3")];
        let before = client.record().responses;
        say(&stream, "2", &torn, &torn, &[]);
        assert!(stream.request().await.is_nack());
        client.until("what is not concerned", |record| record.responses > before).await;
        client.has_lost_nothing();
        let late = Holder::new(relay.address, down, ALL_CLUSTERS).await;
        late.until("both", |record| record.holds.iter().eq(["a", "b"])).await;
    })
    .await;
}

//! Clients that hold what this relay has never given: they are served once the server was asked where its set ends.

use std::time::Instant;

use super::client::node;
use super::evidence::{relay_with_limits, servers};
use super::*;

/// Three times the bound in virtual time: tests share the machine.
const ONE_TIER: Duration = Duration::from_secs(6);
const TWO_TIERS: Duration = Duration::from_secs(9);

/// A SotW client that comes with the version of another relay.
async fn moved(address: SocketAddr) -> Client {
    let client = Client::connect(address, Variant::Sotw).await;
    let Client::Sotw(requests, _) = &client else { unreachable!() };
    let version_info = "1.of-another-relay".into();
    let request =
        DiscoveryRequest { node: node("web"), type_url: CDS.into(), version_info, ..DiscoveryRequest::default() };
    requests.send(request).unwrap();
    client
}

/// Waits until the relay has sent the end of its requests, and ends the stream as servers do.
async fn half_closed(mut stream: Stream) {
    let end = async { while stream.requests.recv().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(5), end).await.expect("the relay ends the stream before it opens another");
}

#[tokio::test]
async fn xlat_12_a_sotw_client_that_was_moved_is_served_through_one_tier_or_two() {
    for (tiers, bound) in [(1, ONE_TIER), (2, TWO_TIERS)] {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let lowest = relay_with_limits(&servers(&[plane.address], ""), "", |_| ()).await;
        let upper = relay_with_limits(&servers(&[lowest.address], ""), "", |_| ()).await;
        let since = Instant::now();
        let mut client = moved(if tiers == 1 { lowest.address } else { upper.address }).await;
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        half_closed(stream).await;
        let mut again = plane.stream().await;
        assert_eq!(again.answer_for_end().await, CDS);
        let sent = client.sent().await;
        assert_eq!(sent.set.len(), 2, "{sent:?}");
        assert!(since.elapsed() < bound, "{tiers} tiers: {:?}", since.elapsed());
        client.hears_nothing(Duration::from_secs(1)).await;
        assert!(plane.streams.try_recv().is_err(), "one question is enough");
    }
}

#[tokio::test]
async fn xlat_12_nobody_who_knows_what_it_has_makes_the_relay_ask() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_with_limits(&servers(&[plane.address], ""), "", |_| ()).await;
    let mut clients = Vec::new();
    for variant in [Variant::Sotw, Variant::Delta] {
        let client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        clients.push(client);
    }
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    for client in &mut clients {
        client.sent().await;
        client.hears_nothing(Duration::from_secs(1)).await;
    }
    assert!(plane.streams.try_recv().is_err());
}

/// A server may keep one stream for a node: it refuses another until it has noticed the end of the one before.
#[tokio::test]
async fn xlat_12_a_server_that_refuses_the_stream_that_was_opened_again_is_tried_once_more_and_stays_active() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let mut other = Plane::start(&[Variant::Delta]).await;
    let both = servers(&[plane.address, other.address], "");
    let relay = relay_with_limits(&both, "", |_| ()).await;
    let mut client = moved(relay.address).await;
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    half_closed(stream).await;
    drop(plane.stream().await); // ends without a response
    let mut last = plane.stream().await;
    last.answer_for_end().await;
    assert_eq!(client.sent().await.set.len(), 2);
    assert!(other.streams.try_recv().is_err(), "no fallback");
}

//! Clients with resources that this relay has never sent. They are served once the relay has asked its server where the set ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use tokio::task::JoinSet;

use super::client::{PATIENCE, node};
use super::evidence::servers;
use super::plane::END_OF_SET;
use super::*;

/// Three times the bound of the tests in virtual time, since tests share the machine.
const ONE_TIER: Duration = Duration::from_secs(6);
const TIERS: Duration = Duration::from_secs(9);

/// A busy machine is sometimes late: one run within the bound is enough.
const RUNS: usize = 3;
const MOST_RUNS: usize = 7;

/// Connects a SotW client that states the version of another relay.
async fn moved(address: SocketAddr) -> Client {
    moved_as(address, "web").await
}

async fn moved_as(address: SocketAddr, cluster: &str) -> Client {
    let client = Client::connect(address, Variant::Sotw).await;
    let Client::Sotw(requests, _) = &client else { unreachable!() };
    let version_info = "1.of-another-relay".into();
    let request =
        DiscoveryRequest { node: node(cluster), type_url: CDS.into(), version_info, ..DiscoveryRequest::default() };
    requests.send(request).unwrap();
    client
}

/// Waits until the relay has half-closed its stream, and then ends the stream as servers do.
async fn half_closed(mut stream: Stream) {
    let end = async { while stream.requests.recv().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the relay ends the stream before it opens another");
}

/// Returns how long after its request a client from another relay has everything, through this many relays.
async fn served_after(tiers: usize) -> Duration {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let mut relays = vec![relay_with_options(&servers(&[plane.address], ""), "", |_| ()).await];
    while relays.len() < tiers {
        let below = relays[relays.len() - 1].address;
        relays.push(relay_with_options(&servers(&[below], ""), "", |_| ()).await);
    }
    let since = Instant::now();
    let mut client = moved(relays[tiers - 1].address).await;
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    half_closed(stream).await;
    let mut again = plane.stream().await;
    assert_eq!(again.answer_for_end().await, CDS);
    let sent = client.sent().await;
    let served = since.elapsed();
    assert_eq!(sent.set.len(), 2, "{sent:?}");
    client.hears_nothing(Duration::from_secs(1)).await;
    assert!(plane.streams.try_recv().is_err(), "one question is enough");
    served
}

#[tokio::test]
#[ignore = "measures how long clients wait behind one to three tiers"]
async fn night_xlat_12_a_sotw_client_that_was_moved_is_served_through_one_tier_and_more() {
    for (tiers, bound) in [(1, ONE_TIER), (2, TIERS), (3, TIERS)] {
        let mut times = Vec::new();
        while times.len() < RUNS || times.iter().all(|time| *time >= bound) {
            assert!(times.len() < MOST_RUNS, "{tiers} tiers: {times:?}");
            times.push(served_after(tiers).await);
        }
        println!("{tiers} tiers: {times:?}");
    }
}

/// After a restart of the relay, each of many views asks the server where its set ends. At any time only few of their streams are between the end of
/// one opening and the start of the next.
#[tokio::test]
#[ignore = "keeps the processors busy: a thousand views"]
async fn night_xlat_12_a_thousand_views_ask_for_the_end_of_their_sets_few_at_a_time() {
    const VIEWS: usize = 1_000;
    const AT_A_TIME: usize = 16;
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_with_options(&servers(&[plane.address], ""), "", |_| ()).await;
    let (between, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (between.clone(), most.clone());
    let server = tokio::spawn(async move {
        let mut streams = JoinSet::new();
        for _ in 0..2 * VIEWS {
            let (between, most) = counts.clone();
            streams.spawn(serve(plane.stream().await, between, most));
        }
        streams.join_all().await
    });
    let mut clients = Vec::new();
    for view in 0..VIEWS {
        clients.push(moved_as(relay.address, &format!("view-{view}")).await);
    }
    for client in &mut clients {
        assert_eq!(client.sent().await.set.len(), 2);
    }
    let openings = tokio::time::timeout(PATIENCE, server).await.expect("each asks twice").unwrap();
    assert_eq!(openings.iter().flatten().count(), VIEWS, "each asks once for the end");
    assert!(most.load(Relaxed) <= AT_A_TIME, "{most:?} at a time");
}

/// Serves one opening: the first one of a view until it ends, the next one with the end of the set. Returns the latter, so that it stays open.
async fn serve(mut stream: Stream, between: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> Option<Stream> {
    let Request::Delta(first) = stream.request().await else { panic!("delta") };
    let asks = first.initial_resource_versions.keys().find(|name| name.starts_with(END_OF_SET)).cloned();
    let Some(name) = asks else {
        say(&stream, "1", &TWO, &TWO, &[]);
        while stream.requests.recv().await.is_some() {}
        most.fetch_max(between.fetch_add(1, Relaxed) + 1, Relaxed);
        return None;
    };
    between.fetch_sub(1, Relaxed);
    let (type_url, nonce) = (CDS.into(), "end".into());
    let answer = DeltaDiscoveryResponse { type_url, nonce, removed_resources: vec![name], ..Default::default() };
    stream.respond(&Response::Delta(answer));
    Some(stream)
}

#[tokio::test]
async fn xlat_12_nobody_who_knows_what_it_has_makes_the_relay_ask() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_with_options(&servers(&[plane.address], ""), "", |_| ()).await;
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

/// A server may allow one stream for each node. It then rejects the next one until it has noticed the end of the last.
#[tokio::test]
async fn xlat_12_a_server_that_refuses_the_stream_that_was_opened_again_is_tried_once_more_and_stays_active() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let mut other = Plane::start(&[Variant::Delta]).await;
    let both = servers(&[plane.address, other.address], "");
    let relay = relay_with_options(&both, "", |_| ()).await;
    let mut client = moved(relay.address).await;
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    half_closed(stream).await;
    drop(plane.stream().await); // ends the stream without a response
    let mut last = plane.stream().await;
    last.answer_for_end().await;
    assert_eq!(client.sent().await.set.len(), 2);
    assert!(other.streams.try_recv().is_err(), "no fallback");
}

//! The cost of receiving a large set, and its effect on other views (docs/record/performance.md).
//!
//! `cargo test --release --test ingest_pace -- --ignored --nocapture` measures; without `--ignored` the test only checks that it works.

mod baseline;
mod plane;
mod relay;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weir_core::proto::node::Node;
use weir_loadtest::wire::{Client, Opening, Variant};

use self::plane::{CDS, Feed, Plane, clusters};
use self::relay::{PATIENCE, Relay};

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";
/// The length of each cluster.
const SIZE: usize = 2048;

async fn connect(server: SocketAddr, variant: Variant, cluster: &str, window: Option<u32>) -> Client {
    let method = match variant {
        Variant::Sotw => "StreamAggregatedResources",
        Variant::Delta => "DeltaAggregatedResources",
    };
    let (target, path) = (format!("http://{server}"), format!("{ADS}{method}"));
    let node = Some(Node { id: "node".into(), cluster: cluster.into(), ..Node::default() });
    Opening { target, path, variant, node, window, patience: PATIENCE }.connect().await.unwrap()
}

/// A SotW server sends this many clusters again and again, with one change each time.
async fn one_change_in_a_large_set(count: usize, rounds: usize) {
    let plane = Plane::start().await;
    let relay = Relay::over(plane.address, "one-change");
    let feeds = [plane.feed("relay"), plane.feed("baseline")];
    let send = |version: usize| {
        let content = move |number: usize| if number == count / 2 { version as u64 } else { 0 };
        let message = clusters(count, SIZE, content, &version.to_string());
        feeds.iter().for_each(|feed| feed.send(&message));
    };
    let mut baseline = baseline::start(plane.address, "baseline");
    let mut client = connect(relay.address, Variant::Delta, "relay", None).await;
    client.want(CDS, &[]);
    send(0);
    let mut held = 0;
    while held < count {
        held += client.takes(CDS).await.unwrap().entries.len();
    }
    baseline.recv().await.unwrap();
    let bytes = (count * SIZE) as f64;
    let first = relay.memory().0 / bytes;
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let before = relay.used().await;
        send(round);
        let sent = client.takes(CDS).await.unwrap();
        assert_eq!(sent.names(), [format!("cluster-{:06}", count / 2)], "the one change alone");
        let (spent, least) = (relay.used().await - before, baseline.recv().await.unwrap());
        println!("{count} clusters, one changed: {spent:.3} s of processor time, at least {least:.3} s");
        ratios.push(spent / least);
    }
    ratios.sort_by(f64::total_cmp);
    let (peak, now) = relay.memory();
    println!("processor time by framing and hashing: {ratios:.2?}");
    println!(
        "memory by bytes held: peak {first:.2} at first and {:.2} in the end, now {:.2}",
        peak / bytes,
        now / bytes
    );
}

/// Measures reading and applying this many clusters: all new, sent again with one change, and all changed.
fn one_after_the_other(count: usize) {
    let set = |version: u64, changed: fn(usize, usize) -> bool| {
        clusters(count, SIZE, move |number| if changed(number, count) { version } else { 0 }, &version.to_string())
    };
    let one = |number, count| number == count / 2;
    turn::apply(&[
        ("all new", set(1, |_, _| false)),
        ("one changed", set(2, one)),
        ("one changed", set(3, one)),
        ("all changed", set(4, |_, _| true)),
    ]);
}

/// Connects a client to each of several views. A view is sent a new set whenever the relay has ACKed the last one.
async fn take_in(plane: &Plane, relay: &Relay, views: usize, count: usize, until: Arc<AtomicBool>) -> Vec<Client> {
    let sets = [0, 1].map(|content| clusters(count, SIZE, move |_| content, &content.to_string()));
    let mut clients = Vec::new();
    for view in 0..views {
        let cluster = format!("large-{view}");
        let feed = plane.feed(&cluster);
        // The client reads no more than a window, so the cost is that of receiving for the view.
        let mut client = connect(relay.address, Variant::Sotw, &cluster, Some(1 << 10)).await;
        client.want(CDS, &[]);
        clients.push(client);
        tokio::spawn(feed_until(feed, sets.clone(), until.clone()));
    }
    clients
}

async fn feed_until(feed: Feed, sets: [bytes::Bytes; 2], until: Arc<AtomicBool>) {
    for round in 1.. {
        feed.requests(round).await; // the first request, and then the ACK of each set
        if until.load(Ordering::Relaxed) {
            return;
        }
        feed.send(&sets[round % 2]);
    }
}

/// Returns how long the first clients of new views wait for their set, in milliseconds.
async fn neighbours(plane: &Plane, server: SocketAddr, of: &str, times: usize) -> Vec<f64> {
    let set = clusters(1, SIZE, |_| 0, "1");
    let mut waits = Vec::new();
    for number in 0..times {
        let cluster = format!("{of}-{number}");
        plane.feed(&cluster).send(&set);
        let start = Instant::now();
        let mut client = connect(server, Variant::Sotw, &cluster, None).await;
        client.want(CDS, &[]);
        client.sent(CDS).await.unwrap().sets(&["cluster-000000"]).unwrap();
        waits.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    waits.sort_by(f64::total_cmp);
    waits
}

/// New views get their first set while other views receive large ones.
async fn neighbours_of_large_sets(views: usize, count: usize, times: usize) {
    let plane = Plane::start().await;
    let relay = Relay::over(plane.address, "neighbour");
    neighbours(&plane, relay.address, "warm", 10).await;
    let alone = neighbours(&plane, relay.address, "alone", times).await;
    let done = Arc::new(AtomicBool::new(false));
    let clients = take_in(&plane, &relay, views, count, done.clone()).await;
    let large = plane.feed("large-0");
    large.requests(2).await;
    let beside = neighbours(&plane, relay.address, "beside", times).await;
    let direct = neighbours(&plane, plane.address, "direct", times).await;
    done.store(true, Ordering::Relaxed);
    drop(clients);
    let megabytes = count * SIZE / (1 << 20);
    println!("first set of a view, in ms: alone {}", spread(&alone));
    println!("beside {views} views that take in {megabytes} MiB each: {}", spread(&beside));
    println!("at the control plane, beside the same: {}", spread(&direct));
    println!("p99 by p99 alone: {:.1}", quantile(&beside, 0.99) / quantile(&alone, 0.99));
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

fn spread(sorted: &[f64]) -> String {
    let [median, high, last] = [0.5, 0.99, 1.0].map(|part| quantile(sorted, part));
    format!("median {median:.2}, p99 {high:.2}, longest {last:.2}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_measurement_of_large_sets_works() {
    one_after_the_other(100);
    one_change_in_a_large_set(100, 1).await;
    neighbours_of_large_sets(1, 100, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "means something only in a release build on a quiet machine"]
async fn figures_of_large_sets() {
    println!("{} processors", std::thread::available_parallelism().unwrap());
    one_after_the_other(100_000);
    one_change_in_a_large_set(100_000, 5).await;
    neighbours_of_large_sets(6, 37 << 20 >> 11, 200).await;
}

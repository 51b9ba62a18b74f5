//! Replies that are compressed for clients and relays which accept that, over connections that count their bytes. The connections begin with
//! the PROXY header of a balancer, since nothing is compressed for clients on the same machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::Request as Call;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::client::node;
use super::gzip::gunzip;
use super::poller::{CLUSTERS, Poller};
use super::*;

const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// A proxy to a relay that makes connections look as if they came from another machine.
struct Way {
    address: SocketAddr,
    /// How many bytes the relay has sent.
    bytes: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Way {
    async fn to(relay: &Relay) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, target) = (listener.local_addr().unwrap(), relay.address);
        let bytes = Arc::<AtomicUsize>::default();
        let counted = bytes.clone();
        let task = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                tokio::spawn(pass(near, target, counted.clone()));
            }
        });
        Self { address, bytes, task }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(near: TcpStream, target: SocketAddr, counted: Arc<AtomicUsize>) {
    let mut far = TcpStream::connect(target).await.unwrap();
    far.write_all(b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000\r\n").await.unwrap();
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let up = async {
        let _ = tokio::io::copy(&mut from_near, &mut to_far).await; // either side may close
        let _ = to_far.shutdown().await;
    };
    let down = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_far.read(&mut buffer).await {
            counted.fetch_add(length, Ordering::Relaxed);
            if to_near.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
        let _ = to_near.shutdown().await;
    };
    tokio::join!(up, down);
}

/// Starts a relay that trusts the header of such a proxy.
async fn relay_that(compression: &str, plane: SocketAddr, protocol: &str) -> Relay {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0', proxy_protocol_from: [127.0.0.0/8]}}]
admin: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{plane}'{protocol}}}]}}
views: {{key: [cluster]}}
clients: {{compression: {compression}}}
"
    );
    run(crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap(), std::future::pending())
}

fn only(variant: Variant) -> &'static [Variant] {
    match variant {
        Variant::Sotw => &[Variant::Sotw],
        Variant::Delta => &[Variant::Delta],
    }
}

async fn compressed(relay: &Relay) -> u64 {
    metric(relay, "weir_client_replies_compressed_total").await as u64
}

/// Returns names and contents of clusters that are as similar as those of real control planes: they differ in a few words.
fn clusters(count: usize, version: &str) -> Vec<(String, String)> {
    let content = |number: usize| {
        let id = number.wrapping_mul(2_654_435_761) % 0xffff_ffff;
        format!(
            "type: EDS, eds_cluster_config: {{eds_config: {{ads: {{}}}}, service_name: svc-{id:08x}.ns-{}.local}}, \
             connect_timeout: 5s, lb_policy: LEAST_REQUEST, circuit_breakers: {{max_connections: {}}}, version {version}",
            number % 97,
            1000 + number % 31
        )
    };
    (0..count).map(|number| (format!("cluster-{number:06}"), content(number))).collect()
}

fn borrowed(all: &[(String, String)]) -> Vec<(&str, &str)> {
    all.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect()
}

/// Reads and ACKs replies until this many resources have arrived.
async fn take(client: &mut Client, count: usize) {
    let mut received = 0;
    while received < count {
        let sent = client.sent().await;
        received += sent.set.len();
        client.ack(CDS, &[], &sent);
    }
    assert_eq!(received, count);
}

#[tokio::test]
async fn fifty_clients_that_accept_it_share_one_pass_and_the_others_get_the_same_plain() {
    let _turn = super::HEAVY.lock().await;
    for variant in BOTH {
        let mut plane = Plane::start(only(variant)).await;
        let relay = relay_that("auto", plane.address, protocol_of(variant)).await;
        let (accepting, plain) = (Way::to(&relay).await, Way::to(&relay).await);
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(Client::accepting(accepting.address, variant).await);
        }
        let mut others = vec![Client::connect(plain.address, variant).await];
        others.push(Client::connect(plain.address, variant).await);
        clients.iter().chain(&others).for_each(|client| client.ask(CDS, &[], Some("web")));
        let stream = plane.stream().await;
        let first = clusters(500, "1");
        say(&stream, "1", &borrowed(&first), &borrowed(&first), &[]);
        for client in clients.iter_mut().chain(&mut others) {
            take(client, 500).await;
        }
        until("some of them came when it was worth it", async || compressed(&relay).await >= 1).await;
        let mut late = Vec::new();
        for version in (2..2 + TRIES).map(|version| version.to_string()) {
            let version = version.as_str();
            let (before, bytes, of_others) = (compressed(&relay).await, accepting.bytes(), plain.bytes());
            let next = clusters(500, version);
            say(&stream, version, &borrowed(&next), &borrowed(&next), &[]);
            for client in clients.iter_mut().chain(&mut others) {
                take(client, 500).await;
            }
            until("it is compressed", async || compressed(&relay).await > before).await;
            let passes = compressed(&relay).await - before;
            assert_eq!(passes, 1, "{variant:?}: passes for 50 clients");
            let (each, each_plain) = ((accepting.bytes() - bytes) / 50, (plain.bytes() - of_others) / 2);
            if each * 3 < each_plain {
                let saved = metric(&relay, "weir_client_reply_bytes_saved_total").await as usize;
                assert!(saved > 40 * (each_plain - each), "{variant:?}: {saved}");
                break;
            }
            late.push((each, each_plain));
        }
        assert!(late.len() < TRIES, "{variant:?}: bytes to each, and to each plain: {late:?}");
    }
}

/// How many changes to try. On a busy machine a compressed form may not be made in time, and replies do not wait for it.
const TRIES: usize = 8;

/// Returns with how few bytes the first set, and a change of all, pass between two relays. Tries changes until one takes fewer than this.
async fn between_tiers(variant: Variant, compression: &str, accepts: bool, below: usize) -> [usize; 2] {
    let mut plane = Plane::start(only(variant)).await;
    let upper = relay_that(compression, plane.address, protocol_of(variant)).await;
    let way = Way::to(&upper).await;
    let accept = format!("{}, accept_compression: {accepts}", protocol_of(variant));
    let lower = relay_that("off", way.address, &accept).await;
    let near = Way::to(&lower).await;
    let mut client = Client::connect(near.address, variant).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    let (mut first, mut least) = (None, usize::MAX);
    for version in (1..=1 + TRIES).map(|version| version.to_string()) {
        let (version, before) = (version.as_str(), way.bytes());
        let all = clusters(4000, version); // several pieces, even when compressed
        say(&stream, version, &borrowed(&all), &borrowed(&all), &[]);
        let mut taken = std::pin::pin!(take(&mut client, all.len()));
        // If that takes long, the relay requests the set again meanwhile, on another stream.
        loop {
            tokio::select! {
                () = &mut taken => break,
                Some(newer) = plane.streams.recv() => {
                    say(&newer, version, &borrowed(&all), &borrowed(&all), &[]);
                    stream = newer;
                }
            }
        }
        let bytes = way.bytes() - before;
        if first.is_none() {
            first = Some(bytes);
            continue;
        }
        least = least.min(bytes);
        if least < below {
            break;
        }
    }
    assert_eq!(compressed(&upper).await > 0, compression != "off" && accepts);
    [first.unwrap(), least]
}

#[tokio::test]
#[ignore = "measures the share of bytes"]
async fn night_between_two_tiers_a_third_of_the_bytes_are_left_if_the_lower_one_accepts_it() {
    let _turn = super::HEAVY.lock().await;
    for variant in BOTH {
        let plain = between_tiers(variant, "off", true, usize::MAX).await;
        let thirds = plain.map(|bytes| bytes / 3);
        let mut small = [usize::MAX; 2];
        for _ in 0..TRIES {
            let [first, change] = between_tiers(variant, "always", true, thirds[1]).await;
            small = [small[0].min(first), small[1].min(change)];
            if small[0] < thirds[0] && small[1] < thirds[1] {
                break;
            }
        }
        println!("{variant:?}: {small:?} of {plain:?} bytes");
        assert!(small[0] < thirds[0] && small[1] < thirds[1], "{variant:?}: {small:?} of {plain:?} bytes");
        let unasked = between_tiers(variant, "always", false, usize::MAX).await;
        let is_plain = unasked.iter().zip(plain).all(|(bytes, plain)| bytes * 10 > plain * 9);
        assert!(is_plain, "{variant:?}: it does not accept it, and {unasked:?} of {plain:?} bytes came");
    }
}

#[tokio::test]
async fn the_limit_of_the_lower_relay_is_that_of_what_a_reply_becomes() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let upper = relay_that("always", plane.address, ", variant: sotw").await;
    let way = Way::to(&upper).await;
    let options = "views: {key: [cluster]}\nlimits: {message_bytes: 1MiB}\n";
    let config = config(way.address, ", variant: sotw, accept_compression: true, backoff: {initial: 10ms}", options);
    let lower = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = Client::connect(lower.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = clusters(8000, "1");
    say(&stream, "1", &borrowed(&all), &borrowed(&all), &[]);
    let text = "response too large: more than 1048576 bytes when inflated, limit 1048576 (limits.message_bytes)";
    until(text, async || get(lower.admin, "/upstreams").await.contains(text)).await;
    say(&stream, "2", &borrowed(&all[..100]), &borrowed(&all[..100]), &[]);
    take(&mut client, 100).await;
}

#[tokio::test]
async fn secrets_are_never_compressed_beside_clusters_on_the_same_stream_that_are() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay_that("always", plane.address, ", variant: sotw").await;
    let way = Way::to(&relay).await;
    let mut client = Client::accepting(way.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    let all = clusters(500, "1");
    say(&stream, "1", &borrowed(&all), &borrowed(&all), &[]);
    take(&mut client, 500).await;
    until("the clusters are compressed", async || compressed(&relay).await == 1).await;
    let before = way.bytes();
    client.ask(SECRETS, &["secret"], None);
    loop {
        if stream.request().await.type_url() == SECRETS {
            break;
        }
    }
    let (version_info, nonce, type_url) = ("1".into(), "s".into(), SECRETS.into());
    let resources = vec![Any { type_url: SECRETS.into(), ..cluster("secret", &"x".repeat(100_000)) }];
    let said = DiscoveryResponse { version_info, resources, type_url, nonce, ..Default::default() };
    stream.respond(&Response::Sotw(said));
    assert_eq!(client.sent().await.set, ["secret"]);
    assert!(way.bytes() - before > 100_000);
    assert_eq!(compressed(&relay).await, 1);
}

/// The call ends with its only reply: a compressed form would come too late, and the client may never come again.
#[tokio::test]
async fn a_unary_fetch_begins_no_pass() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay_that("always", plane.address, ", variant: sotw").await;
    let way = Way::to(&relay).await;
    let mut client = Client::accepting(way.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = clusters(500, "1");
    say(&stream, "1", &borrowed(&all), &borrowed(&all), &[]);
    take(&mut client, 500).await;
    until("the clusters are compressed", async || compressed(&relay).await == 1).await;
    let before = compressed(&relay).await;
    let channel = Endpoint::from_shared(format!("http://{}", way.address)).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel).accept_compressed(CompressionEncoding::Gzip);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters");
    let codec: ProstCodec<DiscoveryRequest, DiscoveryResponse> = ProstCodec::default();
    let request = DiscoveryRequest { node: node("web"), ..Default::default() };
    let response = grpc.unary(Call::new(request), path, codec).await.unwrap();
    assert_eq!(response.metadata().get("grpc-encoding"), None);
    assert_eq!(response.into_inner().resources.len(), 500);
    assert_eq!(compressed(&relay).await, before);
}

#[tokio::test]
async fn nothing_is_compressed_on_one_machine_or_if_it_is_off() {
    for (compression, is_far) in [("always", false), ("off", true)] {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let relay = relay_that(compression, plane.address, ", variant: delta").await;
        let way = Way::to(&relay).await;
        let mut client = match is_far {
            true => Client::accepting(way.address, Variant::Delta).await,
            false => {
                let mut socket = TcpStream::connect(relay.address).await.unwrap();
                socket.write_all(b"PROXY UNKNOWN\r\n").await.unwrap(); // a connection of the balancer itself
                Client::accepting_over(socket, Variant::Delta).await
            }
        };
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        let all = clusters(500, "1");
        say(&stream, "1", &borrowed(&all), &borrowed(&all), &[]);
        take(&mut client, 500).await;
        assert_eq!(compressed(&relay).await, 0);
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_delays_no_other_that_shares_the_form() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_that("always", plane.address, ", variant: delta").await;
    let way = Way::to(&relay).await;
    let mut stuck = Client::accepting(way.address, Variant::Delta).await;
    let mut reads = Client::accepting(way.address, Variant::Delta).await;
    [&stuck, &reads].iter().for_each(|client| client.ask(CDS, &[], Some("web")));
    let stream = plane.stream().await;
    for version in ["1", "2", "3"] {
        let all = clusters(8000, version);
        say(&stream, version, &borrowed(&all), &borrowed(&all), &[]);
        take(&mut reads, all.len()).await;
    }
    let mut received = 0;
    while received < 8000 {
        let sent = stuck.sent().await;
        received += sent.set.len();
        stuck.ack(CDS, &[], &sent);
    }
}

#[tokio::test]
async fn polls_that_accept_it_get_the_same_compressed() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_that("always", plane.address, ", variant: delta").await;
    let way = Way::to(&relay).await;
    let mut plain = Poller::connect(way.address).await;
    let poll = tokio::spawn(async move {
        let answer = plain.polled(CLUSTERS, "web", serde_json::json!({})).await;
        (plain, answer)
    });
    let stream = plane.stream().await;
    let all: Vec<_> = (0..200).map(|number| (format!("cluster-{number:03}"), "1".to_owned())).collect();
    say(&stream, "1", &borrowed(&all), &borrowed(&all), &[]);
    let (mut plain, answer) = poll.await.unwrap();
    assert_eq!(answer.clusters().len(), 200);
    assert!(!answer.headers.contains_key("content-encoding"));
    for accepted in ["gzip", "br;q=1.0, gzip;q=0.5"] {
        let body = serde_json::json!({"node": {"id": "poller", "cluster": "web"}}).to_string();
        let headers = [("content-type", "application/json"), ("accept-encoding", accepted)];
        let began = std::time::Instant::now();
        let mut compressed = loop {
            let answer = plain.send_with(http::Method::POST, CLUSTERS, &headers, body.clone().into()).await;
            if answer.headers.contains_key("content-encoding") {
                break answer;
            }
            assert!(began.elapsed() < client::PATIENCE, "the form has not come");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        assert_eq!(compressed.headers["content-encoding"], "gzip");
        assert!(compressed.body.len() * 3 < answer.body.len());
        compressed.body = gunzip(&compressed.body).into();
        assert_eq!(compressed.clusters(), answer.clusters());
    }
    assert_eq!(compressed(&relay).await, 1, "once for both");
}

/// Returns the processor time of the process, in milliseconds.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().collect::<Vec<_>>();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

/// Measures two tiers with a control plane and a client: a first set, then changes of all clusters, each after the last one has arrived.
async fn figures(compression: &str, count: usize, changes: usize) -> (usize, u64, Vec<Duration>) {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    // `one_response` tells the relay where its set ends, so it does not open the stream that this test serves again.
    let upper = relay_that(compression, plane.address, ", variant: delta, initial_set: one_response").await;
    let way = Way::to(&upper).await;
    let lower = relay_that("off", way.address, ", variant: delta, accept_compression: true").await;
    let near = Way::to(&lower).await;
    let mut client = Client::connect(near.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let (mut took, before) = (Vec::new(), processor_time());
    for change in 0..=changes {
        let all = clusters(count, &change.to_string());
        let since = std::time::Instant::now();
        say(&stream, &change.to_string(), &borrowed(&all), &borrowed(&all), &[]);
        take(&mut client, count).await;
        took.push(since.elapsed());
    }
    took.sort();
    (way.bytes(), processor_time() - before, took)
}

#[tokio::test]
#[ignore = "measures two tiers with and without compression"]
async fn figures_of_two_tiers() {
    for (count, changes) in [(10, 500), (1000, 100), (10_000, 20)] {
        for round in 0..3 {
            for compression in ["off", "always"] {
                let (bytes, processor, took) = figures(compression, count, changes).await;
                let [p50, p99] = [50, 99].map(|part| took[(took.len() * part / 100).min(took.len() - 1)]);
                println!(
                    "{count} clusters, {compression}, round {round}: {bytes} bytes, {processor} ms, p50 {p50:?}, p99 {p99:?}"
                );
            }
        }
    }
}

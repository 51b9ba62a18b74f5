//! How long clients without state wait for their first set (docs/record/performance.md).
//!
//! `cargo test --release --test first_sync -- --ignored --nocapture` measures; without `--ignored` the test only checks that it works.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use prost::Message;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use weir::app::App;
use weir::config::Config;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::proto::node::Node;
use weir_loadtest::content::Item;
use weir_loadtest::wire::{Client, Opening, Plane, Received, Variant, fetch};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";
const FETCH: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
const PATIENCE: Duration = Duration::from_secs(60);
/// How many clients connect at a time: fewer than the backlog of any listener.
const CONNECTING: usize = 64;
/// The size of a set in bytes.
const SET: usize = 1024;

/// A relay with one delta server. It ends when this is dropped.
struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    async fn over(plane: &Plane) -> Self {
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\nshards: 0\n\
             upstream: {{servers: [{{uri: 'http://{}', variant: delta}}]}}\n",
            plane.address
        );
        let app = App::bind(Config::parse(Path::new("first_sync.yaml"), &text).unwrap()).await.unwrap();
        let address = app.addresses()[0];
        Self { address, task: tokio::spawn(app.run()) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a client requests all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    OnAStream(Variant),
    ByPoll,
    ByFetch,
}

/// A control plane that responds at once.
async fn plane() -> Plane {
    Plane::start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// Returns the only cluster of the set, which is as large as the set.
fn set() -> Item {
    const ALTERNATIVE_NAME: u32 = 28;
    let bare = Item::new(CDS, "cluster", "");
    let room = SET - bare.body.len() - 4; // tag and length of the field
    bare.with(ALTERNATIVE_NAME, "x".repeat(room).as_bytes())
}

/// Connects, subscribes, and returns once the complete set has arrived. Fails if the connection does, which may happen when very many
/// clients connect at once.
async fn sync(address: SocketAddr, asks: Asks, cluster: &str) -> anyhow::Result<()> {
    match asks {
        Asks::OnAStream(variant) => ask(&mut connect(address, variant, cluster).await?).await,
        Asks::ByFetch => {
            let request = DiscoveryRequest {
                node: Some(node(cluster).encode_to_vec().into()),
                type_url: CDS.into(),
                ..Default::default()
            };
            check(&fetch(&opening(address, Variant::Sotw, FETCH.to_owned()), request).await??);
            Ok(())
        }
        Asks::ByPoll => {
            poll(address, cluster).await;
            Ok(())
        }
    }
}

/// Opens a stream without a request.
async fn connect(address: SocketAddr, variant: Variant, cluster: &str) -> anyhow::Result<Client> {
    let method = match variant {
        Variant::Sotw => "StreamAggregatedResources",
        Variant::Delta => "DeltaAggregatedResources",
    };
    let opening = opening(address, variant, format!("{SERVICE}{method}"));
    Opening { node: Some(node(cluster)), ..opening }.connect().await
}

async fn ask(client: &mut Client) -> anyhow::Result<()> {
    client.want(CDS, &[]);
    check(&client.sent(CDS).await?);
    Ok(())
}

fn opening(address: SocketAddr, variant: Variant, path: String) -> Opening {
    Opening { target: format!("http://{address}"), path, variant, node: None, window: None, patience: PATIENCE }
}

fn node(cluster: &str) -> Node {
    Node { id: "first".into(), cluster: cluster.into(), ..Node::default() }
}

/// Checks that a response is the complete set.
fn check(sent: &Received) {
    let bytes: usize = sent.entries.iter().filter_map(|entry| Some(entry.any.as_ref()?.value.len())).sum();
    assert_eq!(bytes, SET);
}

/// Polls again and again, without pauses, until there is a set.
async fn poll(address: SocketAddr, cluster: &str) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body: Bytes = json!({"node": {"id": "first", "cluster": cluster}, "typeUrl": CDS}).to_string().into();
    loop {
        sender.ready().await.unwrap();
        let request =
            Request::post("/v3/discovery:clusters").header("host", "weir").header("content-type", "application/json");
        let answer = sender.send_request(request.body(Full::new(body.clone())).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        if head.status == StatusCode::OK {
            assert!(body.len() > SET, "{body:?}");
            return;
        }
    }
}

/// Connects one client after another, each the first of its view.
async fn one_by_one(times: usize) {
    let plane = plane().await;
    let relay = Relay::over(&plane).await;
    let mut views = (0..).map(|number| {
        let cluster = format!("view-{number}");
        plane.world(&cluster).set(&[set()]);
        cluster
    });
    let each = [Asks::OnAStream(Variant::Delta), Asks::OnAStream(Variant::Sotw), Asks::ByPoll, Asks::ByFetch];
    for asks in each {
        let (mut through, mut direct) = (Vec::new(), Vec::new());
        for cluster in views.by_ref().take(times) {
            if let Asks::OnAStream(_) = asks {
                direct.push(timed(async { sync(plane.address, asks, &cluster).await.unwrap() }).await);
            }
            through.push(timed(async { sync(relay.address, asks, &cluster).await.unwrap() }).await);
        }
        println!("{asks:?}: through the relay {}, directly {}", spread(through), spread(direct));
    }
}

/// Connects this many clients of one view at once, each round with a new relay and a new control plane.
async fn all_at_once(clients: usize, rounds: usize) {
    for variant in [Variant::Delta, Variant::Sotw] {
        let (mut connecting, mut through, mut direct) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let plane = plane().await;
            plane.world("web").set(&[set()]);
            direct.push(crowd(plane.address, variant, clients).await);
            through.push(crowd(Relay::over(&plane).await.address, variant, clients).await);
            let relay = Relay::over(&plane).await;
            connecting.push(timed(newcomers(relay.address, variant, clients)).await);
        }
        println!(
            "{clients} clients, {variant}, connected: through the relay {through:.0?} ms, directly {direct:.0?} ms; \
             connecting too: through the relay {connecting:.0?} ms"
        );
    }
}

/// Returns the time from the requests of all clients to the last reply, in milliseconds.
async fn crowd(address: SocketAddr, variant: Variant, clients: usize) -> f64 {
    let (mut connecting, mut connected) = (JoinSet::new(), Vec::new());
    for number in 0..clients {
        if number >= CONNECTING {
            connected.extend(connecting.join_next().await.transpose().unwrap());
        }
        connecting.spawn(async move { connect(address, variant, "web").await.unwrap() });
    }
    connected.extend(connecting.join_all().await);
    assert_eq!(connected.len(), clients);
    timed(async {
        let mut waiting = JoinSet::new();
        for mut client in connected {
            waiting.spawn(async move {
                ask(&mut client).await.unwrap();
                client // so that no client disconnects before all of them have their set
            });
        }
        waiting.join_all().await;
    })
    .await
}

/// Connects new clients. Those that fail to connect try again at once.
async fn newcomers(address: SocketAddr, variant: Variant, clients: usize) {
    let mut waiting = JoinSet::new();
    for _ in 0..clients {
        waiting.spawn(async move {
            let mut failures = 0;
            while let Err(error) = sync(address, Asks::OnAStream(variant), "web").await {
                failures += 1;
                assert!(failures < 100, "{error:#}");
            }
            failures
        });
    }
    let failures: usize = waiting.join_all().await.into_iter().sum();
    if failures > 0 {
        println!("{failures} connections failed");
    }
}

/// Returns how long a future takes, in milliseconds.
async fn timed(what: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    what.await;
    start.elapsed().as_secs_f64() * 1000.0
}

/// Returns the median, the minimum and the maximum.
fn spread(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    match (times.first(), times.get(times.len() / 2), times.last()) {
        (Some(least), Some(median), Some(limit)) => format!("{median:.1} ms ({least:.1} to {limit:.1})"),
        _ => "not measured".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_measurement_of_first_sets_works() {
    one_by_one(1).await;
    all_at_once(100, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "means something only in a release build on a quiet machine"]
async fn figures_of_first_sets_of_one_client_and_of_many() {
    println!("{} processors", std::thread::available_parallelism().unwrap());
    one_by_one(20).await;
    all_at_once(2_000, 3).await;
}

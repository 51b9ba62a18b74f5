//! How long clients that have nothing wait for their first set (docs/performance.md).
//!
//! `cargo test --release --test first_sync -- --ignored --nocapture` measures; without `--ignored` it only tries that it works.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use weir::app::App;
use weir::config::Config;
use weir::proto::discovery::DiscoveryRequest;
use weir::proto::node::Node;
use weir_loadtest::content::Item;
use weir_loadtest::wire::{Opening, Plane, Variant, fetch};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";
const FETCH: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
const PATIENCE: Duration = Duration::from_secs(60);
/// The size of a set.
const SET: usize = 1024;

/// A relay over one delta server, until it is dropped.
struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    async fn over(plane: &Plane) -> Self {
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\n\
             upstream: {{servers: [{{uri: 'http://{}', protocol: delta}}]}}\n",
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

/// How a client asks for all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    OnAStream(Variant),
    ByPoll,
    ByFetch,
}

/// A control plane that answers at once.
async fn plane() -> Plane {
    Plane::start("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// One cluster, which makes the whole set so long.
fn set() -> Item {
    const ALTERNATIVE_NAME: u32 = 28;
    let bare = Item::new(CDS, "cluster", "");
    let room = SET - bare.body.len() - 4; // tag and length of the field
    bare.with(ALTERNATIVE_NAME, "x".repeat(room).as_bytes())
}

/// Connects, asks, and returns once the whole set is there.
async fn sync(address: SocketAddr, asks: Asks, cluster: &str) {
    let node = Node { id: "first".into(), cluster: cluster.into(), ..Node::default() };
    let variant = match asks {
        Asks::OnAStream(variant) => variant,
        Asks::ByPoll | Asks::ByFetch => Variant::Sotw,
    };
    let path = match asks {
        Asks::OnAStream(Variant::Sotw) => format!("{SERVICE}StreamAggregatedResources"),
        Asks::OnAStream(Variant::Delta) => format!("{SERVICE}DeltaAggregatedResources"),
        Asks::ByPoll => return poll(address, cluster).await,
        Asks::ByFetch => FETCH.to_owned(),
    };
    let opening =
        Opening { target: format!("http://{address}"), path, variant, node: None, window: None, patience: PATIENCE };
    let told = if asks == Asks::ByFetch {
        let request = DiscoveryRequest { node: Some(encoded(&node)), type_url: CDS.into(), ..Default::default() };
        fetch(&opening, request).await.unwrap().unwrap()
    } else {
        let mut client = Opening { node: Some(node), ..opening }.connect().await.unwrap();
        client.want(CDS, &[]);
        client.told(CDS).await.unwrap()
    };
    let bytes: usize = told.entries.iter().filter_map(|entry| Some(entry.any.as_ref()?.value.len())).sum();
    assert_eq!(bytes, SET);
}

fn encoded(node: &Node) -> Bytes {
    prost::Message::encode_to_vec(node).into()
}

/// Polls again at once for as long as there is nothing yet.
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

/// One client after another, each the first of its view.
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
                direct.push(timed(sync(plane.address, asks, &cluster)).await);
            }
            through.push(timed(sync(relay.address, asks, &cluster)).await);
        }
        println!("{asks:?}: through the relay {}, directly {}", spread(through), spread(direct));
    }
}

/// So many clients of one view at the same moment, the relay and the control plane new.
async fn all_at_once(clients: usize, rounds: usize) {
    for variant in [Variant::Delta, Variant::Sotw] {
        let asks = Asks::OnAStream(variant);
        let (mut through, mut direct) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let plane = plane().await;
            plane.world("web").set(&[set()]);
            direct.push(timed(crowd(plane.address, asks, clients)).await);
            let relay = Relay::over(&plane).await;
            through.push(timed(crowd(relay.address, asks, clients)).await);
        }
        println!(
            "{clients} clients, {asks:?}: all through the relay after {through:.0?} ms, directly after {direct:.0?} ms"
        );
    }
}

async fn crowd(address: SocketAddr, asks: Asks, clients: usize) {
    let mut waiting = JoinSet::new();
    for _ in 0..clients {
        waiting.spawn(sync(address, asks, "web"));
    }
    waiting.join_all().await;
}

/// In milliseconds.
async fn timed(what: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    what.await;
    start.elapsed().as_secs_f64() * 1000.0
}

/// The median, the least and the most.
fn spread(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    match (times.first(), times.get(times.len() / 2), times.last()) {
        (Some(least), Some(median), Some(most)) => format!("{median:.1} ms ({least:.1} to {most:.1})"),
        _ => "not measured".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_measurement_of_first_sets_works() {
    one_by_one(1).await;
    all_at_once(20, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "means something only in a release build on a quiet machine"]
async fn first_sets_of_one_client_and_of_many() {
    println!("{} processors", std::thread::available_parallelism().unwrap());
    one_by_one(20).await;
    all_at_once(2_000, 3).await;
}

//! Polls per second of one core, compared with a server that always sends the same response (docs/record/performance.md).
//!
//! `cargo test --release --test rest_pace -- --ignored --nocapture` measures; without `--ignored` the test only checks that it works.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use weir::app::App;
use weir::config::Config;

const PATH: &str = "/v3/discovery:clusters";
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const CONNECTIONS: usize = 8;

/// A server on a thread of its own, whose processor time can be read.
struct Server {
    address: SocketAddr,
    task: String,
}

impl Server {
    fn start<F: Future<Output = SocketAddr>>(start: impl FnOnce() -> F + Send + 'static) -> Self {
        let (sent, tell) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let task = std::fs::read_link("/proc/thread-self").unwrap();
            runtime.block_on(async {
                sent.send(Self { address: start().await, task: format!("/proc/{}/stat", task.display()) }).unwrap();
                std::future::pending::<()>().await;
            });
        });
        tell.recv().unwrap()
    }

    /// Starts the relay with the resources of a REST server.
    fn relay(upstream: SocketAddr) -> Self {
        Self::start(move || async move {
            let text = format!(
                "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\nshards: 0\n\
                 upstream: {{servers: [{{rest: 'http://{upstream}', refresh_delay: 1h}}]}}\n"
            );
            let app = App::bind(Config::parse(Path::new("pace.yaml"), &text).unwrap()).await.unwrap();
            let address = app.addresses()[0];
            tokio::spawn(app.run());
            address
        })
    }

    /// Starts a server that sends the same response to every request.
    fn constant(status: StatusCode, body: Bytes) -> Self {
        Self::start(move || async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    socket.set_nodelay(true).unwrap();
                    let body = body.clone();
                    let answer = move |request: Request<Incoming>| {
                        let body = body.clone();
                        async move {
                            request.into_body().collect().await.unwrap();
                            let mut response = Response::new(Full::new(body));
                            *response.status_mut() = status;
                            Ok::<_, Infallible>(response)
                        }
                    };
                    let mut builder = hyper::server::conn::http1::Builder::new();
                    tokio::spawn(
                        builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), service_fn(answer)),
                    );
                }
            });
            address
        })
    }

    /// Returns the seconds of processor time that its thread has used.
    fn used(&self) -> f64 {
        let stat = std::fs::read_to_string(&self.task).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        ticks as f64 / 100.0 // USER_HZ, which is 100 on all Linux platforms
    }

    /// Polls for this long. Returns the number of polls per second of the server's processor time.
    async fn pace(&self, request: &Bytes, expected: (StatusCode, usize), time: Duration) -> f64 {
        let (before, start) = (self.used(), Instant::now());
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (request, address) = (request.clone(), self.address);
            clients.spawn(async move {
                let mut polls = 0;
                let mut sender = connect(address).await;
                while polls == 0 || start.elapsed() < time {
                    let (status, body) = post(&mut sender, request.clone()).await;
                    assert_eq!((status, body.len()), expected);
                    polls += 1;
                }
                polls
            });
        }
        let polls: usize = clients.join_all().await.into_iter().sum();
        polls as f64 / (self.used() - before).max(0.01)
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn post(sender: &mut Sender, body: Bytes) -> (StatusCode, Bytes) {
    sender.ready().await.unwrap();
    let request = Request::post(PATH).header("host", "weir").header("content-type", "application/json");
    let (head, body) = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap().into_parts();
    (head.status, body.collect().await.unwrap().to_bytes())
}

fn request(version: &str, extensions: usize) -> Bytes {
    let extension = |number: usize| {
        json!({"name": format!("envoy.filters.http.number_{number}"), "category": "envoy.filters.http",
            "typeUrls": [format!("envoy.extensions.filters.http.number_{number}.v3.Number")]})
    };
    let extensions: Vec<_> = (0..extensions).map(extension).collect();
    let node = json!({"id": "n", "cluster": "web", "userAgentName": "envoy", "extensions": extensions});
    json!({"node": node, "versionInfo": version, "typeUrl": CDS}).to_string().into()
}

async fn measure(rounds: usize, time: Duration) {
    let clusters: Vec<_> = (0..3_600).map(|number| cluster(&format!("cluster-{number:05}"))).collect();
    let content = json!({"versionInfo": "1", "resources": clusters}).to_string();
    let upstream = Server::constant(StatusCode::OK, content.into());
    let relay = Server::relay(upstream.address);
    let mut sender = connect(relay.address).await;
    let whole = loop {
        let (status, body) = post(&mut sender, request("", 0)).await;
        if status == StatusCode::OK {
            break body;
        }
    };
    assert!(whole.len() > 1_000_000, "{}", whole.len());
    let version = serde_json::from_slice::<Value>(&whole).unwrap()["versionInfo"].as_str().unwrap().to_owned();
    let unchanged = Server::constant(StatusCode::NOT_MODIFIED, Bytes::new());
    let constant = Server::constant(StatusCode::OK, whole.clone());
    let (nothing, all) = ((StatusCode::NOT_MODIFIED, 0), (StatusCode::OK, whole.len()));
    let cases = [
        ("304, a node of 100 bytes", &unchanged, request(&version, 0), nothing),
        ("304, a node of 50 kB, as an Envoy's", &unchanged, request(&version, 350), nothing),
        ("200 with 1 MB, a node of 100 bytes", &constant, request("", 0), all),
    ];
    println!(
        "{} processors, {rounds} rounds of {time:?}, {CONNECTIONS} connections",
        std::thread::available_parallelism().unwrap()
    );
    for (name, baseline, request, expected) in cases {
        let (mut paces, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let base = baseline.pace(&request, expected, time).await;
            let own = relay.pace(&request, expected, time).await;
            paces.push((own, base));
            ratios.push(own / base);
        }
        ratios.sort_by(f64::total_cmp);
        let mean = |of: fn(&(f64, f64)) -> f64| paces.iter().map(of).sum::<f64>() / rounds as f64;
        let (least, middle, limit) = (ratios[0], ratios[rounds / 2], ratios[rounds - 1]);
        println!(
            "{name}: {:.0} polls/s for each core, the constant server {:.0}; ratio {middle:.3} ({least:.3} to {limit:.3})",
            mean(|pace| pace.0),
            mean(|pace| pace.1)
        );
    }
}

fn cluster(name: &str) -> Value {
    json!({"@type": CDS, "name": name, "type": "EDS", "connectTimeout": "0.250s", "lbPolicy": "LEAST_REQUEST",
        "edsClusterConfig": {"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}},
        "metadata": {"filterMetadata": {"own": {"team": "interop"}}}})
}

#[tokio::test]
async fn the_measurement_of_polls_works() {
    measure(1, Duration::from_millis(50)).await;
}

#[tokio::test]
#[ignore = "takes a minute, and means something only in a release build on a quiet machine"]
async fn figures_of_polls_per_second_of_one_core() {
    measure(5, Duration::from_secs(2)).await;
}

//! A control plane that changes a set several times a second, and clients that record when they receive each change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::one_cluster::CDS;
use weir_testkit::plane::{Plane, Stream, encoded};
use weir_testkit::program::Program;
use weir_testkit::wait::until;

const VIEWS: [&str; 3] = ["web", "batch", "edge"];

pub struct Churn {
    shared: Arc<Shared>,
    pace: Duration,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    /// When each change was sent. The index is the version.
    sent: Mutex<Vec<Instant>>,
    streams: Mutex<Vec<UnboundedSender<Bytes>>>,
    delays: Mutex<Vec<Duration>>,
    /// The newest version that each client has.
    have: Vec<AtomicUsize>,
}

impl Churn {
    /// Connects the clients, and waits until each has a first version.
    pub async fn start(plane: &mut Plane, program: &Program, is_long: bool) -> Self {
        let (clients, pace) = if is_long { (100, 50) } else { (30, 100) };
        let have = (0..clients).map(|_| AtomicUsize::new(0)).collect();
        let shared = Arc::new(Shared { sent: Mutex::new(vec![Instant::now()]), have, ..Shared::default() });
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let client = Client::connect(program.address.parse().unwrap(), Variant::Delta).await;
            client.ask(CDS, &[], Some(VIEWS[number % VIEWS.len()]));
            tasks.spawn(follow(client, number, shared.clone()));
        }
        for _ in VIEWS {
            let stream = plane.stream().await;
            tasks.spawn(serve(stream, shared.clone()));
        }
        let churn = Self { shared, pace: Duration::from_millis(pace), _tasks: tasks };
        until("the control plane is asked", async || churn.shared.streams.lock().unwrap().len() == VIEWS.len()).await;
        churn.change();
        churn.all_have_it().await;
        churn
    }

    fn change(&self) {
        let mut sent = self.shared.sent.lock().unwrap();
        sent.push(Instant::now());
        let response = response(sent.len() - 1);
        for stream in &*self.shared.streams.lock().unwrap() {
            stream.send(response.clone()).expect("the relay has left its server");
        }
    }

    /// Changes the set for some time, and waits until all clients have the last change. Returns the 99th percentile of the delivery times.
    pub async fn p99(&self, time: Duration) -> Duration {
        self.shared.delays.lock().unwrap().clear();
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.change();
            tokio::time::sleep(self.pace).await;
        }
        self.all_have_it().await;
        let mut delays = std::mem::take(&mut *self.shared.delays.lock().unwrap());
        delays.sort();
        delays[(delays.len() * 99).div_ceil(100) - 1]
    }

    async fn all_have_it(&self) {
        let last = self.shared.sent.lock().unwrap().len() - 1;
        let has = |client: &AtomicUsize| client.load(Ordering::Relaxed) == last;
        until("all have the last change", async || self.shared.have.iter().all(has)).await;
    }
}

fn body(version: usize) -> Any {
    let mut value = vec![0x0a, 1, b'a', 0xe2, 0x01, 6]; // the name, and `alt_stat_name`
    value.extend(format!("{version:06}").bytes());
    Any { type_url: CDS.into(), value: value.into() }
}

fn response(version: usize) -> Bytes {
    let text = version.to_string();
    let resource =
        Resource { name: "a".into(), version: text.clone(), resource: Some(body(version)), ..Default::default() };
    let response =
        DeltaDiscoveryResponse { nonce: text, type_url: CDS.into(), resources: vec![resource], ..Default::default() };
    encoded(&Response::Delta(response))
}

async fn serve(mut stream: Stream, shared: Arc<Shared>) {
    stream.request().await;
    shared.streams.lock().unwrap().push(stream.responses.clone());
    while stream.requests.recv().await.is_some() {}
}

async fn follow(mut client: Client, number: usize, shared: Arc<Shared>) {
    let Client::Delta(requests, replies) = &mut client else { unreachable!() };
    loop {
        let reply = tokio::time::timeout(100 * PATIENCE, replies.message()).await.expect("no reply");
        let Ok(Some(reply)) = reply else { return }; // at the end; if a client lacks a change, the wait for it fails
        assert_eq!(reply.removed_resources, [""; 0]);
        for resource in &reply.resources {
            let value = &resource.resource.as_ref().unwrap().value;
            let version: usize = std::str::from_utf8(&value[value.len() - 6..]).unwrap().parse().unwrap();
            let before = shared.have[number].swap(version, Ordering::Relaxed);
            assert!(version > before, "{version} after {before}");
            let sent = shared.sent.lock().unwrap()[version];
            shared.delays.lock().unwrap().push(sent.elapsed());
        }
        let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: reply.nonce, ..Default::default() };
        let _ = requests.send(ack); // the stream may have ended
    }
}

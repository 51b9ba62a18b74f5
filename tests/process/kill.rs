//! The program is killed at random moments under churn and started again. No client is sent an older resource than it has, or a part of a set as
//! if it were all of it. `WEIR_KILLS` sets the number of kills.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;
use weir_testkit::address::own_address;
use weir_testkit::client::{self, Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::last_errors;
use weir_testkit::plane::{Plane, Stream};
use weir_testkit::program::Program;

use crate::WEIR;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];
const NAMES: usize = 12;
/// The number of kills in a normal run.
const KILLS: usize = 10;

/// The control plane's set at one moment: the change in which each name last changed.
type Truth = BTreeMap<String, u64>;

/// All earlier sets of the control plane, and the current one.
#[derive(Default)]
struct History {
    now: Truth,
    all: HashSet<Truth>,
    changes: u64,
}

impl History {
    fn change(&mut self, name: usize) {
        self.changes += 1;
        if self.now.is_empty() {
            self.now = (0..NAMES).map(|name| (format!("c{name:02}"), self.changes)).collect();
        }
        self.now.insert(format!("c{name:02}"), self.changes);
        self.all.insert(self.now.clone());
    }
}

fn body(name: &str, change: u64) -> Any {
    let text = format!("{change:08}");
    let mut value = vec![0x0a, 3];
    value.extend(name.bytes());
    value.extend([0xc2, 0x3e, 8]);
    value.extend(text.bytes());
    Any { type_url: CDS.into(), value: value.into() }
}

fn read(body: &Any) -> (String, u64) {
    let text = |range: std::ops::Range<usize>| String::from_utf8(body.value[range].to_vec()).unwrap();
    (text(2..5), text(8..16).parse().unwrap())
}

/// Sends the set on a stream whenever it changes. Versions start over with each instance of the control plane.
async fn serve(mut stream: Stream, history: Arc<Mutex<History>>) {
    let (mut sent, mut version) = (Truth::new(), 0);
    let mut asked = false;
    loop {
        while let Ok(request) = stream.requests.try_recv() {
            asked |= matches!(&request, Request::Sotw(of) if of.type_url == CDS)
                || matches!(&request, Request::Delta(of) if of.type_url == CDS);
        }
        if stream.responses.is_closed() {
            return;
        }
        let now = history.lock().unwrap().now.clone();
        if asked && now != sent {
            version += 1;
            let (text, nonce) = (version.to_string(), format!("n{version}"));
            stream.respond(&match stream.variant {
                Variant::Sotw => Response::Sotw(DiscoveryResponse {
                    version_info: text,
                    nonce,
                    type_url: CDS.into(),
                    resources: now.iter().map(|(name, change)| body(name, *change)).collect(),
                    ..Default::default()
                }),
                Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
                    nonce,
                    type_url: CDS.into(),
                    resources: now
                        .iter()
                        .filter(|(name, change)| sent.get(*name) != Some(change))
                        .map(|(name, change)| Resource {
                            name: name.clone(),
                            version: text.clone(),
                            resource: Some(body(name, *change)),
                            ..Default::default()
                        })
                        .collect(),
                    ..Default::default()
                }),
            });
            sent = now;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// A client that keeps its resources across streams.
#[derive(Default)]
struct Holder {
    holds: Truth,
    version: String,
    versions: BTreeMap<String, String>,
    /// When the first reply arrived.
    first: Option<Instant>,
}

impl Holder {
    async fn connect(&self, address: SocketAddr, variant: Variant) -> Option<Client> {
        let client = Client::try_connect(address, variant).await?;
        match &client {
            Client::Sotw(requests, _) => drop(requests.send(DiscoveryRequest {
                node: client::node("web"),
                type_url: CDS.into(),
                version_info: self.version.clone(),
                ..Default::default()
            })),
            Client::Delta(requests, _) => drop(requests.send(DeltaDiscoveryRequest {
                node: client::node("web"),
                type_url: CDS.into(),
                initial_resource_versions: self.versions.clone(),
                ..Default::default()
            })),
        }
        Some(client)
    }

    /// Reads replies until the stream ends.
    async fn follow(&mut self, client: &mut Client, history: &Mutex<History>) {
        loop {
            let news: Vec<(String, u64)> = match client {
                Client::Sotw(requests, replies) => {
                    let Ok(Some(reply)) = replies.message().await else { return };
                    let whole: Truth = reply.resources.iter().map(read).collect();
                    assert!(
                        history.lock().unwrap().all.contains(&whole),
                        "never the set of a control plane: {whole:?}"
                    );
                    self.version.clone_from(&reply.version_info);
                    let _ = requests.send(DiscoveryRequest {
                        type_url: CDS.into(),
                        version_info: reply.version_info,
                        response_nonce: reply.nonce,
                        ..Default::default()
                    });
                    whole.into_iter().collect()
                }
                Client::Delta(requests, replies) => {
                    let Ok(Some(reply)) = replies.message().await else { return };
                    assert_eq!(reply.removed_resources, [""; 0], "no control plane has removed anything");
                    let versions = reply.resources.iter().map(|of| (of.name.clone(), of.version.clone()));
                    self.versions.extend(versions);
                    let ack = DeltaDiscoveryRequest { response_nonce: reply.nonce, ..Default::default() };
                    let _ = requests.send(DeltaDiscoveryRequest { type_url: CDS.into(), ..ack });
                    reply.resources.iter().filter_map(|of| of.resource.as_ref()).map(read).collect()
                }
            };
            self.first.get_or_insert_with(Instant::now);
            for (name, change) in news {
                let held = self.holds.insert(name.clone(), change).unwrap_or_default();
                assert!(change >= held, "{name}: given {change}, and it held {held}");
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_given_something_older_or_a_part_however_often_the_relay_is_killed() {
    let kills = std::env::var("WEIR_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    for up in BOTH {
        let folder = Folder::new("kill");
        let history = Arc::new(Mutex::new(History::default()));
        history.lock().unwrap().change(0);
        let (mut random, mut holders) =
            (Random(0x9e37_79b9_7f4a_7c15), BOTH.map(|variant| (variant, Holder::default())));
        let mut plane = Some(Plane::start_at(own_address(), &BOTH).await);
        let address = plane.as_ref().unwrap().address;
        let protocol = if up == Variant::Sotw { "sotw" } else { "delta" };
        let quirks = if up == Variant::Sotw { "" } else { ", initial_set: one_response" };
        let config = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
             upstream: {{servers: [{{uri: 'http://{address}', variant: {protocol}{quirks}, backoff: {{initial: 50ms, max: 50ms}}}}]}}\n\
             state: {{path: {}}}\n",
            folder.file("state")
        );
        let mut served_from_disk = Vec::new();
        for kill in 0..kills {
            // The control plane runs in two of three lives of the relay. In half of the others it comes back.
            let is_there = kill == 0 || random.below(3) > 0;
            let comes_back = random.below(2) == 0;
            if !is_there && let Some(plane) = plane.take() {
                plane.kill().await;
            } else if is_there && plane.is_none() {
                plane = Some(Plane::start_at(address, &BOTH).await);
            }
            let program = Program::start(WEIR, &format!("kill-{protocol}.yaml"), &config, PATIENCE);
            last_errors::note(program.admin.parse().unwrap());
            let relay: SocketAddr = program.address.parse().unwrap();
            let mut clients = Vec::new();
            for (variant, holder) in &mut holders {
                clients.push((holder.connect(relay, *variant).await.unwrap(), holder));
            }
            let mut fresh = Holder::default();
            let begun = Instant::now();
            let mut newcomer = fresh.connect(relay, BOTH[kill % 2]).await.unwrap();
            let life = Duration::from_millis(100 + random.below(1200));
            let end = tokio::time::Instant::now() + life;
            let mut serving = tokio::task::JoinSet::new();
            let churn = async {
                while tokio::time::Instant::now() < end {
                    if plane.is_none() && comes_back && end - tokio::time::Instant::now() < life / 2 {
                        plane = Some(Plane::start_at(address, &BOTH).await);
                    }
                    history.lock().unwrap().change(random.below(NAMES as u64) as usize);
                    if let Some(plane) = &mut plane {
                        while let Ok(stream) = plane.streams.try_recv() {
                            serving.spawn(serve(stream, history.clone()));
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                drop(program); // kills the program, without a signal before
            };
            let mut clients = clients.into_iter();
            let ((mut one, first), (mut two, second)) = (clients.next().unwrap(), clients.next().unwrap());
            tokio::join!(
                churn,
                first.follow(&mut one, &history),
                second.follow(&mut two, &history),
                fresh.follow(&mut newcomer, &history)
            );
            assert!(fresh.holds.is_empty() || fresh.holds.len() == NAMES, "kill {kill}: a part: {:?}", fresh.holds);
            if !is_there && !comes_back && fresh.holds.len() == NAMES {
                served_from_disk.extend(fresh.first.map(|first| first - begun));
            }
        }
        // In the end no client may keep anything outdated.
        let mut plane = match plane {
            Some(plane) => plane,
            None => Plane::start_at(address, &BOTH).await,
        };
        let program = Program::start(WEIR, &format!("kill-{protocol}.yaml"), &config, PATIENCE);
        last_errors::note(program.admin.parse().unwrap());
        for (variant, mut holder) in holders {
            let mut client = holder.connect(program.address.parse().unwrap(), variant).await.unwrap();
            let last = history.lock().unwrap().now.clone();
            let mut serving = tokio::task::JoinSet::new();
            let catches_up = async {
                while holder.holds != last {
                    let step = Duration::from_millis(50);
                    let _ = tokio::time::timeout(step, holder.follow(&mut client, &history)).await;
                    while let Ok(stream) = plane.streams.try_recv() {
                        serving.spawn(serve(stream, history.clone()));
                    }
                }
            };
            tokio::time::timeout(2 * PATIENCE, catches_up).await.expect("it stays behind");
        }
        served_from_disk.sort();
        println!(
            "{up:?}: {kills} kills; first replies while the control plane was away, after the start: {served_from_disk:.1?}"
        );
    }
}

//! Compares what the relay charges for things with what its allocator has handed out for them. A charge that is off by more than a fifth fails the test,
//! since [docs/sizing.md](../../docs/sizing.md#memory) and all decisions about memory depend on the charges.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use weir_loadtest::kind::Kind;
use weir_loadtest::link::{ADS_DELTA, Event, Link, LinkOptions, scan};
use weir_loadtest::origin::{Counts, LOADS, Origin};
use weir_testkit::admin;
use weir_testkit::certificates::Authority;
use weir_testkit::folder::Folder;
use weir_testkit::program::Program;
use weir_testkit::resources::{CDS, EDS};

use crate::{HEAVY, WEIR};

const PATIENCE: Duration = Duration::from_secs(20);
/// The number of clusters in the relay's files.
const CLUSTERS: usize = 5000;

/// The bytes that are charged, and the bytes that the allocator has handed out.
#[derive(Debug, Clone, Copy)]
struct Sample {
    book: f64,
    live: f64,
}

/// The program behind a control plane.
struct World {
    program: Program,
    /// The names of all clusters.
    clusters: Vec<String>,
    clients: tokio::task::JoinSet<()>,
    reporters: usize,
    _plane: Origin,
}

impl World {
    async fn start(name: &str) -> Self {
        Self::start_with(name, "").await
    }

    /// Starts the program with additional configuration.
    async fn start_with(name: &str, more: &str) -> Self {
        Self::start_at(name, "{address: '127.0.0.1:0'}", more).await
    }

    /// Starts the program with a listener of this form.
    async fn start_at(name: &str, listener: &str, more: &str) -> Self {
        let counts = Counts { clusters: CLUSTERS, routes: 1, listeners: 1, size: 100 };
        let plane = Origin::start(([127, 0, 0, 1], 0).into(), counts, None).await.unwrap();
        let clusters = plane.shared().world().set(Kind::Cluster).keys().map(ToString::to_string).collect();
        let config = format!(
            "listen: [{listener}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
             upstream: {{servers: [{{uri: 'http://{}'}}]}}\n\
             limits: {{memory: 8GiB, new_streams_per_second: 0, new_names_per_second: 0, handshake_timeout: 60s, \
             handshakes_per_address: 0}}\n{more}",
            plane.address
        );
        let program = Program::start_by(Command::new(WEIR), &format!("memory-{name}.yaml"), &config, PATIENCE);
        Self { program, clusters, clients: tokio::task::JoinSet::new(), reporters: 0, _plane: plane }
    }

    /// Returns the first names of the clusters.
    fn clusters(&self, count: usize) -> Vec<String> {
        self.clusters[..count].to_vec()
    }

    async fn sample(&self) -> Sample {
        let (_, metrics) = admin::get(&self.program.admin, "/metrics").await;
        let of = |name: &str| admin::value_of(&metrics, name).unwrap_or_else(|| panic!("no {name}"));
        Sample { book: of("weir_memory_book_bytes"), live: of("weir_memory_live_bytes") }
    }

    /// Opens connections with so many streams each, which subscribe to these names and stay open until the end.
    async fn connect(
        &mut self,
        connections: usize,
        streams: usize,
        url: &'static str,
        names: impl Fn(usize) -> Vec<String>,
    ) {
        let address: SocketAddr = self.program.address.parse().unwrap();
        for number in 0..connections {
            let mut link = Link::open(address, &LinkOptions::default()).await.unwrap();
            let node = scan::node(&format!("node-{number}"), "one");
            for stream in 0..streams {
                let names = names(number * streams + stream);
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                let id = link.start(ADS_DELTA);
                link.send(id, scan::delta_subscribe(url, Some(&node), &names));
            }
            self.clients.spawn(async move {
                loop {
                    match link.next().await {
                        Event::Message(stream, message) => {
                            if let Some(seen) = scan::delta(&message) {
                                link.send(stream, scan::delta_ack(&seen));
                            }
                        }
                        Event::Ended(_, status) => panic!("{status}"),
                        Event::Closed(_) => return,
                    }
                }
            });
        }
    }

    /// Opens connections with so many streams of load reports each, which have nodes of their own and stay open until the end.
    async fn report_loads(&mut self, connections: usize, streams: usize) {
        let address: SocketAddr = self.program.address.parse().unwrap();
        for _ in 0..connections {
            self.reporters += 1;
            let mut link = Link::open(address, &LinkOptions::default()).await.unwrap();
            for stream in 0..streams {
                let node = format!("reporter-{:04}-{stream:04}", self.reporters);
                let id = link.start(LOADS);
                link.send(id, scan::load_report(&scan::node(&node, &node)));
            }
            self.clients.spawn(async move {
                loop {
                    match link.next().await {
                        Event::Message(..) => {}
                        Event::Ended(_, status) => panic!("{status}"),
                        Event::Closed(_) => return,
                    }
                }
            });
        }
    }

    /// Waits until neither the charges nor the allocated bytes change any more. A relay that gets no processor time for a while seems to be at rest, so
    /// they must be the same several times.
    async fn settled(&self) -> Sample {
        let (mut before, mut same) = (self.sample().await, 0);
        for _ in 0..120 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.sample().await;
            same = if now.book == before.book && (now.live - before.live).abs() < 1e5 { same + 1 } else { 0 };
            if same == 4 {
                return now;
            }
            before = now;
        }
        panic!("it does not come to rest: {before:?}");
    }
}

/// Returns the growth per thing.
fn each(before: Sample, after: Sample, count: usize) -> Sample {
    let count = count as f64;
    Sample { book: (after.book - before.book) / count, live: (after.live - before.live) / count }
}

fn check(what: &str, each: Sample) {
    let ratio = each.book / each.live;
    println!("{what}: {:.0} bytes, charged with {:.0}", each.live, each.book);
    assert!((0.8..=1.2).contains(&ratio), "{what}: {:.0} bytes, charged with {:.0}", each.live, each.book);
}

#[tokio::test]
#[ignore = "measures memory at rest, which a busy machine only seems to reach"]
async fn night_what_a_connection_costs() {
    let _turn = HEAVY.lock().await;
    let mut world = World::start("connections").await;
    let names = world.clusters(20);
    world.connect(200, 1, CDS, |_| names.clone()).await;
    let before = world.settled().await;
    world.connect(2000, 1, CDS, |_| names.clone()).await;
    check("a connection with a stream and 20 names", each(before, world.settled().await, 2000));
}

#[tokio::test]
#[ignore = "measures memory at rest, which a busy machine only seems to reach"]
async fn night_what_a_stream_costs() {
    let _turn = HEAVY.lock().await;
    let mut world = World::start("streams").await;
    let names = world.clusters(1);
    world.connect(8, 10, CDS, |_| names.clone()).await;
    let before = world.settled().await;
    world.connect(8, 2000, CDS, |_| names.clone()).await;
    check("a stream with a name", each(before, world.settled().await, 16_000));
}

#[tokio::test]
#[ignore = "measures memory at rest, which a busy machine only seems to reach"]
async fn night_what_a_name_costs() {
    let _turn = HEAVY.lock().await;
    let mut world = World::start("names").await;
    let all = world.clusters(CLUSTERS);
    world.connect(20, 1, CDS, |_| all.clone()).await; // enough that all threads exist
    let before = world.settled().await;
    world.connect(40, 1, CDS, |_| all.clone()).await;
    let sent = world.settled().await;
    check("a name that was sent", each(before, sent, 40 * CLUSTERS));
    let made_up =
        |stream| (0..10_000).map(|number| format!("made-up-with-a-long-name-{stream:06}-{number:06}")).collect();
    world.connect(20, 1, EDS, made_up).await;
    check("a name that nobody has", each(sent, world.settled().await, 200_000));
}

#[tokio::test]
#[ignore = "measures memory at rest, which a busy machine only seems to reach"]
async fn night_what_a_handshake_costs() {
    let _turn = HEAVY.lock().await;
    let (folder, identity) = (Folder::new("memory"), Authority::new().sign("localhost"));
    folder.write("certificate.pem", &identity.certificate);
    folder.write("key.pem", &identity.key);
    let (certificate, key) = (folder.file("certificate.pem"), folder.file("key.pem"));
    let listener = format!("{{address: '127.0.0.1:0', tls: {{certificate: '{certificate}', key: '{key}'}}}}");
    let world = World::start_at("handshakes", &listener, "").await;
    // The start of a message of 512 bytes.
    let begin = |count: usize| -> Vec<TcpStream> {
        let one = || {
            let mut socket = TcpStream::connect(&world.program.address).unwrap();
            socket.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
            socket
        };
        (0..count).map(|_| one()).collect()
    };
    let _some = begin(100);
    let before = world.settled().await;
    let _more = begin(2000);
    check("a TLS handshake", each(before, world.settled().await, 2000));
}

#[tokio::test]
#[ignore = "measures memory at rest, which a busy machine only seems to reach"]
async fn night_what_reporting_loads_costs() {
    let _turn = HEAVY.lock().await;
    for (mode, what) in [("pass_through", "a stream of load reports"), ("aggregate", "a view with load reports")] {
        let mut world = World::start_with(mode, &format!("load_reports: {{mode: {mode}}}\n")).await;
        world.report_loads(4, 100).await;
        let before = world.settled().await;
        world.report_loads(30, 100).await;
        check(what, each(before, world.settled().await, 3000));
    }
}

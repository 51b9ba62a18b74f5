//! The program in-process, between a scripted control plane and scripted clients, over real connections.

mod admin_access;
mod admin_tls;
mod after_outage;
mod against;
mod asking;
mod audit;
mod brakes;
mod client_status;
mod client_tls;
mod client_tls_files;
mod client_tls_limits;
mod client_tls_reload;
mod compressed_replies;
mod compression;
mod connections;
#[path = "../../core/tests/model/content.rs"]
#[allow(dead_code)] // the model uses the rest
mod content;
mod diff_server;
mod differential;
mod documented;
mod drains;
mod driver;
mod dumps;
mod ends;
mod evidence;
mod evidence_cold;
mod evidence_crowd;
mod evidence_entries;
mod evidence_silence;
mod examples;
mod explain;
mod failover;
mod fallen_before;
mod files;
mod first_answer;
mod flock;
mod health;
mod heavy_beside;
mod holder;
mod hung_files;
mod identity;
mod identity_limits;
mod ignored_files;
mod judged_calls;
mod key_against;
mod key_headers;
mod ladder;
mod large;
mod life;
mod live;
mod load_quotas;
mod loads;
mod log_lines;
mod log_paces;
mod long_work;
mod members;
mod members_beside;
mod memory;
mod nacks;
mod on_shards;
mod order_pace;
#[path = "../../core/tests/model/origin.rs"]
#[allow(dead_code)] // the model also reads what a response means, and requests repetitions
mod origin;
mod partition;
mod pieces;
mod poller;
mod probes;
mod problems;
mod proxy_protocol;
mod readiness;
mod recordings;
mod refused_pace;
mod refused_types;
mod reload;
mod reload_again;
mod reload_watch;
mod removals;
mod replicas;
mod request_size;
mod rest;
mod rest_source;
mod rollout;
mod server_headers;
mod server_info;
mod server_names;
mod services;
mod shared;
mod shares;
mod shown;
mod silence;
#[path = "../support/sixteen_threads.rs"]
mod sixteen_threads;
mod status;
mod storm;
mod storm_far;
mod symptoms;
mod tap;
mod tenants;
mod tiers;
mod tls;
mod traces;
mod type_urls;
mod types;
mod unix;
mod unnamed;
mod unread;
mod upgrade;
mod upstream_connections;
mod upstream_lost;
mod variants;
mod void;
mod waits;
mod warm_start;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tonic::Code;
use weir::app::App;
use weir::config::Config;
use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::BrakeRules;
use weir_testkit::address::any_address;
use weir_testkit::admin::value_of;
use weir_testkit::client::{Client, exchange};
use weir_testkit::plane::{Plane, Stream};
use weir_testkit::resources::{BOTH, CDS, EDS, LDS, cluster, nonce_of, protocol_of, said, say, say_any, say_named};
use weir_testkit::wait::until;
use weir_testkit::{certificates, client, collector, gzip, last_errors, load_plane, plane, rest_plane};

/// Locked by each test that keeps the processors busy, so that these tests run one at a time. Others mostly wait, and run beside them.
static HEAVY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct Relay {
    address: SocketAddr,
    admin: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    fn new(address: SocketAddr, admin: SocketAddr, task: tokio::task::JoinHandle<()>) -> Self {
        log_lines::ask_each_time();
        last_errors::note(admin);
        Self { address, admin, task }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(plane: SocketAddr, protocol: &str) -> Relay {
    run(bind(config(plane, protocol, "views: {key: [cluster]}\n")).await.unwrap(), std::future::pending())
}

fn config(plane: SocketAddr, protocol: &str, rest: &str) -> Config {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{plane}'{protocol}}}]}}\n{rest}\n"
    );
    Config::parse(Path::new("test.yaml"), &text).unwrap()
}

/// Starts a relay for these servers with changed protocol options. `upstream` is the value of the key, and `rest` has further keys.
async fn relay_with_options(upstream: &str, rest: &str, change: impl FnOnce(&mut ProtocolOptions)) -> Relay {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {upstream}\n\
         views: {{key: [cluster]}}\n{rest}"
    );
    let mut config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    change(&mut config.views.protocol);
    run(bind(config).await.unwrap(), std::future::pending())
}

/// Builds the program without brakes: most tests remove resources, and wait for clients to be sent the removals.
async fn bind(mut config: Config) -> anyhow::Result<App> {
    config.views.protocol.view.brakes = BrakeRules::default();
    config.hub.iter_mut().for_each(|hub| hub.protocol.view.brakes = BrakeRules::default());
    bind_with_brakes(config).await
}

/// Builds the program with connections on two shards, unless the configuration states another number, or the test reads the log: it sees the lines of its
/// own thread alone. `WEIR_TEST_SHARDS=0`: whatever a test is about also holds without shards.
async fn bind_with_brakes(mut config: Config) -> anyhow::Result<App> {
    let reads_log = tracing::dispatcher::get_default(|subscriber| subscriber.is::<log_lines::Lines>());
    let stated = std::env::var("WEIR_TEST_SHARDS").map_or(2, |count| count.parse().unwrap());
    config.set_default_shards(if reads_log { 0 } else { stated });
    App::bind(config).await
}

fn run(app: App, stop: impl Future<Output = ()> + Send + 'static) -> Relay {
    let (address, admin) = (app.addresses()[0], app.admin_address().unwrap());
    Relay::new(address, admin, tokio::spawn(app.run_until(stop)))
}

async fn each_translation<F: Future<Output = ()>>(case: impl Fn(Variant, Variant) -> F) {
    for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        println!("{up:?} upstream, {down:?} downstream");
        case(up, down).await;
    }
}

const TWO: [(&str, &str); 2] = [("a", "1"), ("b", "1")];

async fn get(address: SocketAddr, path: &str) -> String {
    probe(address, path).await.1
}

/// Waits until a page contains this, and returns it.
async fn report_with(relay: &Relay, path: &str, wanted: &str) -> String {
    let start = tokio::time::Instant::now();
    loop {
        let report = get(relay.admin, path).await;
        if report.contains(wanted) {
            return report;
        }
        assert!(start.elapsed() < client::PATIENCE, "no {wanted} in {report}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns status and body of a response.
async fn probe(address: SocketAddr, path: &str) -> (u16, String) {
    weir_testkit::admin::get(&address.to_string(), path).await
}

/// Returns the value of a metric, by its name and labels.
async fn metric(relay: &Relay, name: &str) -> f64 {
    let metrics = get(relay.admin, "/metrics").await;
    value_of(&metrics, name).unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// Returns how often a limit was reached, by its key.
async fn reached(relay: &Relay, key: &str) -> u64 {
    metric(relay, &format!("weir_limit_reached_total{{limit=\"{key}\"}}")).await as u64
}

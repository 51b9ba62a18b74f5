//! The program in-process, between a scripted control plane and scripted clients, over real connections.

mod admin_access;
mod admin_tls;
mod after_outage;
mod against;
mod asking;
mod audit;
mod brakes;
mod certificates;
mod client;
mod client_status;
mod client_tls;
mod client_tls_files;
mod client_tls_limits;
mod client_tls_reload;
mod collector;
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
mod files;
mod first_answer;
mod flock;
#[path = "../support/gzip.rs"]
mod gzip;
mod health;
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
mod last_errors;
mod life;
mod live;
mod load_plane;
mod load_quotas;
mod loads;
mod log_lines;
mod log_paces;
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
mod plane;
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
mod rest_plane;
mod rest_source;
mod rollout;
mod scripts;
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
mod strict_plane;
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

use client::{Client, exchange};
use plane::{Plane, Stream};
use tonic::Code;
use weir::app::App;
use weir::config::Config;
use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::BrakeRules;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

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
         upstream: {{servers: [{{uri: 'http://{plane}'{protocol}}}]}}\n{rest}\n{}",
        shards_for(rest)
    );
    Config::parse(Path::new("test.yaml"), &text).unwrap()
}

/// Whatever a test is about also holds for connections on shards: `WEIR_TEST_SHARDS=2`.
fn shards_for(rest: &str) -> String {
    match std::env::var("WEIR_TEST_SHARDS") {
        Ok(count) if !rest.contains("shards:") => format!("shards: {count}\n"),
        _ => String::new(),
    }
}

/// Builds the program without brakes: most tests remove resources, and wait for clients to be sent the removals.
async fn bind(mut config: Config) -> anyhow::Result<App> {
    config.views.protocol.view.brakes = BrakeRules::default();
    config.hub.iter_mut().for_each(|hub| hub.protocol.view.brakes = BrakeRules::default());
    App::bind(config).await
}

fn run(app: App, stop: impl Future<Output = ()> + Send + 'static) -> Relay {
    let (address, admin) = (app.addresses()[0], app.admin_address().unwrap());
    Relay::new(address, admin, tokio::spawn(app.run_until(stop)))
}

/// Polls until a condition holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(client::PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Returns a cluster whose body contains `content`.
fn cluster(name: &str, content: &str) -> Any {
    let mut value = vec![0x0a];
    prost::encoding::encode_varint(name.len() as u64, &mut value);
    value.extend(name.bytes());
    value.extend([0xc2, 0x3e]);
    prost::encoding::encode_varint(content.len() as u64, &mut value);
    value.extend(content.bytes());
    Any { type_url: CDS.into(), value: value.into() }
}

/// Sends the next SotW response of a type whose bodies are only names.
fn say_any(stream: &Stream, url: &str, names: &[&str]) {
    let named = |name: &&str| Any { type_url: url.into(), ..cluster(name, "") };
    let resources = names.iter().map(named).collect();
    let (version_info, nonce, type_url) = ("1".into(), "1".into(), url.into());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info,
        resources,
        type_url,
        nonce,
        ..Default::default()
    }));
}

/// Waits until the relay requests a name, and sends a resource that has only that name.
async fn say_named(stream: &mut Stream, url: &str, name: &str) {
    let names = |request: &Request| match request {
        Request::Sotw(request) => request.resource_names.clone(),
        Request::Delta(request) => request.resource_names_subscribe.clone(),
    };
    loop {
        let request = stream.request().await;
        if request.type_url() == url && names(&request).iter().any(|requested| requested == name) {
            break;
        }
    }
    if stream.variant == Variant::Sotw {
        return say_any(stream, url, &[name]);
    }
    let resource = Some(Any { type_url: url.into(), ..cluster(name, "") });
    let resources = vec![Resource { name: name.into(), version: "1".into(), resource, ..Default::default() }];
    let (type_url, nonce) = (url.into(), "1".into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { resources, type_url, nonce, ..Default::default() }));
}

/// Sends the next response.
fn say(stream: &Stream, version: &str, whole: &[(&str, &str)], news: &[(&str, &str)], gone: &[&str]) {
    stream.respond(&said(stream.variant, version, whole, news, gone));
}

/// Returns the next response: in SotW the complete set, in delta what is new and what is removed.
fn said(variant: Variant, version: &str, whole: &[(&str, &str)], news: &[(&str, &str)], gone: &[&str]) -> Response {
    match variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: version.into(),
            resources: whole.iter().map(|(name, content)| cluster(name, content)).collect(),
            type_url: CDS.into(),
            nonce: version.into(),
            ..Default::default()
        }),
        Variant::Delta => {
            let wrap = |(name, content): &(&str, &str)| Resource {
                version: version.into(),
                name: name.to_string(),
                resource: Some(cluster(name, content)),
                ..Default::default()
            };
            Response::Delta(DeltaDiscoveryResponse {
                system_version_info: version.into(),
                resources: news.iter().map(wrap).collect(),
                removed_resources: gone.iter().map(ToString::to_string).collect(),
                type_url: CDS.into(),
                nonce: version.into(),
                ..Default::default()
            })
        }
    }
}

fn nonce_of(request: &Request) -> &str {
    match request {
        Request::Sotw(request) => &request.response_nonce,
        Request::Delta(request) => &request.response_nonce,
    }
}

async fn each_translation<F: Future<Output = ()>>(case: impl Fn(Variant, Variant) -> F) {
    for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        println!("{up:?} upstream, {down:?} downstream");
        case(up, down).await;
    }
}

fn protocol_of(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => ", variant: sotw",
        Variant::Delta => ", variant: delta",
    }
}

const TWO: [(&str, &str); 2] = [("a", "1"), ("b", "1")];

async fn get(address: SocketAddr, path: &str) -> String {
    probe(address, path).await.1
}

/// Returns status and body of a response.
async fn probe(address: SocketAddr, path: &str) -> (u16, String) {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    exchange(socket, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
}

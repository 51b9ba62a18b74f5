//! Whether clients should connect to a relay, at its admin address and by `grpc.health.v1`.

use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request as Call, Streaming};
use tonic_prost::ProstCodec;
use weir_core::proto::discovery::{ResourceLocator, Status};

use super::client::PATIENCE;
use super::log_lines::Lines;
use super::*;

const ADS: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// A client of the health service. Its messages are read as two discovery messages that have the same first fields: a string and a number.
struct Health(Grpc<Channel>);

struct Watched(Streaming<Status>);

impl Health {
    async fn of(relay: &Relay) -> Self {
        let channel = Endpoint::from_shared(format!("http://{}", relay.address)).unwrap().connect().await.unwrap();
        Self(Grpc::new(channel))
    }

    async fn call(&mut self, service: &str, method: &str) -> (Call<ResourceLocator>, PathAndQuery) {
        self.0.ready().await.unwrap();
        let path = PathAndQuery::from_maybe_shared(format!("/grpc.health.v1.Health/{method}")).unwrap();
        (Call::new(ResourceLocator { name: service.into(), ..Default::default() }), path)
    }

    async fn check(&mut self, service: &str) -> Result<i32, Code> {
        let (call, path) = self.call(service, "Check").await;
        let answer = self.0.unary(call, path, ProstCodec::<_, Status>::default()).await;
        answer.map(|answer| answer.into_inner().code).map_err(|status| status.code())
    }

    async fn watch(&mut self, service: &str) -> Watched {
        let (call, path) = self.call(service, "Watch").await;
        Watched(self.0.server_streaming(call, path, ProstCodec::default()).await.unwrap().into_inner())
    }
}

impl Watched {
    /// Returns the next status; `None` at the end.
    async fn next(&mut self) -> Option<i32> {
        let message = tokio::time::timeout(PATIENCE, self.0.message()).await.expect("nothing came");
        message.unwrap().map(|status| status.code)
    }
}

/// Waits until a probe has this status, and a body that contains this text.
async fn probed(relay: &Relay, path: &str, status: u16, part: &str) {
    let as_expected = async || {
        let (now, body) = probe(relay.admin, path).await;
        now == status && body.contains(part)
    };
    until(&format!("{path}: {status} {part}"), as_expected).await;
}

#[tokio::test]
async fn a_relay_is_ready_once_a_server_has_answered_and_stays_so_in_an_outage() {
    let nowhere = any_address().await;
    let relay = relay(nowhere, "").await;
    let mut health = Health::of(&relay).await;
    let (mut all, mut ads) = (health.watch("").await, health.watch(ADS).await);
    assert_eq!((all.next().await, ads.next().await), (Some(NOT_SERVING), Some(NOT_SERVING)));
    assert_eq!((health.check("").await, health.check(ADS).await), (Ok(NOT_SERVING), Ok(NOT_SERVING)));
    probed(&relay, "/ready", 503, &format!("no answer from a server yet: http://{nowhere}: ")).await;
    assert_eq!(probe(relay.admin, "/healthz").await.0, 200);

    let mut plane = Plane::start_at(nowhere, &BOTH).await;
    assert_eq!((all.next().await, ads.next().await), (Some(SERVING), Some(SERVING)), "without any client");
    assert_eq!((health.check("").await, health.check(ADS).await), (Ok(SERVING), Ok(SERVING)));
    assert_eq!(probe(relay.admin, "/ready").await, (200, "ready\n".to_owned()));
    assert!(plane.streams.try_recv().is_err(), "nothing was asked for");

    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    probed(&relay, "/ready?strict", 503, "no response from a server yet: view=").await;
    assert_eq!(probe(relay.admin, "/ready").await.0, 200);
    say(&stream, "1", &[], &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    probed(&relay, "/ready?strict", 200, "ready").await;

    let address = plane.kill().await;
    drop(stream);
    probed(&relay, "/ready?strict", 503, "no server reachable: view=").await;
    let other = Client::connect(relay.address, Variant::Delta).await;
    other.ask(CDS, &[], Some("other"));
    probed(&relay, "/ready?strict", 503, "view=").await;
    assert_eq!(probe(relay.admin, "/ready").await.0, 200);
    assert_eq!(health.check("").await, Ok(SERVING));
    let mut plane = Plane::start_at(address, &BOTH).await;
    let (first, second) = (plane.stream().await, plane.stream().await);
    [&first, &second].into_iter().for_each(|stream| say(stream, "1", &[], &TWO, &[]));
    probed(&relay, "/ready?strict", 200, "ready").await;
}

#[tokio::test]
async fn the_log_says_why_a_relay_is_not_ready_and_that_it_is() {
    let (lines, _guard) = Lines::of_this_thread();
    let nowhere = any_address().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let drain = "views: {key: [cluster]}\ndrain: {grace: 1s, spread: 10ms}\n";
    let mut relay = run(crate::bind(config(nowhere, "", drain)).await.unwrap(), async move { drop(stopped.await) });
    until("it is not ready", async || !lines.with("relay not ready").is_empty()).await;
    assert!(lines.with("relay not ready")[0].1.contains("no answer from a server yet: http://"));
    assert!(lines.with("relay ready").is_empty());
    let _plane = Plane::start_at(nowhere, &BOTH).await;
    until("it is ready", async || !lines.with("relay ready").is_empty()).await;
    stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, &mut relay.task).await.expect("the relay has not ended").unwrap();
    let counts = ["relay not ready", "relay ready"].map(|line| lines.with(line).len());
    assert_eq!(counts, [1, 1], "that it drains has a line of its own");
}

#[tokio::test]
async fn health_is_reported_of_services_that_are_served() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    probed(&relay, "/ready", 200, "ready").await;
    let mut health = Health::of(&relay).await;
    assert_eq!((health.check("").await, health.check(ADS).await), (Ok(SERVING), Ok(SERVING)));
    assert_eq!(health.check("envoy.service.cluster.v3.ClusterDiscoveryService").await, Ok(SERVING));
    assert_eq!(health.check("nobody").await, Err(Code::NotFound));
    assert_eq!(health.watch("nobody").await.next().await, Some(SERVICE_UNKNOWN));
}

#[tokio::test]
async fn trn_19_a_relay_that_drains_is_not_ready_at_once_and_serves_until_the_delay_is_over() {
    const DELAY: Duration = Duration::from_secs(10);
    let mut plane = Plane::start(&BOTH).await;
    let drain = "views: {key: [cluster]}\ndrain: {delay: 10s, grace: 20s, spread: 10ms}\n";
    let (stop, stopped) = oneshot::channel::<()>();
    let app = crate::bind(config(plane.address, "", drain)).await.unwrap();
    let mut relay = run(app, async move { drop(stopped.await) });
    let mut early = Client::connect(relay.address, Variant::Delta).await;
    early.ask(CDS, &[], Some("web"));
    say(&plane.stream().await, "1", &[], &TWO, &[]);
    assert_eq!(early.sent().await.set, ["a", "b"]);
    let mut health = Health::of(&relay).await;
    let (mut known, mut unknown) = (health.watch(ADS).await, health.watch("nobody").await);
    assert_eq!((known.next().await, unknown.next().await), (Some(SERVING), Some(SERVICE_UNKNOWN)));

    let start = Instant::now();
    stop.send(()).unwrap();
    assert_eq!(known.next().await, Some(NOT_SERVING));
    assert_eq!(probe(relay.admin, "/ready").await, (503, "draining\n".to_owned()));
    assert_eq!(probe(relay.admin, "/healthz").await.0, 200);
    let mut late = Client::connect(relay.address, Variant::Delta).await;
    late.ask(CDS, &[], Some("web"));
    assert_eq!(late.sent().await.set, ["a", "b"], "accepted and served");

    assert_eq!((early.ended().await, late.ended().await), (Code::Unavailable, Code::Unavailable));
    assert!(start.elapsed() >= DELAY, "they were sent away after {:?}", start.elapsed());
    assert!(Client::try_connect(relay.address, Variant::Delta).await.is_none());
    assert_eq!((known.next().await, unknown.next().await), (None, None));
    drop((early, late, health, known, unknown)); // open connections would be kept for the grace period
    tokio::time::timeout(PATIENCE, &mut relay.task).await.expect("the relay has not ended").unwrap();
}

#[tokio::test]
async fn health_is_not_serving_and_ends_where_there_is_no_delay() {
    let plane = Plane::start(&BOTH).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let app = crate::bind(config(plane.address, "", "drain: {grace: 1m, spread: 10ms}\n")).await.unwrap();
    let relay = run(app, async move { drop(stopped.await) });
    probed(&relay, "/ready", 200, "ready").await;
    let mut watched = Health::of(&relay).await.watch(ADS).await;
    assert_eq!(watched.next().await, Some(SERVING));
    stop.send(()).unwrap();
    assert_eq!((watched.next().await, watched.next().await), (Some(NOT_SERVING), None));
}

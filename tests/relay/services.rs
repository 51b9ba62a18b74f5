//! The services besides ADS: streams of one type, single fetches, and v2; and how a relay drains.

use tokio::sync::oneshot;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Request as Call, Status};
use tonic_prost::ProstCodec;

use super::client::node;
use super::*;
use weir_core::protocol::session::Variant::Delta;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

pub(super) async fn fetch(relay: &Relay, path: &str, request: DiscoveryRequest) -> Result<DiscoveryResponse, Status> {
    let channel = Endpoint::from_shared(format!("http://{}", relay.address)).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path: PathAndQuery = path.parse().unwrap();
    let codec: ProstCodec<DiscoveryRequest, DiscoveryResponse> = ProstCodec::default();
    grpc.unary(Call::new(request), path, codec).await.map(|response| response.into_inner())
}

#[tokio::test]
async fn trn_2_trn_3_trn_8_what_does_not_exist_is_unimplemented() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    for path in [
        "/envoy.service.route.v3.ScopedRouteDiscoveryService/StreamScopedRoutes",
        "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck",
        "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.api.v2.ClusterDiscoveryService/FetchClusters",
    ] {
        let status = fetch(&relay, path, DiscoveryRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn trn_8_trn_9_trn_10_v2_is_served_where_it_is_switched_on() {
    let server = Server::start(Way::Gives("1")).await;
    let config = config(server.address, "", "views: {key: [cluster]}\nclients: {v2: true}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let path = "/envoy.api.v2.EndpointDiscoveryService/DeltaEndpoints";
    let mut client = Client::connect_to(relay.address, Delta, path).await.unwrap();
    client.ask("", &["a"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let path = "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources";
    let mut client = Client::connect_to(relay.address, Delta, path).await.unwrap();
    client.ask("type.googleapis.com/envoy.api.v2.ClusterLoadAssignment", &["a"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
}

#[tokio::test]
async fn trn_12_a_client_without_a_node_is_served_where_that_is_the_policy() {
    let server = Server::start(Way::Gives("1")).await;
    let config = config(server.address, "", "views: {accept_missing_node: true}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = Client::connect(relay.address, Delta).await;
    client.ask(EDS, &["a"], None);
    assert_eq!(client.sent().await.set, ["a"]);
}

#[tokio::test]
async fn trn_11_the_node_comes_once_with_a_request_of_any_type() {
    let server = Server::start(Way::Gives("1")).await;
    let relay = relay(server.address, "").await;
    for (first, second) in [(CDS, EDS), (EDS, CDS)] {
        let mut client = Client::connect(relay.address, Delta).await;
        client.ask(first, &["a"], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        client.ask(second, &["a"], None);
        assert_eq!(client.sent().await.set, ["a"], "for the node of the first request");
    }
}

#[tokio::test]
async fn trn_13_streams_of_one_node_id_each_have_names_of_their_own() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        let client = Client::connect(relay.address, Delta).await;
        client.ask(CDS, &[name], Some("web"));
        clients.push((name, client));
    }
    let all_ask = |clients: usize| {
        super::driver::clients(&relay, "all that are there ask", move |report| {
            let report = report.as_array().unwrap();
            report.len() == clients && report.iter().all(|client| client["types"][0]["names"] == 1)
        })
    };
    all_ask(3).await;
    let mut stream = plane.stream().await;
    let mut requested = Vec::new();
    while requested.len() < 3 {
        let Request::Delta(request) = stream.request().await else { panic!("delta was opened") };
        requested.extend(request.resource_names_subscribe);
    }
    for version in ["1", "2", "3"] {
        say(&stream, version, &[], &["a", "b", "c"].map(|name| (name, version)), &[]);
        for (name, client) in &mut clients {
            assert_eq!(client.sent().await.set, [*name], "version {version}");
        }
        if version == "2" {
            clients.remove(1); // the others continue
            all_ask(2).await;
        }
    }
}

#[tokio::test]
async fn rest_12_a_fetch_of_what_is_not_known_is_unavailable() {
    let plane = Plane::start(&BOTH).await;
    let config = config(plane.address, "", "views: {key: [cluster]}\nlimits: {fetch_timeout: 100ms}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let request = DiscoveryRequest { node: node("web"), ..Default::default() };
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let status = fetch(&relay, path, request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn up_21_one_clients_rejection_does_not_go_upstream() {
    for down in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, "").await;
        let mut clients = [Client::connect(relay.address, down).await, Client::connect(relay.address, down).await];
        clients.iter().for_each(|client| client.ask(CDS, &[], Some("web")));
        let mut stream = plane.stream().await;
        stream.request().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        let sent = clients[0].sent().await;
        clients[0].refuse(CDS, &sent);
        assert_eq!(clients[1].sent().await.set, ["a", "b"]);
        let Request::Delta(answer) = stream.request().await else { panic!("delta was opened") };
        assert_eq!((answer.response_nonce.as_str(), answer.error_detail), ("1", None));
        super::driver::clients(&relay, "the refusal", |report| {
            let refuses = |client: &&serde_json::Value| client["types"][0]["last_nack"] == "no";
            let client = report.as_array().unwrap().iter().find(refuses);
            client.is_some_and(|client| client["peer"].as_str().unwrap().starts_with("127.0.0.1"))
        })
        .await;
        say(&stream, "2", &[], &[("b", "2")], &[]);
        for client in &mut clients {
            assert!(client.sent().await.set.contains(&"b".to_owned()));
        }
        let Request::Delta(answer) = stream.request().await else { unreachable!() };
        assert_eq!((answer.response_nonce.as_str(), answer.error_detail), ("2", None), "nothing came in between");
    }
}

#[tokio::test]
async fn trn_19_whoever_was_accepted_is_answered_before_the_relay_goes() {
    let server = Server::start(Way::Mute).await;
    let config = config(server.address, "", "views: {key: [cluster]}\ndrain: {grace: 1m, spread: 50ms}\n");
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let mut clients = Vec::new();
    for _ in 0..50 {
        let client = Client::connect(relay.address, Delta).await;
        client.ask(EDS, &["a"], Some("web"));
        clients.push(client);
    }
    super::driver::clients(&relay, "all are seated", |report| {
        let seated = report.as_array().unwrap().iter().filter(|client| client["types"][0]["names"] == 1);
        seated.count() == 50
    })
    .await;
    let mut connection = super::driver::Connection::open(&relay).await;
    let mut knock = async || connection.stream().1.await.is_ok();
    assert!(knock().await);
    stop.send(()).unwrap();
    let gone = async { while Client::try_connect(relay.address, Delta).await.is_some() || knock().await {} };
    tokio::time::timeout(super::client::PATIENCE, gone).await.expect("the relay still takes clients on");
    tokio::time::sleep(Duration::from_millis(200)).await; // every stream has had its turn by then
    server.turn(Way::Gives("1"));
    for client in &mut clients {
        assert_eq!(client.sent().await.set, ["a"], "nobody is sent away without an answer");
        assert_eq!(client.ended().await, Code::Unavailable);
    }
}

#[tokio::test]
async fn up_10_a_view_that_nobody_uses_gives_up_its_streams() {
    let mut plane = Plane::start(&BOTH).await;
    let config = config(plane.address, "", "views: {key: [cluster], idle_timeout: 100ms}\nlimits: {linger: 1ms}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let client = Client::connect(relay.address, Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    stream.request().await;
    drop(client);
    let closed = async { while stream.requests.recv().await.is_some() {} };
    tokio::time::timeout(super::client::PATIENCE, closed).await.expect("the stream is still open");
}

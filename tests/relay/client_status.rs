//! Client status (CSDS), with requests like those of `grpcdebug`.

use http::uri::PathAndQuery;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::iter;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as Call, Status, Streaming};
use tonic_prost::ProstCodec;
use weir::proto::status::string_matcher::MatchPattern;
use weir::proto::status::{
    ClientResourceStatus, ClientStatusRequest, ClientStatusResponse, ConfigStatus, GenericXdsConfig, NodeMatcher,
    StringMatcher,
};
use weir_core::proto::discovery::{ResourceError, ResourceName, Status as ErrorDetail};

use super::asking::{SDS, deltas};
use super::client::channel_over;
use super::dumps::{World, cluster_with_key, requested};
use super::evidence::servers;
use super::*;
use weir_testkit::folder::Folder;

type Codec = ProstCodec<ClientStatusRequest, ClientStatusResponse>;

const SERVICE: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService";

async fn service(address: SocketAddr) -> Grpc<Channel> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    grpc
}

async fn fetch(address: SocketAddr, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
    let path: PathAndQuery = format!("{SERVICE}/FetchClientStatus").parse().unwrap();
    Ok(service(address).await.unary(Call::new(request), path, Codec::default()).await?.into_inner())
}

/// Opens a stream of status requests.
pub async fn watch(
    address: SocketAddr,
) -> (mpsc::UnboundedSender<ClientStatusRequest>, Streaming<ClientStatusResponse>) {
    let (requests, stream) = mpsc::unbounded_channel();
    let path: PathAndQuery = format!("{SERVICE}/StreamClientStatus").parse().unwrap();
    let call = Call::new(UnboundedReceiverStream::new(stream));
    let answer = service(address).await.streaming(call, path, Codec::default()).await;
    (requests, answer.unwrap().into_inner())
}

/// Returns a request for the clients with this id.
pub fn of_node(id: &str) -> ClientStatusRequest {
    let match_pattern = Some(MatchPattern::Exact(id.into()));
    let node_id = Some(StringMatcher { match_pattern, ignore_case: false });
    ClientStatusRequest { node_matchers: vec![NodeMatcher { node_id, ..Default::default() }], ..Default::default() }
}

fn row<'a>(response: &'a ClientStatusResponse, kind: &str, name: &str) -> &'a GenericXdsConfig {
    let mut all = response.config.iter().flat_map(|config| &config.generic_xds_configs);
    all.find(|row| row.type_url == kind && row.name == name).unwrap_or_else(|| panic!("no {name} in {response:?}"))
}

/// CSDS-2, CSDS-3, CSDS-4, CSDS-6: without matchers the relay reports the resources that it has from its servers, by view and authority.
#[tokio::test]
async fn an_empty_request_is_for_the_relays_own_status_as_a_client() {
    let mut world = World::new().await;
    world.client.ask(EDS, &["gone"], None);
    requested(&mut world.stream, EDS, "gone").await;
    world.stream.respond(&deltas(EDS, "7", vec![], &["gone"]));
    assert_eq!(world.client.sent().await.removed, ["gone"]);
    let own = fetch(world.relay.admin, ClientStatusRequest::default()).await.unwrap();
    let view = world.client_row().await["view"].as_str().unwrap().to_owned();
    assert_eq!(own.config.iter().map(|of| &*of.client_scope).collect::<Vec<_>>(), [format!("view={view} authority=")]);
    assert_eq!(own.config[0].node.as_ref().unwrap().id, format!("weir-{view}"));
    let cluster = row(&own, CDS, "a");
    assert_eq!(cluster.client_status(), ClientResourceStatus::Acked);
    assert_eq!(cluster.config_status(), ConfigStatus::Unknown, "the other view of things");
    assert!(!cluster.version_info.is_empty() && cluster.last_updated.is_some(), "{cluster:?}");
    assert_eq!(row(&own, EDS, "gone").client_status(), ClientResourceStatus::DoesNotExist);
}

/// CSDS-4: resources that the relay rejects, that its server reports as errors, and about which the server is silent.
#[tokio::test]
async fn csds_4_what_has_failed_has_a_status_of_its_own() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let timer = |options: &mut ProtocolOptions| options.upstream.resource_timer = Duration::from_millis(300);
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", timer).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["kept", "refused", "failed", "silent"], Some("web"));
    let mut stream = plane.stream().await;
    requested(&mut stream, EDS, "refused").await;
    let good = super::asking::made(EDS, json!({"clusterName": "kept"}));
    stream.respond(&deltas(EDS, "0", vec![("kept", good)], &[]));
    let of_another_type = |name| (name, super::asking::made(LDS, json!({"name": name})));
    let bad = vec![of_another_type("refused"), of_another_type("kept")];
    let Response::Delta(mut response) = deltas(EDS, "1", bad, &[]) else { panic!() };
    let name = ResourceName { name: "failed".into(), ..Default::default() };
    let detail = ErrorDetail { code: 13, message: "out of order".into() };
    response.resource_errors = vec![ResourceError { resource_name: Some(name), error_detail: Some(detail) }];
    stream.respond(&Response::Delta(response));
    let own = async || fetch(relay.admin, ClientStatusRequest::default()).await.unwrap();
    until("the errors have come, and the silence of a live server counts", async || {
        let own = own().await;
        let has = |name: &str, status: ClientResourceStatus| {
            let mut all = own.config.iter().flat_map(|config| &config.generic_xds_configs);
            all.any(|row| row.name == name && row.client_status() == status)
        };
        has("failed", ClientResourceStatus::ReceivedError) && has("silent", ClientResourceStatus::Timeout)
    })
    .await;
    let own = own().await;
    let refused = row(&own, EDS, "refused");
    assert_eq!(refused.client_status(), ClientResourceStatus::Nacked, "{own:?}");
    assert!(refused.error_state.as_ref().unwrap().details.contains("envoy.config.listener.v3.Listener"), "{refused:?}");
    let kept: Vec<_> = own.config[0].generic_xds_configs.iter().filter(|row| row.name == "kept").collect();
    assert_eq!(kept.len(), 1, "once, with what is in use: {kept:?}");
    assert_eq!((kept[0].client_status(), kept[0].xds_config.is_some()), (ClientResourceStatus::Nacked, true));
    let failed = row(&own, EDS, "failed");
    assert_eq!(failed.client_status(), ClientResourceStatus::ReceivedError);
    assert!(failed.error_state.as_ref().unwrap().details.contains("out of order"), "{failed:?}");
}

/// CSDS-1: on the addresses for clients, only clients whose rule allows it may ask. Each request is judged.
#[tokio::test]
async fn clients_get_it_by_a_rule_of_identity_alone() {
    let plane = Plane::start(&[Variant::Delta]).await;
    let (folder, user) = (Folder::with_short_path("client-status"), nix::unistd::Uid::current());
    let text = format!(
        "listen: [{{address: 'unix:{}'}}, {{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {}\nviews: {{key: [cluster]}}\npermissions:\n\
         - {{name: ours, identities: [{{uid: {user}}}], free: [cluster], client_status: true}}\n\
         - {{name: others, identities: [{{network: 127.0.0.0/8}}], free: [cluster]}}\n",
        folder.socket().display(),
        servers(&[plane.address], ", variant: delta"),
    );
    let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let outside = app.addresses()[0];
    let _relay = run(app, std::future::pending());
    let socket = tokio::net::UnixStream::connect(folder.socket()).await.unwrap();
    let mut grpc = Grpc::new(channel_over(socket).await.unwrap());
    grpc.ready().await.unwrap();
    let path: PathAndQuery = format!("{SERVICE}/StreamClientStatus").parse().unwrap();
    let requests = iter([ClientStatusRequest::default(), of_node("nobody")]);
    let mut responses = grpc.streaming(Call::new(requests), path, Codec::default()).await.unwrap().into_inner();
    assert!(responses.message().await.unwrap().is_some() && responses.message().await.unwrap().is_some());
    assert!(responses.message().await.unwrap().is_none());
    let path: PathAndQuery = format!("{SERVICE}/FetchClientStatus").parse().unwrap();
    let metadata = NodeMatcher { node_metadatas: vec![Default::default()], ..Default::default() };
    let unclear = ClientStatusRequest { node_matchers: vec![metadata], ..Default::default() };
    grpc.ready().await.unwrap();
    let refused = grpc.unary(Call::new(unclear), path, Codec::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let refused = fetch(outside, ClientStatusRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("client_status"), "{refused:?}");
}

/// CSDS-3, CSDS-5, CSDS-7: with matchers the relay reports the clients that match, and how they answered.
#[tokio::test]
async fn with_matchers_it_is_the_status_of_the_clients_that_match() {
    let mut world = World::new().await;
    world.stream.respond(&deltas(CDS, "5", vec![("b", cluster_with_key("b", "2s"))], &[]));
    let sent = world.client.sent().await;
    let stale = fetch(world.relay.admin, of_node("test")).await.unwrap();
    assert_eq!(row(&stale, CDS, "b").config_status(), ConfigStatus::Stale);
    world.client.refuse_for(CDS, &[], &sent, "cluster \"b\" is bad");
    until("the NACK is known", async || get(world.relay.admin, "/clients").await.contains("\"nacked\": true")).await;
    let clients = fetch(world.relay.admin, of_node("test")).await.unwrap();
    assert_eq!(clients.config.len(), 1);
    assert!(clients.config[0].client_scope.starts_with("session="), "{:?}", clients.config[0].client_scope);
    assert_eq!(clients.config[0].node.as_ref().unwrap().id, "test");
    assert_eq!(row(&clients, CDS, "a").config_status(), ConfigStatus::Synced);
    let bad = row(&clients, CDS, "b");
    assert_eq!((bad.config_status(), bad.client_status()), (ConfigStatus::Error, ClientResourceStatus::Unknown));
    let error = bad.error_state.as_ref().unwrap();
    assert!(error.details.contains("is bad") && !error.version_info.is_empty() && error.last_update_attempt.is_some());
    world.client.ask(EDS, &["later"], None);
    until("it is known", async || get(world.relay.admin, "/clients").await.contains("ClusterLoadAssignment")).await;
    let clients = fetch(world.relay.admin, of_node("test")).await.unwrap();
    assert_eq!(row(&clients, EDS, "later").config_status(), ConfigStatus::NotSent);
    assert!(fetch(world.relay.admin, of_node("else")).await.unwrap().config.is_empty());
    let metadata = NodeMatcher { node_metadatas: vec![Default::default()], ..Default::default() };
    let request = ClientStatusRequest { node_matchers: vec![metadata], ..Default::default() };
    assert_eq!(fetch(world.relay.admin, request).await.unwrap_err().code(), Code::InvalidArgument);
}

/// CSDS-8: no view shows key bytes of a secret or of a key within another resource. CSDS-5: a request can omit contents.
#[tokio::test]
async fn csds_8_no_status_has_a_private_key_and_contents_can_be_left_out() {
    let world = World::new().await;
    for request in [ClientStatusRequest::default(), of_node("test")] {
        let status = fetch(world.relay.admin, request.clone()).await.unwrap();
        assert!(row(&status, SDS, "s").xds_config.is_none());
        let cluster = row(&status, CDS, "a").xds_config.as_ref().unwrap();
        let text = String::from_utf8_lossy(&cluster.value).into_owned();
        assert!(text.contains("[redacted]") && text.contains("for-all") && !text.contains("hidden"), "{text:?}");
        let without = ClientStatusRequest { exclude_resource_contents: true, ..request };
        let without = fetch(world.relay.admin, without).await.unwrap();
        let rows = without.config.iter().flat_map(|config| &config.generic_xds_configs);
        assert!(rows.clone().count() > 3 && rows.clone().all(|row| row.xds_config.is_none()));
    }
}

/// CSDS-8: a status that is longer than clients accept is rejected, with advice how to shorten it.
#[tokio::test]
async fn csds_8_a_status_that_is_too_long_is_refused_with_a_way_out() {
    let world = World::new().await;
    let names: Vec<_> = (0..600).map(|number| format!("c{number}")).collect();
    let padding = "x".repeat(8000);
    let padded = |name: &String| {
        let body = json!({"name": name, "type": "EDS", "altStatName": padding});
        super::asking::made(CDS, body)
    };
    world.stream.respond(&deltas(CDS, "8", names.iter().map(|name| (name.as_str(), padded(name))).collect(), &[]));
    until("all are cached", async || {
        get(world.relay.admin, "/resources?limit=1&type=clusters").await.contains("\"total\": 602")
    })
    .await;
    for request in [ClientStatusRequest::default(), of_node("test")] {
        let refused = fetch(world.relay.admin, request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let why = refused.message();
        assert!(why.contains("node_matchers") && why.contains("exclude_resource_contents"), "{why}");
        let short = ClientStatusRequest { exclude_resource_contents: true, ..request };
        assert!(fetch(world.relay.admin, short).await.is_ok());
    }
}

/// CSDS-1: a stream has one response for each request, in order, and v2 is unknown. Without permissions, clients on the xDS port get nothing.
#[tokio::test]
async fn a_stream_answers_each_request_once_and_without_rules_only_operators_are_served() {
    let world = World::new().await;
    let path: PathAndQuery = format!("{SERVICE}/StreamClientStatus").parse().unwrap();
    let requests = iter([ClientStatusRequest::default(), of_node("test"), of_node("else")]);
    let mut grpc = service(world.relay.admin).await;
    let mut responses = grpc.streaming(Call::new(requests), path.clone(), Codec::default()).await.unwrap().into_inner();
    assert!(responses.message().await.unwrap().unwrap().config[0].client_scope.starts_with("view="));
    assert!(responses.message().await.unwrap().unwrap().config[0].client_scope.starts_with("session="));
    assert!(responses.message().await.unwrap().unwrap().config.is_empty());
    assert!(responses.message().await.unwrap().is_none());
    let of_v2 = "/envoy.service.status.v2.ClientStatusDiscoveryService/FetchClientStatus".parse().unwrap();
    let request = Call::new(ClientStatusRequest::default());
    let refused = service(world.relay.admin).await.unary(request, of_v2, Codec::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let refused = fetch(world.relay.address, ClientStatusRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

/// Posts a status request in JSON, and returns the status and the body of the response.
pub(super) async fn post_status(admin: SocketAddr, body: &str) -> (u16, String) {
    let socket = tokio::net::TcpStream::connect(admin).await.unwrap();
    let length = format!("content-length: {}", body.len());
    let line = "POST /v3/discovery:client_status HTTP/1.1";
    let request = format!("{line}\r\nhost: localhost\r\n{length}\r\nconnection: close\r\n\r\n{body}");
    exchange(socket, &request).await
}

/// CSDS-9: the same status in JSON.
#[tokio::test]
async fn the_rest_form_is_a_read_by_post() {
    let world = World::new().await;
    let post = async |body: &str| post_status(world.relay.admin, body).await;
    let (status, body) = post("").await;
    assert_eq!(status, 200, "{body}");
    let own: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(own["config"][0]["genericXdsConfigs"][0]["clientStatus"], "ACKED");
    let (_, body) = post(r#"{"nodeMatchers": [{"nodeId": {"exact": "test"}}], "excludeResourceContents": true}"#).await;
    let clients: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(clients["config"][0]["genericXdsConfigs"][0]["configStatus"], "SYNCED");
    assert!(!body.contains("xdsConfig"), "{body}");
    assert_eq!(post("{").await.0, 400);
    assert_eq!(probe(world.relay.admin, "/v3/discovery:client_status").await.0, 405);
}

//! `/config_dump`: in Envoy's form, of a view or of what one client was sent, without secrets.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir::transcode::{Strictness, Transcoder};

use super::asking::{SDS, deltas, made, names_in};
use super::*;

const SECRET_KEY: &str = "-----BEGIN PRIVATE KEY----- hidden";

/// A relay with clusters, a listener and a secret, and a client that has received them.
pub(super) struct World {
    pub relay: Relay,
    _plane: Plane,
    pub stream: plane::Stream,
    pub client: Client,
}

/// Returns a cluster whose TLS settings have an inline key.
pub(super) fn cluster_with_key(name: &str, timeout: &str) -> weir_core::proto::Any {
    made(
        CDS,
        json!({ "name": name, "type": "EDS", "connectTimeout": timeout, "transportSocket": { "name": "tls", "typedConfig": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "commonTlsContext": { "tlsCertificates": [
                { "certificateChain": { "inlineString": "for-all" }, "privateKey": { "inlineBytes": "aGlkZGVuLWtleQ==" } }
            ] } } } }),
    )
}

/// Waits until the relay requests a name from the control plane. The wildcard was in the first request of its type.
pub(super) async fn requested(stream: &mut plane::Stream, kind: &str, name: &str) {
    loop {
        let request = stream.request().await;
        if request.type_url() == kind && (name == "*" || names_in(&request).iter().any(|named| named == name)) {
            return;
        }
    }
}

impl World {
    pub async fn new() -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, ", variant: delta").await;
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        requested(&mut stream, CDS, "*").await;
        let clusters = vec![("a", cluster_with_key("a", "1s")), ("b", cluster_with_key("b", "1s"))];
        stream.respond(&deltas(CDS, "1", clusters, &[]));
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a", "b"]);
        client.ack(CDS, &[], &sent);
        client.ask(LDS, &[], None);
        requested(&mut stream, LDS, "*").await;
        stream.respond(&deltas(LDS, "2", vec![("l", made(LDS, json!({"name": "l"})))], &[]));
        let sent = client.sent().await;
        client.ack(LDS, &[], &sent);
        client.ask(SDS, &["s"], None);
        requested(&mut stream, SDS, "s").await;
        let secret = json!({ "name": "s", "tlsCertificate": {
            "certificateChain": { "inlineString": "for-all" }, "privateKey": { "inlineString": SECRET_KEY } } });
        stream.respond(&deltas(SDS, "3", vec![("s", made(SDS, secret))], &[]));
        let sent = client.sent().await;
        assert_eq!(sent.set, ["s"]);
        client.ack(SDS, &[], &sent);
        Self { relay, _plane: plane, stream, client }
    }

    pub async fn client_row(&self) -> Value {
        let clients: Value = serde_json::from_str(&get(self.relay.admin, "/clients").await).unwrap();
        clients["clients"][0].clone()
    }

    async fn dump(&self, query: &str) -> Value {
        let (status, body) = body_of(self.relay.admin, &format!("/config_dump?{query}")).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }
}

/// Returns status and body like `probe`, for bodies in chunks.
pub(super) async fn body_of(address: SocketAddr, path: &str) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "localhost");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let response = send.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn part<'a>(dump: &'a Value, message: &str) -> &'a Value {
    let url = format!("type.googleapis.com/{message}");
    let configs = dump["configs"].as_array().unwrap();
    configs.iter().find(|part| part["@type"] == *url).unwrap_or_else(|| panic!("no {message} in {dump:#}"))
}

#[tokio::test]
async fn a_view_is_dumped_in_the_form_of_envoy_which_envoys_tools_can_read() {
    let world = World::new().await;
    let view = world.client_row().await["view"].as_str().unwrap().to_owned();
    let dump = world.dump(&format!("view={view}")).await;
    let clusters = part(&dump, "envoy.admin.v3.ClustersConfigDump")["dynamic_active_clusters"].as_array().unwrap();
    let names: BTreeSet<_> = clusters.iter().map(|of| of["cluster"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["a", "b"]));
    assert_eq!(clusters[0]["cluster"]["connect_timeout"], "1s");
    let listeners = &part(&dump, "envoy.admin.v3.ListenersConfigDump")["dynamic_listeners"];
    assert_eq!((&listeners[0]["name"], &listeners[0]["active_state"]["listener"]["name"]), (&json!("l"), &json!("l")));
    assert!(listeners[0]["active_state"]["last_updated"].as_str().unwrap().starts_with("20"));
    // The dump parses as the message whose type it states.
    let read = Transcoder::envoy().from_json("envoy.admin.v3.ConfigDump", &dump, Strictness::Strict);
    assert!(read.is_ok(), "{read:?}");
}

#[tokio::test]
async fn no_dump_has_a_private_key_of_a_secret_or_within_another_resource() {
    let world = World::new().await;
    let row = world.client_row().await;
    let (view, client) = (row["view"].as_str().unwrap(), row["session"].as_u64().unwrap());
    for query in [format!("view={view}"), format!("client={client}")] {
        let dump = world.dump(&query).await;
        let secrets = &part(&dump, "envoy.admin.v3.SecretsConfigDump")["dynamic_active_secrets"];
        assert_eq!(secrets[0]["secret"]["tls_certificate"]["private_key"]["inline_string"], "[redacted]");
        let text = dump.to_string();
        for hidden in ["hidden", "aGlkZGVuLWtleQ", "PRIVATE KEY"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        assert!(text.contains("for-all"), "certificates are no secret");
    }
}

#[tokio::test]
async fn of_a_client_only_what_it_was_sent_is_dumped_with_its_answer() {
    let mut world = World::new().await;
    let client = world.client_row().await["session"].as_u64().unwrap();
    // A second client of the view has a name that the first client does not have.
    let mut other = Client::connect(world.relay.address, Variant::Delta).await;
    other.ask(SDS, &["t"], Some("web"));
    requested(&mut world.stream, SDS, "t").await;
    world.stream.respond(&deltas(SDS, "4", vec![("t", made(SDS, json!({"name": "t"})))], &[]));
    assert_eq!(other.sent().await.set, ["t"]);
    world.stream.respond(&deltas(CDS, "5", vec![("b", cluster_with_key("b", "2s"))], &[]));
    let sent = world.client.sent().await;
    world.client.refuse_for(CDS, &[], &sent, "cluster \"b\" is bad");
    until("the NACK is known", async || get(world.relay.admin, "/clients").await.contains("\"nacked\": true")).await;
    let dump = world.dump(&format!("client={client}")).await;
    let secrets = part(&dump, "envoy.admin.v3.SecretsConfigDump")["dynamic_active_secrets"].as_array().unwrap();
    assert_eq!(secrets.iter().map(|of| &of["name"]).collect::<Vec<_>>(), [&json!("s")]);
    let clusters = &part(&dump, "envoy.admin.v3.ClustersConfigDump")["dynamic_active_clusters"];
    let of = |name: &str| clusters.as_array().unwrap().iter().find(|of| of["cluster"]["name"] == name).unwrap();
    assert_eq!((&of("a")["client_status"], &of("b")["client_status"]), (&json!("ACKED"), &json!("NACKED")));
    assert!(of("b")["error_state"]["details"].as_str().unwrap().contains("is bad"), "{clusters:#}");
    assert_eq!(of("a").get("error_state"), None);
}

#[tokio::test]
async fn parameters_choose_a_list_and_fields_and_endpoints_come_on_request() {
    let mut world = World::new().await;
    let view = world.client_row().await["view"].as_str().unwrap().to_owned();
    world.client.ask(EDS, &["a"], None);
    requested(&mut world.stream, EDS, "a").await;
    world.stream.respond(&deltas(EDS, "6", vec![("a", made(EDS, json!({"clusterName": "a"})))], &[]));
    until("it is cached", async || get(world.relay.admin, "/resources?type=endpoints").await.contains("\"present\""))
        .await;
    let whole = world.dump(&format!("view={view}")).await;
    assert!(!whole.to_string().contains("EndpointsConfigDump"));
    let with = world.dump(&format!("view={view}&include_eds")).await;
    let endpoints = &part(&with, "envoy.admin.v3.EndpointsConfigDump")["dynamic_endpoint_configs"];
    assert_eq!(endpoints[0]["endpoint_config"]["cluster_name"], "a");
    let one = world.dump(&format!("view={view}&resource=dynamic_active_clusters&mask=cluster.name")).await;
    let url = "type.googleapis.com/envoy.admin.v3.ClustersConfigDump.DynamicCluster";
    let named = |name: &str| json!({"@type": url, "cluster": {"@type": CDS, "name": name}});
    let found = one["configs"].as_array().unwrap();
    assert!(found.len() == 2 && [named("a"), named("b")].iter().all(|expected| found.contains(expected)), "{one:#}");
    let masked = world.dump(&format!("view={view}&mask=dynamic_listeners.name")).await;
    let of_listeners = json!({"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [{"name": "l"}]});
    assert_eq!(masked["configs"], json!([of_listeners]));
    for (query, status, why) in [
        ("", 400, "expected client=SESSION"),
        ("view=x&client=1", 400, "expected client=SESSION"),
        ("view=none", 404, "unknown view"),
        ("client=999", 404, "unknown client"),
        ("client=x", 400, "invalid client"),
        (
            "view=x&resource=static_clusters",
            400,
            "unknown resource \"static_clusters\": expected one of dynamic_active_clusters",
        ),
    ] {
        let (found, body) = body_of(world.relay.admin, &format!("/config_dump?{query}")).await;
        assert!(found == status && body.contains(why), "{query}: {found} {body}");
    }
}

#[tokio::test]
async fn a_third_dump_at_a_time_is_asked_to_come_back() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    requested(&mut stream, CDS, "*").await;
    // More than the kernel's socket buffers hold for a client that does not read.
    let names: Vec<_> = (0..3000).map(|number| format!("c{number}")).collect();
    let padding = "x".repeat(8000);
    let clusters = names
        .iter()
        .map(|name| (name.as_str(), made(CDS, json!({"name": name, "type": "EDS", "altStatName": padding}))));
    stream.respond(&deltas(CDS, "1", clusters.collect(), &[]));
    until("all are cached", async || get(relay.admin, "/resources?limit=1").await.contains("\"total\": 3000")).await;
    let clients: Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
    let path = format!("/config_dump?view={}", clients["clients"][0]["view"].as_str().unwrap());
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut socket = tokio::net::TcpStream::connect(relay.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        socket.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        readers.push(socket);
    }
    let (status, why) = body_of(relay.admin, &path).await;
    assert_eq!((status, why.contains("try again")), (429, true), "{why}");
    assert_eq!(probe(relay.admin, "/healthz").await.0, 200, "others are served meanwhile");
    let mut whole = Vec::new();
    readers.pop().unwrap().read_to_end(&mut whole).await.unwrap();
    assert!(whole.len() > 3000 * padding.len());
    until("there is a place", async || body_of(relay.admin, &path).await.0 == 200).await;
}

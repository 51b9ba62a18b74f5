//! Type URLs: which count as one type whatever their prefixes, and which bytes stay unchanged.

use serde_json::json;

use super::asking::{SDS, deltas, made, names_in};
use super::dumps::body_of;
use super::*;

const DEBUG: &str = "istio.io/debug";
const SERVICE_ENTRY: &str = "networking.istio.io/v1/ServiceEntry";
const ENVELOPE: &str = "type.googleapis.com/istio.mcp.v1alpha1.Resource";
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// Returns an entry as Istiod sends its configuration: in an envelope whose metadata has the name.
fn entry(name: &str) -> Any {
    let metadata = cluster(name, "").value;
    let mut value = vec![0x0a, u8::try_from(metadata.len()).unwrap()];
    value.extend(&metadata);
    Any { type_url: ENVELOPE.into(), value: value.into() }
}

fn respond(stream: &Stream, url: &str, name: &str, any: Any) {
    match stream.variant {
        Variant::Delta => stream.respond(&deltas(url, "1", vec![(name, any)], &[])),
        Variant::Sotw => {
            let (version_info, nonce, type_url) = ("1".into(), "1".into(), url.into());
            let resources = vec![any];
            let response = DiscoveryResponse { version_info, nonce, type_url, resources, ..Default::default() };
            stream.respond(&Response::Sotw(response));
        }
    }
}

/// Returns the type URL of the next reply, and its resources without wrappers.
async fn reply(client: &mut Client) -> (String, Vec<Any>) {
    let next = async {
        match client {
            Client::Sotw(_, replies) => {
                let reply = replies.message().await.unwrap().unwrap();
                (reply.type_url, reply.resources)
            }
            Client::Delta(_, replies) => {
                let reply = replies.message().await.unwrap().unwrap();
                (reply.type_url, reply.resources.into_iter().filter_map(|wrapper| wrapper.resource).collect())
            }
        }
    };
    tokio::time::timeout(client::PATIENCE, next).await.expect("nothing came")
}

#[tokio::test]
async fn type_1_a_url_that_is_not_in_the_table_is_passed_byte_for_byte_in_both_directions() {
    let debug = |name: &str| Any { type_url: DEBUG.into(), ..cluster(name, "") };
    each_translation(async |up, down| {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, down).await;
        let mut streams = Vec::new(); // types outside of the table may get a stream of their own
        for (url, name, any) in [(DEBUG, "syncz", debug("syncz")), (SERVICE_ENTRY, "ns/entry", entry("ns/entry"))] {
            client.ask(url, &[name], Some("web"));
            if streams.is_empty() {
                streams.push(plane.stream().await);
            }
            let stream = streams.last_mut().unwrap();
            loop {
                let request = stream.request().await;
                if request.type_url() == url {
                    assert_eq!(names_in(&request), [name]);
                    break;
                }
            }
            respond(stream, url, name, any.clone());
            assert_eq!(reply(&mut client).await, (url.to_owned(), vec![any]));
        }
    })
    .await;
}

#[tokio::test]
async fn type_1_a_body_in_istios_envelope_keeps_its_url_through_two_tiers() {
    for between in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let lower = relay(plane.address, "").await;
        let upper = relay(lower.address, protocol_of(between)).await;
        let mut client = Client::connect(upper.address, Variant::Sotw).await;
        client.ask(SERVICE_ENTRY, &["ns/entry"], Some("web"));
        let mut stream = plane.stream().await;
        assert_eq!(stream.request().await.type_url(), SERVICE_ENTRY);
        respond(&stream, SERVICE_ENTRY, "ns/entry", entry("ns/entry"));
        assert_eq!(reply(&mut client).await, (SERVICE_ENTRY.to_owned(), vec![entry("ns/entry")]));
    }
}

#[tokio::test]
async fn type_1_a_secret_under_another_prefix_is_asked_for_shown_and_redacted_as_one() {
    const OWN: &str = "x/envoy.extensions.transport_sockets.tls.v3.Secret";
    const KEY: &str = "-----BEGIN PRIVATE KEY----- hidden";
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(OWN, &["s"], Some("web"));
    let mut stream = plane.stream().await;
    assert_eq!(stream.request().await.type_url(), SDS, "servers are shown the URL of the table");
    let chain = json!({ "inlineString": "for-all" });
    let key = json!({ "inlineString": KEY });
    let secret = made(SDS, json!({ "name": "s", "tlsCertificate": { "certificateChain": chain, "privateKey": key } }));
    stream.respond(&deltas(SDS, "1", vec![("s", secret.clone())], &[]));
    let own = Any { type_url: OWN.into(), ..secret };
    assert_eq!(reply(&mut client).await, (OWN.to_owned(), vec![own]), "clients have their own spelling");
    let clients: serde_json::Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
    let client = &clients["clients"][0]["session"];
    let view = clients["clients"][0]["view"].as_str().unwrap();
    for path in [format!("/config_dump?view={view}"), format!("/config_dump?client={client}")] {
        let (status, dump) = body_of(relay.admin, &path).await;
        assert!(status == 200 && dump.contains("envoy.admin.v3.SecretsConfigDump"), "{path}: {dump}");
        assert!(dump.contains("[redacted]") && !dump.contains("hidden"), "{dump}");
    }
}

#[tokio::test]
async fn type_1_no_spelling_evades_permissions_and_a_url_is_permitted_as_it_is_written() {
    let plane = Plane::start(&BOTH).await;
    let rules = "views: {key: [cluster]}\npermissions:\n- name: here\n  identities: [{network: 127.0.0.0/8}]\n  \
                 node: {cluster: web}\n  types: [envoy.config.cluster.v3.Cluster, istio.io/debug]\n";
    let config = config(plane.address, "", rules);
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    for variant in BOTH {
        for url in [&format!("x/{SECRET}"), SDS, SECRET, SERVICE_ENTRY, "x/istio.io/debug", "debug"] {
            let mut client = Client::connect(relay.address, variant).await;
            client.ask(url, &["s"], Some("web"));
            let (code, message) = client.end().await;
            assert_eq!(code, Code::PermissionDenied, "{url}: {message}");
        }
        for url in ["x/envoy.config.cluster.v3.Cluster", DEBUG] {
            let mut client = Client::connect(relay.address, variant).await;
            client.ask(url, &["s"], Some("web"));
            client.hears_nothing(Duration::from_millis(200)).await;
        }
    }
}

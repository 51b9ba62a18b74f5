//! The only resource of a type without names, such as Istio's table of names: Istiod sends it without a name, and its agent requests it by an empty
//! list.

use prost::Message;
use weir_core::proto::discovery::{ResourceError, Status as ErrorDetail};

use super::files::{Folder as Files, relay_over};
use super::warm_start::{Stoppable, is_saved, state_in};
use super::*;
use weir_testkit::folder::Folder;

pub const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";

fn table(content: &str) -> Any {
    Any { type_url: NDS.into(), ..cluster("host", content) }
}

/// Sends the table without a name, as Istiod does. `None`: the table no longer exists.
fn give(stream: &Stream, version: &str, content: Option<&str>) {
    let (type_url, nonce) = (NDS.to_owned(), version.to_owned());
    stream.respond(&match stream.variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            resources: content.into_iter().map(table).collect(),
            version_info: version.into(),
            type_url,
            nonce,
            ..Default::default()
        }),
        Variant::Delta => {
            let (removed_resources, version) =
                (content.is_none().then(String::new).into_iter().collect(), version.into());
            let wrapped =
                content.map(|content| Resource { version, resource: Some(table(content)), ..Default::default() });
            let resources = wrapped.into_iter().collect();
            Response::Delta(DeltaDiscoveryResponse {
                type_url,
                nonce,
                resources,
                removed_resources,
                ..Default::default()
            })
        }
    });
}

/// Reports an error for the table, which has no name.
fn report(stream: &Stream, version: &str, code: i32) {
    let (type_url, nonce) = (NDS.to_owned(), version.to_owned());
    let error_detail = Some(ErrorDetail { code, message: "no table".into() });
    let resource_errors = vec![ResourceError { error_detail, ..Default::default() }];
    stream.respond(&match stream.variant {
        Variant::Sotw => {
            let version_info = version.into();
            Response::Sotw(DiscoveryResponse { version_info, type_url, nonce, resource_errors, ..Default::default() })
        }
        Variant::Delta => {
            Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resource_errors, ..Default::default() })
        }
    });
}

/// Istio's agent: it reads the first resource of a response, which has to be the message itself, and ACKs without a list.
pub struct Agent(Client);

impl Agent {
    pub async fn start(relay: SocketAddr, variant: Variant) -> Self {
        let client = Client::connect(relay, variant).await;
        client.ask(NDS, &[], Some("web"));
        Self(client)
    }

    /// Waits for the table. `None`: it was removed.
    pub async fn table(&mut self) -> Option<Any> {
        let next = async {
            match &mut self.0 {
                Client::Sotw(requests, replies) => {
                    let reply = replies.message().await.unwrap().expect("the relay ended the stream");
                    let (version_info, response_nonce) = (reply.version_info, reply.nonce);
                    let type_url = reply.type_url;
                    assert_eq!(type_url, NDS);
                    let ack = DiscoveryRequest { version_info, type_url, response_nonce, ..Default::default() };
                    requests.send(ack).unwrap();
                    reply.resources.into_iter().next()
                }
                Client::Delta(requests, replies) => {
                    let reply = replies.message().await.unwrap().expect("the relay ended the stream");
                    let (type_url, response_nonce) = (reply.type_url, reply.nonce);
                    assert_eq!(type_url, NDS);
                    requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() }).unwrap();
                    let wrapper = reply.resources.into_iter().next();
                    if wrapper.is_none() {
                        assert_eq!(reply.removed_resources, [""], "what is removed has no name");
                    }
                    wrapper.and_then(|wrapper| {
                        assert_eq!(wrapper.name, "");
                        wrapper.resource
                    })
                }
            }
        };
        tokio::time::timeout(client::PATIENCE, next).await.expect("nothing came")
    }
}

#[tokio::test]
async fn type_4_and_xlat_26_an_agent_gets_the_unnamed_resource_its_changes_and_its_removal() {
    each_translation(async |up, down| {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut agent = Agent::start(relay.address, down).await;
        let mut stream = plane.stream().await;
        let request = stream.request().await;
        assert_eq!((request.type_url(), request.entries()), (NDS, 0), "as the agent asks: by an empty list");
        for content in ["1", "2"] {
            give(&stream, content, Some(content));
            assert_eq!(agent.table().await, Some(table(content)));
        }
        let mut late = Agent::start(relay.address, down).await;
        assert_eq!(late.table().await, Some(table("2")), "it is cached");
        let clients: serde_json::Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
        assert!(clients.to_string().contains("istio.networking.nds.v1.NameTable"), "{clients}");
        give(&stream, "3", None);
        assert_eq!((agent.table().await, late.table().await), (None, None));
    })
    .await;
}

/// SOTW-54: errors are for names, and the agent requests none, so it is sent no error. It only sees whether the table stays or is removed.
#[tokio::test]
async fn up_44_and_up_45_an_agent_keeps_the_unnamed_resource_in_a_passing_error_and_loses_one_that_is_not_found() {
    each_translation(async |up, down| {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut agent = Agent::start(relay.address, down).await;
        let stream = plane.stream().await;
        give(&stream, "1", Some("1"));
        assert_eq!(agent.table().await, Some(table("1")));
        report(&stream, "2", 14);
        give(&stream, "3", Some("2"));
        assert_eq!(agent.table().await, Some(table("2")), "nothing came between");
        report(&stream, "4", 5);
        assert_eq!(agent.table().await, None);
    })
    .await;
}

#[tokio::test]
async fn type_4_through_two_tiers_an_agent_gets_the_unnamed_resource_and_its_changes() {
    each_translation(async |between, down| {
        let mut plane = Plane::start(&BOTH).await;
        // As docs/upstream.md recommends for Istiod. Otherwise the relay asks for the end of the set on another stream.
        let lower = relay(plane.address, ", variant: delta, initial_set: one_response").await;
        let upper = relay(lower.address, protocol_of(between)).await;
        let mut agent = Agent::start(upper.address, down).await;
        let stream = plane.stream().await;
        for content in ["1", "2"] {
            give(&stream, content, Some(content));
            assert_eq!(agent.table().await, Some(table(content)));
        }
        give(&stream, "3", None);
        assert_eq!(agent.table().await, None);
    })
    .await;
}

#[tokio::test]
async fn type_4_a_relay_that_starts_without_a_control_plane_serves_the_unnamed_resource_that_it_had() {
    each_translation(async |up, down| {
        let folder = Folder::with_short_path(&format!("unnamed-{up:?}-{down:?}"));
        let rest = state_in(&folder, "");
        let mut plane = Plane::start(&BOTH).await;
        let first = Stoppable::start(plane.address, protocol_of(up), &rest).await;
        let mut agent = Agent::start(first.0.address, down).await;
        let stream = plane.stream().await;
        give(&stream, "1", Some("1"));
        assert_eq!(agent.table().await, Some(table("1")));
        is_saved(&first.0).await;
        first.stop().await;
        let address = plane.kill().await;
        let second = Stoppable::start(address, protocol_of(up), &rest).await;
        let mut agent = Agent::start(second.0.address, down).await;
        assert_eq!(agent.table().await, Some(table("1")), "the control plane is away");
        let mut plane = Plane::start_at(address, &BOTH).await;
        let stream = plane.stream().await;
        give(&stream, "1", Some("2"));
        assert_eq!(agent.table().await, Some(table("2")), "the same version for something else");
    })
    .await;
}

#[tokio::test]
async fn type_4_a_folder_of_files_has_the_unnamed_resource_too() {
    let folder = Files::new();
    let put = |content: &str| {
        let resources = vec![table(content)];
        let set = DiscoveryResponse { resources, type_url: NDS.into(), ..Default::default() };
        folder.put_bytes("names.pb", &set.encode_to_vec());
    };
    put("1");
    let relay = relay_over(&folder).await;
    for down in BOTH {
        let mut agent = Agent::start(relay.address, down).await;
        assert_eq!(agent.table().await, Some(table("1")));
        put("2");
        assert_eq!(agent.table().await, Some(table("2")));
        put("1");
        assert_eq!(agent.table().await, Some(table("1")));
    }
}

//! The limits for everything with one identity, on whatever connections: a client that exceeds one is answered with it, it is counted, and other
//! identities go on.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Channel;

use super::certificates::Authority;
use super::client::{PATIENCE, channel_over};
use super::connections::{is_healthy, is_served, names, open};
use super::poller::{CLUSTERS, Poller};
use super::*;
use weir_testkit::folder::Folder;

/// A relay that identifies its clients by their certificates, and a neighbour: a client that has one cluster.
struct World {
    relay: Relay,
    plane: Plane,
    stream: Stream,
    neighbour: Client,
    version: usize,
    /// The authority that signs all certificates.
    authority: Authority,
    _folder: Folder,
}

const GREEDY: Option<&str> = Some("greedy.example");
const NEIGHBOUR: Option<&str> = Some("neighbour.example");

impl World {
    async fn with(limits: &str) -> Self {
        let (mut plane, authority, folder) =
            (Plane::start(&BOTH).await, Authority::new(), Folder::with_short_path("tls"));
        let own = authority.sign("localhost");
        for (file, text) in [("ca.pem", &authority.pem), ("weir.pem", &own.certificate), ("weir.key", &own.key)] {
            folder.write(file, text);
        }
        let text = format!(
            "listen: [{{address: '127.0.0.1:0', \
             tls: {{certificate: weir.pem, key: weir.key, client_ca: ca.pem, client_auth: optional}}}}]\n\
             admin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\n\
             views: {{key: [cluster]}}\nlimits: {{{limits}}}\n",
            plane.address
        );
        let config = Config::parse(&folder.0.join("relay.yaml"), &text).unwrap();
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let connection = connect(&relay, &authority, NEIGHBOUR).await;
        let neighbour = Client::over_as(connection, Variant::Delta).await.unwrap();
        neighbour.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        let mut world = Self { relay, plane, stream, neighbour, version: 0, authority, _folder: folder };
        world.neighbour_goes_on().await;
        world
    }

    /// Checks that the neighbour gets a change, and ACKs it.
    async fn neighbour_goes_on(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        say(&self.stream, &version, &[("a", version.as_str())], &[], &[]);
        let sent = self.neighbour.sent().await;
        assert_eq!(sent.set, ["a"]);
        self.neighbour.ack(CDS, &[], &sent);
    }

    async fn counted(&self, key: &str) -> u64 {
        reached(&self.relay, &format!("limits.{key}")).await
    }

    /// Waits until no more connections than this are left: they close, but not at once.
    async fn has_connections(&self, count: u64) {
        until("others are closed", async || metric(&self.relay, "weir_client_connections").await as u64 <= count).await;
    }

    async fn connection(&self, identity: Option<&str>) -> TlsStream<TcpStream> {
        connect(&self.relay, &self.authority, identity).await
    }

    async fn channel(&self, identity: Option<&str>) -> Channel {
        channel_over(self.connection(identity).await).await.unwrap()
    }

    async fn poller(&self, identity: Option<&str>) -> Poller {
        Poller::over(self.connection(identity).await).await
    }

    /// Checks that a poll on a new connection is answered with the limit.
    async fn poll_is_refused(&self, cluster: &str, texts: &[&str]) {
        let answer = self.poller(GREEDY).await.poll(CLUSTERS, cluster, json!({})).await;
        assert!(answer.status == 429 && answer.headers["retry-after"] == "10", "{answer:?}");
        let (_, message) = answer.nack();
        assert!(texts.iter().all(|text| message.contains(text)), "{message}");
    }

    /// Waits until a new connection of an identity is served.
    async fn is_served_again(&self, identity: Option<&str>) {
        let served =
            async { while self.poller(identity).await.poll(CLUSTERS, "web", json!({})).await.status != 200 {} };
        tokio::time::timeout(PATIENCE, served).await.expect("it is not served");
    }
}

/// Connects with a certificate for a name, or without a certificate.
async fn connect(relay: &Relay, authority: &Authority, identity: Option<&str>) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match identity.map(|name| authority.sign(name)) {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let socket = TcpStream::connect(relay.address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), socket).await.unwrap()
}

#[tokio::test]
async fn an_identity_with_too_many_connections_is_answered_with_the_limit_and_others_are_served() {
    let mut world = World::with("connections_per_identity: 2").await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let channel = world.channel(GREEDY).await;
        held.push((open(&channel).await.unwrap(), channel));
    }
    let expected =
        ["too many connections of one identity: the limit is 2 (limits.connections_per_identity); close some"];
    names(open(&world.channel(GREEDY).await).await.unwrap_err(), &expected);
    world.poll_is_refused("web", &expected).await;
    world.has_connections(3).await;
    is_healthy(&world.channel(GREEDY).await).await;
    assert_eq!(world.counted("connections_per_identity").await, 3);
    world.has_connections(3).await;

    // Two more connections without a request get the room that is left for answers, and do not keep other clients from being served.
    let silent = [world.connection(GREEDY).await, world.connection(GREEDY).await];
    let mut closed = world.connection(GREEDY).await;
    let end = tokio::time::timeout(PATIENCE, closed.read(&mut [0])).await.expect("it is still open");
    assert!(!matches!(end, Ok(1..)), "{end:?}");
    is_served(open(&world.channel(NEIGHBOUR).await).await.unwrap()).await;
    let mut nobody = Vec::new();
    for _ in 0..4 {
        let channel = world.channel(None).await;
        nobody.push((open(&channel).await.unwrap(), channel));
    }
    world.neighbour_goes_on().await;
    is_served(held.remove(0).0).await;
    drop((held, silent));
    world.has_connections(5).await; // until then, one more of the greedy client may be closed at once
    world.is_served_again(GREEDY).await;
    for (stream, _channel) in nobody {
        is_served(stream).await;
    }
}

#[tokio::test]
async fn an_identity_with_too_many_streams_is_answered_with_the_limit_and_others_are_served() {
    let mut world = World::with("streams_per_identity: 2").await;
    let (one, two) = (world.channel(GREEDY).await, world.channel(GREEDY).await);
    let (first, second) = (open(&one).await.unwrap(), open(&two).await.unwrap());
    let expected = ["too many streams of one identity: the limit is 2 (limits.streams_per_identity); close some"];
    for channel in [&one, &two, &world.channel(GREEDY).await] {
        names(open(channel).await.unwrap_err(), &expected);
    }
    world.poll_is_refused("web", &expected).await;
    is_healthy(&one).await;
    assert_eq!(world.counted("streams_per_identity").await, 4);

    is_served(open(&world.channel(NEIGHBOUR).await).await.unwrap()).await;
    let nobody = world.channel(None).await;
    let streams = [open(&nobody).await.unwrap(), open(&nobody).await.unwrap(), open(&nobody).await.unwrap()];
    world.neighbour_goes_on().await;
    for stream in streams {
        is_served(stream).await;
    }
    is_served(first).await; // returns when the stream has been served, and ends it
    world.is_served_again(GREEDY).await;
    is_served(second).await;
}

#[tokio::test]
async fn an_identity_makes_no_more_views_than_its_share_over_all_its_connections_and_others_are_served() {
    let mut world = World::with("views_per_identity: 2").await;
    let client = async |world: &World, identity, cluster: &str| {
        let client = Client::over_as(world.connection(identity).await, Variant::Delta).await.unwrap();
        client.ask(CDS, &[], Some(cluster));
        client
    };
    let mut made = Vec::new();
    for cluster in ["made-up-1", "made-up-2"] {
        made.push((client(&world, GREEDY, cluster).await, world.plane.stream().await));
    }
    let expected = "too many views of one identity: the limit is 2 (limits.views_per_identity); cluster splits them most, \
                    with 2 values (views.key)";
    let status = client(&world, GREEDY, "made-up-3").await.next_forever().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, expected));
    world.poll_is_refused("made-up-3", &[expected]).await;
    assert_eq!(world.counted("views_per_identity").await, 2);
    let metrics = get(world.relay.admin, "/metrics").await;
    let rejected = "weir_client_streams_rejected_total{reason=\"too_many_views_of_identity\"} 2\n";
    assert!(metrics.contains(rejected), "{metrics}");

    assert_eq!(client(&world, GREEDY, "web").await.sent().await.set, ["a"], "that view counts for the neighbour");
    for identity in [NEIGHBOUR, None] {
        let cluster = identity.unwrap_or("nobody.example");
        let _other = client(&world, identity, cluster).await;
        world.plane.stream().await;
    }
    world.neighbour_goes_on().await;
    // Once the client of one of the two views has left, that view makes room.
    drop(made.remove(0));
    until("there is room", async || {
        world.poller(GREEDY).await.poll(CLUSTERS, "made-up-3", json!({})).await.status != 429
    })
    .await;
}

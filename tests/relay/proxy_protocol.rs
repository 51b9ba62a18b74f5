//! Balancers that state the client of a connection by the PROXY protocol: the statement of a trusted one counts for limits, rules and reports, and
//! that of another peer ends the connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::poller::{CLUSTERS, Poller};
use super::*;

/// Starts a relay whose listener trusts headers from these networks.
async fn relay_behind(plane: &Plane, networks: &str, rest: &str) -> Relay {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0', proxy_protocol_from: [{networks}]}}]
admin: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{}', variant: delta}}]}}
views: {{key: [cluster]}}
{rest}",
        plane.address
    );
    run(crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap(), std::future::pending())
}

/// Opens a connection that begins with these bytes.
async fn connected(relay: &Relay, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(relay.address).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

async fn client(relay: &Relay, first: &[u8], variant: Variant) -> Option<Client> {
    Client::over_as(connected(relay, first).await, variant).await
}

fn line(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 10.9.9.9 4711 18000\r\n").into_bytes()
}

/// Returns a header of version 2 that has more than the addresses.
fn binary(client: [u8; 4]) -> Vec<u8> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10".as_slice();
    [signature, &client, &[10, 9, 9, 9, 0x12, 0x67, 0x46, 0x50], &[4, 0, 1, 0]].concat()
}

/// Waits until the relay closes the connection.
async fn is_closed(mut stream: TcpStream) {
    let ended = tokio::time::timeout(client::PATIENCE, stream.read(&mut [0; 1])).await;
    let ended = ended.expect("the connection stays open").map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{ended:?}");
}

async fn refused(relay: &Relay, reason: &str) -> u64 {
    metric(relay, &format!("weir_proxy_headers_refused_total{{reason=\"{reason}\"}}")).await as u64
}

#[tokio::test]
async fn the_stated_address_is_shown_and_rules_go_by_it() {
    let mut plane = Plane::start(&BOTH).await;
    let rule = "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.1.0.0/16]}]\n";
    let relay = relay_behind(&plane, "127.0.0.1", rule).await;
    let mut inside = client(&relay, &line("10.1.2.3"), Variant::Delta).await.unwrap();
    inside.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(inside.sent().await.set, ["a", "b"]);
    let mut outside = client(&relay, &binary([10, 2, 0, 1]), Variant::Sotw).await.unwrap();
    outside.ask(CDS, &[], Some("web"));
    assert_eq!(outside.sent().await.set, ["a"]);
    let report = get(relay.admin, "/clients").await;
    assert!(report.contains("\"10.1.2.3:4711\"") && report.contains("\"10.2.0.1:4711\""), "{report}");
}

#[tokio::test]
async fn a_connection_of_the_balancer_itself_is_served_under_its_own_address() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay_behind(&plane, "127.0.0.0/8", "").await;
    for own in [b"PROXY UNKNOWN\r\n".as_slice(), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let probe = client(&relay, own, Variant::Delta).await.unwrap();
        probe.ask(CDS, &[], Some("web"));
        let peer = "\"peer\": \"127.0.0.1:";
        until("it is shown", async || get(relay.admin, "/clients").await.contains(peer)).await;
        drop(probe);
        until("it is gone", async || get(relay.admin, "/clients").await.contains("\"open\": 0")).await;
    }
}

#[tokio::test]
async fn limits_by_address_count_the_stated_one() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay_behind(&plane, "127.0.0.1", "limits: {connections_per_address: 1}\n").await;
    let first = client(&relay, &line("10.1.2.3"), Variant::Delta).await.unwrap();
    first.ask(CDS, &[], Some("web"));
    let other = client(&relay, &line("10.1.2.4"), Variant::Delta).await.unwrap();
    other.ask(CDS, &[], Some("web"));
    until("both are shown", async || get(relay.admin, "/clients").await.matches("\"peer\": \"10.1.2.").count() == 2)
        .await;
    let mut poller = Poller::over(connected(&relay, &line("10.1.2.3")).await).await;
    let answer = poller.poll(CLUSTERS, "web", serde_json::json!({})).await;
    assert_eq!(answer.status.as_u16(), 429);
    let limit = "weir_limit_reached_total{limit=\"limits.connections_per_address\"} 1\n";
    assert!(get(relay.admin, "/metrics").await.contains(limit));
    drop((first, other, poller));
    until("it may come back", async || {
        let mut poller = Poller::over(connected(&relay, &line("10.1.2.3")).await).await;
        poller.poll(CLUSTERS, "web", serde_json::json!({})).await.status != 429
    })
    .await;
}

#[tokio::test]
async fn a_balancer_without_a_header_is_closed_and_so_is_anybody_else_with_one() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay_behind(&plane, "127.0.0.1", "").await;
    is_closed(connected(&relay, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await).await;
    is_closed(connected(&relay, b"PROXY TCP4 somewhere\r\n").await).await;
    until("they are counted", async || (refused(&relay, "missing").await, refused(&relay, "invalid").await) == (1, 1))
        .await;
    assert_eq!(refused(&relay, "untrusted").await, 0);

    let relay = relay_behind(&plane, "10.0.0.0/8", "").await;
    for header in [line("10.1.2.3"), binary([10, 1, 2, 3])] {
        is_closed(connected(&relay, &header).await).await;
    }
    until("they are counted", async || refused(&relay, "untrusted").await == 2).await;
    let direct = client(&relay, b"", Variant::Delta).await.unwrap();
    direct.ask(CDS, &[], Some("web"));
    until("it is served", async || get(relay.admin, "/clients").await.contains("\"127.0.0.1:")).await;
}

#[tokio::test]
async fn a_listener_without_balancers_takes_nobodys_word() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    for header in [line("10.1.2.3"), binary([10, 1, 2, 3])] {
        let mut stream = connected(&relay, &header).await;
        let mut answer = Vec::new();
        let read =
            tokio::time::timeout(client::PATIENCE, stream.read_to_end(&mut answer)).await.expect("it stays open");
        let text = String::from_utf8_lossy(&answer);
        assert!(read.is_err() || text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    }
    assert!(get(relay.admin, "/clients").await.contains("\"open\": 0"));
}

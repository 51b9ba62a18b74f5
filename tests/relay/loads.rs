//! Load reporting through the relay: streams that are passed through, and streams that are put together.

use prost::Message;
use tokio::sync::oneshot;

use super::client::{PATIENCE, node};
use super::load_plane::{LoadClient, LoadPlane};
use super::*;
use weir::proto::loads::LoadStatsRequest;

async fn loads_relay(plane: SocketAddr, rest: &str) -> Relay {
    let config = config(plane, "", &format!("views: {{key: [cluster]}}\n{rest}"));
    run(App::bind(config).await.unwrap(), std::future::pending())
}

fn opening(cluster: &str) -> LoadStatsRequest {
    LoadStatsRequest { node: node(cluster), ..Default::default() }
}

#[tokio::test]
async fn lrs_11_messages_pass_through_byte_for_byte_in_both_directions() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    // Fields that nobody knows, and an order of fields that no encoder makes.
    let first = [&b"\x9a\x06\x01x"[..], &opening("web").encode_to_vec(), b"\xf8\xff\x03\x01"].concat();
    client.send(&first).await;
    let mut stream = plane.stream().await;
    assert_eq!(stream.message().await.unwrap(), first, "the client's own node, and not that of its key");
    stream.say(b"\x20\x01\x9a\x06\x01y\x0a\x01c").await;
    assert_eq!(client.answer().await.unwrap().unwrap(), &b"\x20\x01\x9a\x06\x01y\x0a\x01c"[..]);
    for message in [&b"\x12\x03\x0a\x01c"[..], b"", b"no protobuf at all", &[b'x'; 200_000]] {
        client.send(message).await;
        assert_eq!(stream.message().await.unwrap(), message);
        stream.say(message).await;
        assert_eq!(client.answer().await.unwrap().unwrap(), message);
    }
    let other = LoadClient::connect(relay.address).await;
    other.report(&opening("web")).await;
    assert_eq!(plane.stream().await.report().await, opening("web"), "a stream of its own");
}

#[tokio::test]
async fn the_end_of_one_side_is_the_end_of_the_other_with_its_status() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    for code in [0, 7, 12] {
        let mut client = LoadClient::connect(relay.address).await;
        client.report(&opening("web")).await;
        plane.stream().await.end(code).await;
        assert_eq!(client.ended().await.code() as u16, code);
    }
    // A client that half-closes still hears how it ended.
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    client.reports = None;
    assert_eq!(stream.message().await, None);
    stream.say(b"last").await;
    stream.end(0).await;
    assert_eq!(client.answer().await.unwrap().unwrap(), &b"last"[..]);
    assert_eq!(client.ended().await.code(), Code::Ok);
    // One that goes is gone upstream too.
    let client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    drop(client);
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn lrs_9_without_a_control_plane_the_client_is_told_to_come_back() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    let address = plane.kill().await;
    assert_eq!(client.ended().await.code(), Code::Unavailable, "the connection broke");
    drop(stream);
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    assert_eq!(client.ended().await.code(), Code::Unavailable, "there is none");
    let mut plane = LoadPlane::start_at(address).await;
    let client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    plane.stream().await.report().await;
}

#[tokio::test]
async fn a_side_that_does_not_read_holds_the_other_back() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    let large = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(500), stream.say(&large)).await.is_ok() {
        sent += 1;
        assert!(sent < 32, "whatever is said is taken, although nobody reads it");
    }
    for _ in 0..sent {
        assert_eq!(client.answer().await.unwrap().unwrap(), large);
    }
}

#[tokio::test]
async fn streams_that_make_no_sense_are_ended_with_a_reason() {
    let plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "limits: {message_bytes: 1000}\n").await;
    for (message, code) in [
        (LoadStatsRequest::default().encode_to_vec(), Code::InvalidArgument),
        (b"\x0a\x09".to_vec(), Code::InvalidArgument),
        (vec![0; 1001], Code::ResourceExhausted),
    ] {
        let mut client = LoadClient::connect(relay.address).await;
        client.send(&message).await;
        assert_eq!(client.ended().await.code(), code);
    }
}

#[tokio::test]
async fn lrs_11_where_loads_are_off_there_is_no_such_method() {
    let plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "loads: {mode: off}\n").await;
    let refused = LoadClient::try_connect(relay.address).await.err().expect("it is served");
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn trn_19_streams_of_loads_end_when_the_relay_goes() {
    let mut plane = LoadPlane::start().await;
    let config = config(plane.address, "", "drain: {grace: 10s, spread: 100ms}\n");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut relay = run(App::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    stop.send(()).unwrap();
    assert_eq!(client.ended().await.code(), Code::Unavailable);
    drop((client, stream));
    tokio::time::timeout(PATIENCE, &mut relay.task).await.expect("the relay does not go").unwrap();
}

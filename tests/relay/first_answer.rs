//! What makes a relay without clients ready: which servers it asks, which answers count, and what happens to the connection on which it asks.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::life::response;
use super::plane::{Answers, Habits};
use super::rest_plane::RestPlane;
use super::*;

/// Waits until the relay is ready.
async fn is_ready(relay: &Relay) {
    until("it is ready", async || probe(relay.admin, "/ready").await.0 == 200).await;
}

/// Waits until the relay reports this reason for not being ready.
async fn is_not_ready(relay: &Relay, reason: &str) {
    let has_reason = async || {
        let (status, body) = probe(relay.admin, "/ready").await;
        status == 503 && body.contains(reason)
    };
    until(reason, has_reason).await;
}

async fn start(text: &str) -> Relay {
    let text = format!("admin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n{text}");
    run(crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap(), std::future::pending())
}

fn list(servers: &[SocketAddr]) -> String {
    let servers: Vec<_> = servers.iter().map(|server| format!("{{uri: 'http://{server}'}}")).collect();
    format!("upstream: {{servers: [{}]}}\n", servers.join(", "))
}

async fn start_with(servers: &[SocketAddr], more: &str) -> Relay {
    start(&format!("listen: [{{address: '127.0.0.1:0'}}]\n{}{more}", list(servers))).await
}

async fn start_at(address: SocketAddr, servers: &[SocketAddr]) -> Relay {
    start(&format!("listen: [{{address: '{address}'}}]\n{}", list(servers))).await
}

#[tokio::test]
async fn a_server_with_a_health_service_has_to_say_serving() {
    let habits = Habits { variants: &[], answers: Answers::Health(2), ..Habits::default() };
    let server = Plane::with(plane::own_address(), habits).await;
    let relay = start_with(&[server.address], "").await;
    is_not_ready(&relay, &format!("http://{}: its health check says NOT_SERVING", server.address)).await;
    server.answer(Answers::Health(1));
    is_ready(&relay).await;
    server.answer(Answers::Health(2));
    assert_eq!(probe(relay.admin, "/ready").await.0, 200, "for good");
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_on_them_has_not_answered() {
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hung.local_addr().unwrap();
    let server = format!("{{uri: 'http://{address}', connect_timeout: 200ms}}");
    let relay = start(&format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{server}]}}\n")).await;
    is_not_ready(&relay, "it took the connection and said nothing on it within 200ms").await;
}

/// A gateway accepts connections and answers health checks itself, whether or not a control plane is behind it.
#[tokio::test]
async fn a_gateway_does_not_answer_for_a_server_that_is_not_behind_it_nor_keep_one_that_is_from_answering() {
    let quick = "liveness: {timeout: 300ms}";
    let text = |address| {
        format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://{address}', {quick}}}]}}\n")
    };
    let gateway = super::evidence_silence::a_gateway_that_knows_discovery_alone().await;
    let relay = start(&text(gateway.address)).await;
    is_not_ready(
        &relay,
        "; nor to a call: an empty stream has no answer in time; an empty stream has no answer in time",
    )
    .await;
    for (refuses, answers) in [
        (Answers::NoRoute(12, Some(14)), Answers::NoRoute(12, Some(0))),
        (Answers::Refused(16, Some(14)), Answers::Refused(16, Some(0))),
        (Answers::NoRoute(12, None), Answers::NoRoute(12, Some(0))),
        (Answers::NoRouteInWords(12, Some(14)), Answers::NoRouteInWords(12, Some(0))),
        (Answers::Refused(16, None), Answers::Refused(7, Some(0))),
    ] {
        let server = Plane::answering(refuses).await;
        let relay = start(&text(server.address)).await;
        is_not_ready(&relay, "; nor to a call: ").await;
        server.answer(answers);
        is_ready(&relay).await;
    }
}

#[tokio::test]
async fn any_server_of_any_list_makes_a_relay_ready_and_one_that_is_never_asked_for_does_not_hold_it_up() {
    let nowhere = any_address().await;
    let plane = Plane::start(&BOTH).await;
    let fallback = start_with(&[nowhere, plane.address], "").await;
    is_ready(&fallback).await;
    let authorities = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream:\n  servers: [{{uri: 'http://{nowhere}'}}]\n  \
         authorities: {{x: {{servers: [{{uri: 'http://{}'}}]}}}}\n",
        plane.address
    );
    is_ready(&start(&authorities).await).await;
}

#[tokio::test]
async fn a_relay_is_ready_after_a_time_if_that_is_configured() {
    let nowhere = any_address().await;
    let relay = start_with(&[nowhere], "ready_after: 10s\n").await;
    is_not_ready(&relay, "no answer from a server yet").await;
    is_ready(&relay).await;
}

#[tokio::test]
async fn files_count_when_all_of_them_were_read_and_a_relay_of_files_is_ready_at_once() {
    let folder = weir_testkit::folder::Folder::with_short_path("first-answer");
    let path = folder.0.join("resources");
    let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{files: '{}'}}\n", path.display());
    let relay = start(&text).await;
    is_not_ready(&relay, &format!("not read yet: files {}", path.display())).await;
    std::fs::create_dir(&path).unwrap();
    is_ready(&relay).await;
    let relay = start(&text).await;
    assert_eq!(probe(relay.admin, "/ready").await.0, 200, "at once");
}

/// Answers each connection with a status that depends on the head of its request.
async fn says(listener: TcpListener, status: impl Fn(&str) -> u16) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let length = socket.read(&mut head).await.unwrap_or_default();
        let status = status(&String::from_utf8_lossy(&head[..length]));
        let answer = format!("HTTP/1.1 {status} Word\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = socket.write_all(answer.as_bytes()).await;
    }
}

#[tokio::test]
async fn a_server_that_is_polled_has_to_answer_over_http() {
    let nowhere = any_address().await;
    let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{rest: 'http://{nowhere}'}}]}}\n");
    let relay = start(&text).await;
    is_not_ready(&relay, &format!("no answer from a server yet: http://{nowhere} (REST): ")).await;
    let hung = super::plane::listen_at(nowhere).await;
    let patience = text.replace("{rest: ", "{request_timeout: 200ms, rest: ");
    is_not_ready(&start(&patience).await, "no answer within 200ms").await;
    drop(hung);
    for status in [500, 503, 401, 403] {
        let server = super::plane::listen_at(nowhere).await;
        let serving = tokio::spawn(says(server, move |_| status));
        is_not_ready(&start(&text).await, &format!("(REST): {status}")).await;
        serving.abort();
        let _ = serving.await; // the address is free after this
    }
    let forbids = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = text.replace(&nowhere.to_string(), &forbids.local_addr().unwrap().to_string());
    let forbidding = tokio::spawn(says(forbids, |head| if head.contains("discovery:nothing") { 403 } else { 404 }));
    is_ready(&start(&other).await).await; // the server rejects the unknown type, and not the relay
    forbidding.abort();
    let _server = RestPlane::start_at(nowhere, None).await; // it has nothing
    is_ready(&relay).await;
}

#[tokio::test]
async fn the_connection_is_kept_for_the_first_view_and_closed_after_the_linger_time_without_one() {
    for most_streams in [None, Some(1)] {
        let mut server =
            Plane::with(plane::own_address(), Habits { max_streams: most_streams, ..Habits::default() }).await;
        let relay = start_with(&[server.address], "").await;
        is_ready(&relay).await;
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let stream = server.stream().await;
        stream.send(response("a"));
        assert_eq!(client.sent().await.set, ["a"]);
        assert_eq!((stream.connection, server.connections()), (0, 1), "{most_streams:?}");
    }
    let server = Plane::answering(Answers::Status(12)).await;
    let relay = start_with(&[server.address], "limits: {linger: 100ms}\n").await;
    is_ready(&relay).await;
    until("it is closed", async || server.connections() == 0).await;
    assert_eq!(probe(relay.admin, "/ready").await.0, 200);
}

#[tokio::test]
async fn two_relays_that_are_each_others_fallback_wait_for_a_server_and_not_for_one_another() {
    let nowhere = any_address().await;
    let (one, other) = (any_address().await, any_address().await);
    let (first, second) = (start_at(one, &[nowhere, other]).await, start_at(other, &[nowhere, one]).await);
    for (relay, fallback) in [(&first, other), (&second, one)] {
        is_not_ready(relay, &format!("http://{fallback}: its health check says NOT_SERVING")).await;
    }
    let mut plane = Plane::start_at(nowhere, &BOTH).await;
    is_ready(&first).await;
    is_ready(&second).await;
    assert!(plane.streams.try_recv().is_err());
}

#[tokio::test]
async fn a_relay_is_ready_by_a_relay_that_is_its_fallback_and_has_something() {
    let nowhere = any_address().await;
    let plane = Plane::start(&BOTH).await;
    let old = start_with(&[plane.address], "").await;
    is_ready(&old).await;
    plane.kill().await;
    is_ready(&start_with(&[nowhere, old.address], "").await).await;
}

#[tokio::test]
async fn three_tiers_become_ready_in_whatever_order_they_start() {
    for upwards in [true, false] {
        let plane = any_address().await;
        let (middle, top) = (any_address().await, any_address().await);
        let mut tiers = [(top, plane), (middle, top), (any_address().await, middle)];
        if upwards {
            tiers.reverse();
        }
        let mut relays = Vec::new();
        for (address, server) in tiers {
            relays.push(start_at(address, &[server]).await);
        }
        for relay in &relays {
            is_not_ready(relay, "no answer from a server yet").await;
        }
        let mut plane = Plane::start_at(plane, &BOTH).await;
        for relay in &relays {
            is_ready(relay).await;
        }
        assert!(plane.streams.try_recv().is_err(), "no tier has asked for anything");
    }
}

#[tokio::test]
async fn a_server_that_judges_clients_by_their_headers_may_refuse_a_question_without_them() {
    const UNAUTHENTICATED: u16 = 16;
    let plane = Plane::refusing_at(plane::own_address(), UNAUTHENTICATED).await;
    for (field, is_enough) in [("", false), (", header.x-token", true)] {
        let views = format!("views: {{key: [cluster{field}]}}");
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n{views}\n{}",
            list(&[plane.address])
        );
        let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        match is_enough {
            true => is_ready(&relay).await,
            false => is_not_ready(&relay, "nor to a call: a stream is refused (Unauthenticated)").await,
        }
    }
}

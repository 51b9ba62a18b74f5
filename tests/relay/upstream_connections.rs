//! Streams to one server share connections.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use weir::relay::{Connector, LinkEvent};
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::proto::node::Node;
use weir_core::xds::LOADS_PATH;

use super::life::{View, connector, response};
use super::log_lines::Lines;
use super::plane::{Answers, Habits};
use super::*;

const OWN_CALLS: &str = "liveness: {interval: 0s, timeout: 20s}";

async fn limited(max_streams: u32) -> Plane {
    Plane::with(plane::own_address(), Habits { max_streams: Some(max_streams), ..Habits::default() }).await
}

async fn relay_to(server: &Plane) -> Relay {
    relay(server.address, ", variant: delta, backoff: {initial: 20ms}").await
}

/// Connects a client with a node cluster, and so a view, of its own. Also returns the server's end of the view's stream.
async fn client(relay: &Relay, server: &mut Plane, number: usize) -> (Client, Stream) {
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some(&format!("view-{number}")));
    (client, server.stream().await)
}

async fn gets(client: &mut Client, stream: &Stream, name: &str) {
    stream.send(response(name));
    assert_eq!(client.sent().await.set, [name]);
}

#[tokio::test]
async fn sixty_views_share_two_connections_which_close_with_their_last_stream() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let relay = relay_to(&server).await;
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(&format!("view-{number}")));
        clients.push(client);
    }
    let mut by_connection: BTreeMap<usize, usize> = BTreeMap::new();
    for _ in 0..60 {
        let stream = server.stream().await;
        *by_connection.entry(stream.connection).or_default() += 1;
        stream.send(response("a"));
        streams.push(stream);
    }
    for client in &mut clients {
        assert_eq!(client.sent().await.set, ["a"]);
    }
    let mut counts: Vec<_> = by_connection.into_values().collect();
    counts.sort_unstable();
    assert_eq!((counts, server.connections()), (vec![10, 50], 2));
    let metrics = get(relay.admin, "/metrics").await;
    let line = format!("weir_upstream_connections{{server=\"http://{}\"}} 2", server.address);
    assert!(metrics.lines().any(|written| written == line), "{line} is missing in {metrics}");

    let connector = connector(server.address, OWN_CALLS);
    let (one, _of_one) = View::up(&connector, &mut server).await;
    let (two, _of_two) = View::up(&connector, &mut server).await;
    until("a connection of its own", async || server.connections() == 3).await;
    drop(one);
    let (three, of_three) = View::up(&connector, &mut server).await;
    assert_eq!(server.connections(), 3, "the connection stays for the second stream");
    drop((two, three));
    until("the connection closes", async || server.connections() == 2).await;
    drop(of_three);
}

#[tokio::test]
async fn three_thousand_load_streams_of_one_client_have_sixty_connections_of_their_own() {
    const STREAMS: usize = 3000;
    let mut server = Plane::answering(Answers::Status(12)).await;
    // The client sends the beginning of all streams before the first message of any.
    let limits = "limits: {first_message: 0s}\nload_reports: {streams_per_connection: 0}\n";
    let rest = format!("views: {{key: [cluster]}}\n{limits}");
    let config = config(server.address, ", variant: delta, backoff: {initial: 20ms}", &rest);
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let (_client, discovery) = client(&relay, &mut server, 0).await;
    let channel = Endpoint::from_shared(format!("http://{}", relay.address)).unwrap().connect().await.unwrap();
    let mut calls = JoinSet::new();
    for number in 0..STREAMS {
        let node = Node { cluster: format!("made-up-{number}"), ..Default::default() };
        let first = LoadStatsRequest { node: Some(node.encode_to_vec().into()), ..Default::default() };
        let mut grpc = Grpc::new(channel.clone());
        calls.spawn(async move {
            let (reports, stream) = mpsc::channel(1);
            reports.send(first).await.unwrap();
            grpc.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<LoadStatsRequest, LoadStatsRequest>::default();
            let path = PathAndQuery::from_static(LOADS_PATH);
            let open = grpc.streaming(tonic::Request::new(ReceiverStream::new(stream)), path, codec).await;
            let _open = (open, reports);
            std::future::pending::<()>().await;
        });
    }
    let mut streams = Vec::new();
    let mut connections = BTreeSet::new();
    for _ in 0..STREAMS {
        let stream = server.load_stream().await;
        connections.insert(stream.connection);
        streams.push(stream);
    }
    assert!(connections.len() <= STREAMS / 50, "{} connections", connections.len());
    assert!(!connections.contains(&discovery.connection), "what clients report delays no view");
    drop(calls);
    until("their connections close", async || server.connections() == 1).await;
}

#[tokio::test]
async fn forty_nine_views_that_take_nothing_do_not_stop_the_fiftieth_on_their_connection() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, OWN_CALLS);
    let large = response(&"a".repeat(100)).repeat(500);
    let mut stuck = Vec::new();
    for _ in 0..49 {
        let (view, stream) = View::up(&connector, &mut server).await;
        (0..20).for_each(|_| stream.send(large.clone())); // more than the window of a stream
        stuck.push((view, stream));
    }
    let (mut view, stream) = View::up(&connector, &mut server).await;
    assert_eq!(server.connections(), 1);
    for _ in 0..200 {
        stream.send(response(&"b".repeat(100)).repeat(100));
        for _ in 0..100 {
            view.answered().await;
        }
    }
    view.life.notify_one();
    view.is_alive().await;
    let (mut late, _stream) = stuck.swap_remove(0);
    for _ in 0..20 * 500 {
        let event = late.event().await;
        assert!(matches!(event, LinkEvent::Response(_) | LinkEvent::Receiving), "{event:?}");
    }
}

#[tokio::test]
async fn a_stream_counts_until_both_of_its_directions_have_ended() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OWN_CALLS}, max_streams_per_connection: 2"));
    let (view, stream) = View::up(&connector, &mut server).await;
    let requests = view.stop().await;
    let (_one, of_one) = View::up(&connector, &mut server).await;
    assert_eq!(of_one.connection, stream.connection, "the relay may still send requests on it");
    let (_two, of_two) = View::up(&connector, &mut server).await;
    assert_ne!(of_two.connection, stream.connection, "two streams are all that it has room for");
    let (_three, of_three) = View::up(&connector, &mut server).await;
    assert_eq!(of_three.connection, of_two.connection, "and the other one is full too");
    drop(requests);
    until("there is room again", async || {
        let mut late = View::of(&connector);
        late.opened().await;
        connector.connections() == Some(2)
    })
    .await;
}

#[tokio::test]
async fn a_connection_with_nothing_but_requests_that_the_server_does_not_read_is_closed() {
    let (lines, _guard) = Lines::down_to(tracing::Level::DEBUG);
    let habits = Habits { reads: false, max_streams: None, ..Habits::default() };
    let mut server = Plane::with(plane::own_address(), habits).await;
    let connector = connector(server.address, OWN_CALLS);
    let (mut view, stream) = View::up(&connector, &mut server).await;
    stream.send(response("a"));
    view.answered().await;
    for number in 0..2 {
        // Each request is larger than the window of the stream, which the server never extends.
        let names = (0..100).map(|name| format!("{number}-{name}-{}", "x".repeat(30_000))).collect();
        view.request(Request::Delta(DeltaDiscoveryRequest {
            type_url: EDS.into(),
            resource_names_subscribe: names,
            ..Default::default()
        }))
        .await;
    }
    drop(view.stop().await);
    until("the connection closes", async || connector.connections() == Some(0) && server.connections() == 0).await;
    // A connection whose streams have ended in both directions closes without a word.
    assert_eq!(lines.with("the server does not read what was sent on it").len(), 1);
    drop(stream);
}

#[tokio::test]
async fn a_server_that_allows_one_stream_has_a_connection_for_each_and_no_call_beside_it() {
    let mut server = limited(1).await;
    let relay = relay_to(&server).await;
    let mut clients = Vec::new();
    for number in 0..3 {
        let (mut client, stream) = client(&relay, &mut server, number).await;
        gets(&mut client, &stream, "a").await;
        clients.push((client, stream));
    }
    for (client, stream) in &mut clients {
        gets(client, stream, "b").await;
    }
    assert_eq!(server.connections(), 3);

    let asked_at_start = server.calls();
    let connector = connector(server.address, "liveness: {interval: 50ms, timeout: 100ms}");
    let (mut view, stream) = View::up(&connector, &mut server).await;
    view.life.notify_one();
    view.says_nothing(Duration::from_millis(500)).await; // a call that waits for the stream to end would be missed twice meanwhile
    stream.send(response("a"));
    view.answered().await;
    assert_eq!((server.calls(), connector.unanswered_calls()), (asked_at_start, Some(0)));
}

#[tokio::test]
async fn no_stream_waits_for_another_where_the_server_allows_few() {
    let mut server = limited(10).await;
    let connector = connector(server.address, OWN_CALLS);
    let mut views: Vec<_> = (0..12).map(|_| View::of(&connector)).collect();
    let mut by_connection: BTreeMap<usize, usize> = BTreeMap::new();
    let mut streams = Vec::new();
    for _ in 0..12 {
        let stream = server.stream().await;
        *by_connection.entry(stream.connection).or_default() += 1;
        streams.push(stream);
    }
    assert!(by_connection.values().all(|count| *count <= 5), "each has room for a call: {by_connection:?}");
    server.answer(Answers::Held);
    for view in &mut views {
        view.opened().await;
        view.life.notify_one();
    }
    until("all calls are made at once", async || server.calls() >= 12).await;
    (0..12).for_each(|_| server.release());
}

#[tokio::test]
async fn after_a_goaway_new_streams_go_elsewhere_and_those_that_end_follow_unnoticed_by_clients() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let relay = relay_to(&server).await;
    let (mut one, of_one) = client(&relay, &mut server, 1).await;
    let (mut two, of_two) = client(&relay, &mut server, 2).await;
    assert_eq!(of_one.connection, of_two.connection);
    gets(&mut one, &of_one, "a").await;
    gets(&mut two, &of_two, "a").await;
    server.leave();
    gets(&mut one, &of_one, "b").await; // after the server has said that it accepts no more streams
    let (mut three, of_three) = client(&relay, &mut server, 3).await;
    assert_ne!(of_three.connection, of_one.connection);
    gets(&mut three, &of_three, "a").await;
    gets(&mut two, &of_two, "b").await; // the stream stays on its connection

    drop((of_one, of_two));
    let moved = [server.stream().await, server.stream().await];
    assert!(moved.iter().all(|stream| stream.connection == of_three.connection));
    until("the old connection closes", async || server.connections() == 1).await;
    moved.iter().for_each(|stream| stream.send(response("c")));
    assert_eq!(one.sent().await.set, ["c"]);
    assert_eq!(two.sent().await.set, ["c"]);
}

#[tokio::test]
async fn a_stream_that_needs_evidence_moves_away_from_a_server_that_takes_no_more_calls() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OWN_CALLS}, backoff: {{initial: 20ms}}"));
    let (mut moves, of_moves) = View::up(&connector, &mut server).await;
    let (mut stays, of_stays) = View::up(&connector, &mut server).await;
    for (view, stream) in [(&mut moves, &of_moves), (&mut stays, &of_stays)] {
        stream.send(response("a"));
        view.answered().await;
    }
    server.leave();
    of_moves.send(response("b"));
    moves.answered().await;
    moves.life.notify_one();
    let (reason, answered) = moves.ended().await;
    assert!(reason.contains("takes no more calls") && answered, "{reason}");
    assert_eq!(connector.unanswered_calls(), Some(0), "nothing is wrong with the server");
    moves.opened().await;
    assert_ne!(server.stream().await.connection, of_stays.connection);
    of_stays.send(response("b"));
    stays.answered().await;
}

#[tokio::test]
async fn a_stream_without_a_response_on_a_connection_that_the_server_leaves_is_no_sign_of_an_outage_once() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OWN_CALLS}, backoff: {{initial: 1h, max: 1h}}"));
    let (mut other, of_other) = View::up(&connector, &mut server).await;
    let (mut view, stream) = View::up(&connector, &mut server).await;
    server.leave();
    of_other.send(response("a"));
    other.answered().await; // after the server has said that it accepts no more streams
    drop(stream);
    assert!(view.ended().await.1, "the server has sent it elsewhere");
    view.opened().await;
    let stream = server.stream().await;
    assert_ne!(stream.connection, of_other.connection);
    server.leave();
    drop(stream);
    assert!(!view.ended().await.1, "it had this connection to itself, and no response");
    view.says_nothing(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_stream_that_has_had_a_response_since_can_be_sent_elsewhere_again() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OWN_CALLS}, backoff: {{initial: 20ms}}"));
    let (mut other, mut of_other) = View::up(&connector, &mut server).await;
    let (mut view, mut stream) = View::up(&connector, &mut server).await;
    let mut left = Vec::new();
    for round in ["first", "second"] {
        assert_eq!(stream.connection, of_other.connection);
        server.leave();
        of_other.send(response(round));
        other.answered().await; // after the server has said that it accepts no more streams
        drop(stream);
        assert!(view.ended().await.1, "the server has sent it elsewhere for the {round} time");
        view.opened().await;
        let answered = server.stream().await;
        answered.send(response(round));
        view.answered().await;
        left.push((other, of_other));
        (other, of_other) = View::up(&connector, &mut server).await;
        drop(answered);
        assert!(view.ended().await.1);
        view.opened().await;
        stream = server.stream().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_ends_its_streams_alone_and_they_come_back_one_by_one() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let backoff = "backoff: {initial: 4s, jitter: 0.5}";
    let connector = connector(server.address, &format!("{OWN_CALLS}, {backoff}, max_streams_per_connection: 20"));
    let mut views = Vec::new();
    for _ in 0..20 {
        let (mut view, stream) = View::up(&connector, &mut server).await;
        stream.send(response("a"));
        view.answered().await;
        views.push((view, stream));
    }
    assert_eq!(server.connections(), 1);
    server.cut();
    let (mut other, of_other) = View::up(&connector, &mut server).await; // on a connection of its own
    let mut back = JoinSet::new();
    for (mut view, stream) in views {
        drop(stream);
        let (_, answered) = view.ended().await;
        assert!(answered, "each is judged by its own responses");
        back.spawn(async move {
            view.opened().await;
            (tokio::time::Instant::now(), view)
        });
    }
    let back = back.join_all().await;
    let times = || back.iter().map(|(time, _)| *time);
    let spread = times().max().unwrap() - times().min().unwrap();
    assert!(spread > Duration::from_millis(100), "waits of two to six seconds differ by {spread:?}");
    of_other.send(response("a"));
    other.answered().await;
    until("they share again", async || server.connections() == 2).await;
}

#[tokio::test]
async fn a_stream_that_ends_without_a_response_tries_a_later_connection() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OWN_CALLS}, backoff: {{initial: 20ms}}"));
    let (mut healthy, of_healthy) = View::up(&connector, &mut server).await;
    let (mut rejected, first) = View::up(&connector, &mut server).await;
    assert_eq!(first.connection, of_healthy.connection);
    let mut connections = BTreeSet::from([first.connection]);
    drop(first);
    for _ in 0..2 {
        assert!(!rejected.ended().await.1);
        rejected.opened().await;
        let next = server.stream().await;
        assert!(connections.insert(next.connection), "a balancer may route the others to the same broken server");
    }
    of_healthy.send(response("a"));
    healthy.answered().await;
    // A stream that had a response may be opened on the same connection again.
    drop(of_healthy);
    assert!(healthy.ended().await.1);
}

#[tokio::test]
async fn the_streams_of_an_old_connection_move_one_by_one_once_their_new_one_is_there() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector =
        connector(server.address, &format!("{OWN_CALLS}, backoff: {{initial: 1h, max: 1h}}, max_connection_age: 8s"));
    let (mut views, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (mut view, stream) = View::up(&connector, &mut server).await;
        stream.send(response("a"));
        view.answered().await;
        views.push((view, stream));
    }
    assert_eq!(server.connections(), 1);
    let (first, mut moved) = (views[0].1.connection, Vec::new());
    for number in 0..3 {
        let (view, mut old) = views.remove(0);
        old.requests_end().await;
        assert!(server.streams.try_recv().is_err(), "a server may have one record for both");
        drop(old);
        ended.push(view);
        let stream = server.stream().await;
        assert_ne!(stream.connection, first);
        assert!(server.streams.try_recv().is_err(), "the next one waits for the response of this one");
        if number < 2 {
            stream.send(response("a"));
        }
        moved.push(stream);
    }
    let second = moved[0].connection;
    assert!(moved.iter().all(|stream| stream.connection == second), "they share it");
    for view in &mut ended {
        view.moving().await;
        let ended = view.event().await;
        let is_well = matches!(ended, LinkEvent::Ended { answered: true, is_lost: false, .. });
        assert!(is_well, "nothing is wrong with the server: {ended:?}");
        view.opened().await;
    }
    until("the old connection closes", async || server.connections() == 1).await;
}

/// No outage is detected, nothing is removed, and nothing is sent twice.
#[tokio::test]
async fn clients_do_not_notice_that_the_stream_of_their_view_moves() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let config = config(
        server.address,
        ", variant: delta, backoff: {initial: 1h, max: 1h}, max_connection_age: 8s",
        "views: {key: [cluster]}\nlimits: {resource_timer: 2s, second_silence: 2s}\n",
    );
    let relay = run(bind(config).await.unwrap(), std::future::pending());
    let (mut one, first) = client(&relay, &mut server, 1).await;
    gets(&mut one, &first, "a").await;
    let second = server.stream().await;
    assert_ne!(second.connection, first.connection);
    second.send(response("a"));
    gets(&mut one, &second, "b").await;
    until("the first connection closes", async || server.connections() == 1).await;
    let upstreams = get(relay.admin, "/upstreams").await;
    assert!(!upstreams.contains("moves to another connection"), "it is no error: {upstreams}");
}

//! How many pools and streams of load reports may exist, which of them make room, and at what pace reports are accepted (LRS-11, LRS-18).

use prost::Message;
use weir_core::proto::loads::LoadStatsResponse;
use weir_core::proto::node::Node;

use super::load_plane::{LoadClient, LoadPlane};
use super::loads::{AGGREGATE, able, all_each_second, buffered, loads_relay, opening, report, told_until};
use super::*;

/// A connection for several streams.
async fn connection(relay: &Relay) -> tonic::transport::Channel {
    tonic::transport::Endpoint::from_shared(format!("http://{}", relay.address)).unwrap().connect().await.unwrap()
}

async fn stream_on(connection: &tonic::transport::Channel) -> LoadClient {
    LoadClient::on(connection.clone(), weir_core::xds::LOADS_PATH).await.expect("no stream")
}

#[tokio::test]
async fn i8_a_reporter_with_a_new_key_gets_in_while_one_connection_has_a_pool_for_each_view() {
    let mut plane = LoadPlane::start().await;
    let config = config(plane.address, "", &format!("views: {{key: [cluster], max: 3}}\n{AGGREGATE}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let greedy = connection(&relay).await;
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for cluster in ["a", "b", "c"] {
        clients.push(stream_on(&greedy).await);
        clients.last().unwrap().report(&able(cluster, "greedy")).await;
        streams.push(plane.stream().await);
        streams.last_mut().unwrap().report().await;
    }
    let load_reporting_interval = Duration::from_secs(3600).try_into().ok();
    streams[2].order(&LoadStatsResponse { load_reporting_interval, ..all_each_second() }).await;
    clients[2].order().await;
    clients[2].report(&report("c", 5, 0)).await;
    until("it is counted", async || buffered(&relay).await > 0).await;

    let mut honest = LoadClient::connect(relay.address).await;
    honest.report(&able("web", "honest")).await;
    let mut stream = plane.stream().await;
    let node = Node::decode(stream.report().await.node.unwrap()).unwrap();
    assert_eq!(node.cluster, "web");
    let ended = clients[2].ended().await;
    let message =
        "too many views with load reports: the limit is 3 (views.max), and this connection has most; retry later";
    assert_eq!((ended.code(), ended.message()), (Code::ResourceExhausted, message));
    assert_eq!(told_until(&mut streams[2], 5).await.0, 5, "what it has counted is reported");
    assert_eq!(streams[2].message().await, None);

    let mut fourth = stream_on(&greedy).await;
    fourth.report(&able("d", "greedy")).await;
    let refused = fourth.ended().await;
    let message = "too many views: the limit is 3 (views.max)";
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, message));
    assert_eq!(reached(&relay, "views.max").await, 2);
    stream.order(&all_each_second()).await;
    honest.order().await;
    honest.report(&report("c", 7, 0)).await;
    assert_eq!(told_until(&mut stream, 7).await.0, 7);
}

#[tokio::test]
async fn i10_views_with_load_reports_count_for_the_connection_that_made_them() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, &format!("limits: {{views_per_connection: 1}}\n{AGGREGATE}")).await;
    let greedy = connection(&relay).await;
    let first = stream_on(&greedy).await;
    first.report(&able("a", "one")).await;
    plane.stream().await.report().await;
    let mut second = stream_on(&greedy).await;
    second.report(&able("b", "one")).await;
    let message = "too many views of one connection: the limit is 1 (limits.views_per_connection)";
    assert_eq!(second.ended().await.message(), message);
    assert_eq!(reached(&relay, "limits.views_per_connection").await, 1);
    let other = LoadClient::connect(relay.address).await;
    other.report(&able("b", "one")).await;
    plane.stream().await.report().await;
}

#[tokio::test]
async fn i10_a_connection_has_so_many_streams_of_loads_passed_on() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "load_reports: {streams_per_connection: 2}\n").await;
    let greedy = connection(&relay).await;
    let mut passed_on = Vec::new();
    for _ in 0..2 {
        let client = stream_on(&greedy).await;
        client.report(&opening("web")).await;
        passed_on.push((client, plane.stream().await));
    }
    let message = "too many load report streams of one connection: the limit is 2 (load_reports.streams_per_connection); close some";
    for _ in 0..20 {
        let mut refused = stream_on(&greedy).await;
        refused.report(&opening("web")).await;
        let status = refused.ended().await;
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, message));
    }
    assert!(plane.streams.try_recv().is_err(), "nothing of it reaches the control plane");
    assert_eq!(reached(&relay, "load_reports.streams_per_connection").await, 20);
    let other = LoadClient::connect(relay.address).await;
    other.report(&opening("web")).await;
    plane.stream().await.report().await;

    let (client, mut stream) = passed_on.pop().unwrap();
    drop(client);
    while stream.message().await.is_some() {}
    let again = stream_on(&greedy).await;
    again.report(&opening("web")).await;
    plane.stream().await.report().await;
}

#[tokio::test]
async fn i8_a_reporter_gets_in_while_one_connection_has_all_the_streams_that_are_passed_on() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "load_reports: {streams: 3, streams_per_connection: 0}\n").await;
    let greedy = connection(&relay).await;
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        clients.push(stream_on(&greedy).await);
        clients.last().unwrap().report(&opening("web")).await;
        streams.push(plane.stream().await);
    }
    let mut fourth = stream_on(&greedy).await;
    fourth.report(&opening("web")).await;
    let message = "too many load report streams: the limit is 3 (load_reports.streams); retry later";
    assert_eq!(fourth.ended().await.message(), message);
    let honest = LoadClient::connect(relay.address).await;
    honest.report(&opening("web")).await;
    plane.stream().await.report().await;
    let ended = clients[2].ended().await;
    let message = "too many load report streams: the limit is 3 (load_reports.streams), and this connection has most; retry later";
    assert_eq!((ended.code(), ended.message()), (Code::ResourceExhausted, message));
    streams[2].report().await;
    assert_eq!(streams[2].message().await, None, "its stream to the control plane ends too");
    assert_eq!(reached(&relay, "load_reports.streams").await, 2);
}

#[tokio::test]
async fn load_reports_keep_the_pace_of_requests() {
    for mode in ["pass_through", "aggregate"] {
        let mut plane = LoadPlane::start().await;
        let rest = format!("limits: {{requests_per_second: 2}}\nload_reports: {{mode: {mode}}}\n");
        let relay = loads_relay(plane.address, &rest).await;
        let client = LoadClient::connect(relay.address).await;
        let start = tokio::time::Instant::now(); // the first report counts too
        client.report(&able("web", "one")).await;
        let mut stream = plane.stream().await;
        stream.report().await;
        for _ in 0..5 {
            client.report(&report("c", 1, 0)).await;
        }
        until("nothing has waited", async || reached(&relay, "limits.requests_per_second").await >= 3).await;
        assert!(start.elapsed() > Duration::from_millis(900), "{mode}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn i8_streams_of_load_reports_are_charged_and_give_way_to_others() {
    let _turn = super::HEAVY.lock().await;
    for mode in ["aggregate", "pass_through"] {
        let mut plane = LoadPlane::start().await;
        let limits = "limits: {memory: 24MiB, views_per_connection: 0, new_streams_per_second: 0}\n";
        let reports = format!("load_reports: {{mode: {mode}, streams_per_connection: 0}}\n");
        let config = config(plane.address, "", &format!("views: {{key: [cluster]}}\n{limits}{reports}"));
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let greedy = connection(&relay).await;
        let (mut clients, mut refused) = (Vec::new(), None);
        while refused.is_none() && clients.len() < 1000 {
            let mut client = match LoadClient::on(greedy.clone(), weir_core::xds::LOADS_PATH).await {
                Ok(client) => client,
                Err(status) => {
                    refused = Some(status);
                    break;
                }
            };
            client.report(&able(&format!("greedy-{}", clients.len()), "greedy")).await;
            tokio::select! {
                status = client.ended() => refused = Some(status),
                stream = plane.stream() => clients.push((client, stream)),
            }
        }
        let refused = refused.unwrap_or_else(|| panic!("{mode}: all of a thousand have room"));
        assert_eq!(refused.code(), Code::ResourceExhausted, "{mode}: {refused:?}");
        assert!(refused.message().starts_with("too little memory: "), "{mode}: {refused:?}");
        assert!(clients.len() > 100, "{mode}: {} have room", clients.len());

        // Four connections share the pools: one that has nearly all of them has more than twice its share.
        let others = [connection(&relay).await, connection(&relay).await, connection(&relay).await];
        let gets_in = async {
            loop {
                if let Ok(other) = LoadClient::on(others[0].clone(), weir_core::xds::LOADS_PATH).await {
                    other.report(&able("honest", "honest")).await;
                    if tokio::time::timeout(Duration::from_millis(200), plane.streams.recv()).await.is_ok() {
                        return;
                    }
                }
            }
        };
        tokio::time::timeout(client::PATIENCE, gets_in).await.unwrap_or_else(|_| panic!("{mode}: no other gets in"));
        let ended = clients.last_mut().unwrap().0.ended().await;
        assert_eq!(ended.code(), Code::ResourceExhausted, "{mode}: {ended:?}");
        assert!(ended.message().starts_with("too little memory: "), "{mode}: {ended:?}");
        let first = tokio::time::timeout(Duration::from_millis(50), clients[0].0.ended()).await;
        assert!(first.is_err(), "{mode}: the oldest stays: {first:?}");
    }
}

//! Requests that gRPC servers by default reject for their length: of large views, and with names that clients make up.

use std::time::Duration;

use crate::client::Client;
use crate::holder::{ALL_CLUSTERS, Holder};
use crate::plane::{GRPC_LIMIT, Habits};
use crate::*;
use weir_core::proto::node::Node;
use weir_testkit::script::{Manner, Way, World};
use weir_testkit::server::Server;

const CLUSTERS: usize = 60_000;
const MADE_UP: usize = 90_000;

/// Short pauses for tests.
const SETTINGS: &str = ", variant: delta, backoff: {initial: 20ms, max: 100ms}";

fn long_name(number: usize) -> String {
    format!("{:-<110}", format!("cluster-{number:06}-"))
}

fn made_up() -> Vec<String> {
    (0..MADE_UP).map(|number| format!("{:-<62}", format!("made-up-{number:06}-"))).collect()
}

/// The control plane of the kit, which ends a stream whose request is longer than gRPC servers allow by default.
async fn strict(address: SocketAddr, way: Way) -> Server {
    let habits = Habits { variants: &[Variant::Delta], max_request: Some(GRPC_LIMIT), ..Habits::default() };
    Server::with(address, habits, Manner { piece: Some(10_000), ..Manner::default() }, way).await
}

fn clusters() -> World {
    World::from([(CDS, (0..CLUSTERS).map(|number| (long_name(number), "the first version".to_owned())).collect())])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute of the processors"]
async fn night_up_14_a_view_of_60000_long_names_outlives_five_restarts_of_its_control_plane() {
    let _turn = super::HEAVY.lock().await;
    const PATIENCE: Duration = Duration::from_secs(120);
    let mut plane = strict(plane::own_address(), Way::Has(clusters())).await;
    let (address, relay) = (plane.address, relay(plane.address, SETTINGS).await);
    let delta = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let sotw = Holder::new(relay.address, Variant::Sotw, ALL_CLUSTERS).await;
    for client in [&delta, &sotw] {
        client.within(PATIENCE, "all clusters", |record| record.holds.len() == CLUSTERS).await;
    }
    for restart in 1..=5 {
        let way = plane.way();
        plane.kill().await;
        plane = strict(address, way).await;
        let is_in_step = || {
            let seen = plane.seen();
            seen.opened > 0 && seen.responses > 0 && seen.acks == seen.responses
        };
        tokio::time::timeout(PATIENCE, until_true(is_in_step)).await.expect("the relay is not in step");
        let seen = plane.seen();
        assert!(seen.refused.is_empty(), "{seen:?}");
        assert!(seen.stated > 10_000 && seen.stated + seen.sent == CLUSTERS, "restart {restart}: {seen:?}");
        assert!(seen.longest > GRPC_LIMIT / 2 && seen.longest < GRPC_LIMIT, "{seen:?}");
        let added = format!("added-{restart}");
        plane.change(|world| drop(world.get_mut(CDS).unwrap().insert(added.clone(), "new".into())));
        for client in [&delta, &sotw] {
            client.within(PATIENCE, "a change", |record| record.holds.contains(&added)).await;
            client.has_lost_nothing();
        }
        plane.change(|world| drop(world.get_mut(CDS).unwrap().remove(&added)));
        for client in [&delta, &sotw] {
            client.within(PATIENCE, "a removal", |record| !record.holds.contains(&added)).await;
            client.forget_losses();
        }
    }
    // The last name is not among the stated ones, so the server cannot report it as removed before the relay requests it.
    let (mut way, gone) = (plane.way(), long_name(CLUSTERS - 1));
    plane.kill().await;
    way.world_mut().unwrap().get_mut(CDS).unwrap().remove(&gone);
    let plane = strict(address, way).await;
    for client in [&delta, &sotw] {
        client.within(PATIENCE, "the end of what was removed meanwhile", |record| !record.lost.is_empty()).await;
        let record = client.record();
        assert_eq!((record.lost, record.holds.len()), (vec![gone.clone()], CLUSTERS - 1));
    }
    let seen = plane.seen();
    assert!(seen.refused.is_empty() && seen.opened == 2, "it was asked by another stream: {seen:?}");
}

async fn until_true(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures how long changes take beside 90,000 names"]
async fn night_i8_90000_made_up_names_of_a_client_cost_its_neighbours_nothing() {
    let _turn = super::HEAVY.lock().await;
    let endpoints = World::from([(EDS, [("honest".to_owned(), "1".to_owned())].into())]);
    let plane = strict(plane::own_address(), Way::Has(endpoints)).await;
    let relay = relay(plane.address, SETTINGS).await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(EDS, &["honest"], Some("web"));
    let sent = honest.sent().await;
    assert_eq!(sent.set, ["honest"]);
    honest.ack(EDS, &[], &sent);
    let greedy = Client::connect(relay.address, Variant::Delta).await;
    let names = made_up();
    greedy.ask(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), Some("web"));
    plane.sees("all names", |seen| seen.names == MADE_UP + 1).await;
    let mut late = 0;
    for version in ["2", "3", "4"] {
        plane.change(|world| drop(world.get_mut(EDS).unwrap().insert("honest".into(), version.into())));
        let begun = std::time::Instant::now();
        let sent = honest.sent().await;
        late += usize::from(begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(sent.set, ["honest"]);
        honest.ack(EDS, &[], &sent);
    }
    assert!(late <= 1, "a busy machine is late now and then; each change would be");
    let seen = plane.seen();
    assert!(seen.refused.is_empty() && seen.opened == 1, "{seen:?}");
    assert!(seen.longest < GRPC_LIMIT, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "keeps the processors busy: 90,000 names, within a time limit"]
async fn night_i8_in_sotw_one_client_does_not_fill_the_list_for_those_that_come_after_it() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut greedy = Client::connect(relay.address, Variant::Delta).await;
    let names = made_up();
    let grpc =
        Node { id: "greedy".into(), cluster: "web".into(), user_agent_name: "gRPC Go".into(), ..Node::default() };
    greedy.ask_as(&grpc, EDS, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut stream = plane.stream().await;
    let names_of = |request: Request| match request {
        Request::Sotw(request) => request.resource_names,
        Request::Delta(_) => panic!("a delta request"),
    };
    // The list grows with each request until it is full. The other names get errors, in several responses.
    let Client::Delta(_, responses) = &mut greedy else { unreachable!() };
    let (mut listed, mut errors) = (Vec::new(), Vec::new());
    let all = async {
        while listed.len() + errors.len() < MADE_UP {
            tokio::select! {
                request = stream.request() => listed = names_of(request),
                response = responses.message() => errors.extend(response.unwrap().unwrap().resource_errors),
            }
        }
    };
    tokio::time::timeout(client::PATIENCE, all).await.expect("not all names are listed or refused");
    let bytes: usize = listed.iter().map(|name| name.len() + 2).sum();
    assert!(bytes > (5 << 19) && bytes < 3 << 20, "an eighth is for others: {bytes}");
    let error = errors[0].error_detail.clone().unwrap();
    assert_eq!(error.code, 8);
    assert!(error.message.ends_with("(max_request_bytes: 3145728)"), "{}", error.message);
    assert_eq!(errors.len(), MADE_UP - listed.len());
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(EDS, &["honest"], Some("web"));
    assert!(names_of(stream.request().await).contains(&"honest".to_owned()));
    say_any(&stream, EDS, &["honest"]);
    let sent = tokio::time::timeout(Duration::from_secs(10), honest.sent()).await.expect("not within ten seconds");
    assert_eq!(sent.set, ["honest"]);
    let none = "weir_limit_reached_total{limit=\"upstream.servers.max_request_bytes\"} 0";
    until("it is counted", async || !get(relay.admin, "/metrics").await.contains(none)).await;
}

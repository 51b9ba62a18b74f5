use std::future::pending;
use std::sync::atomic::AtomicBool;

use tokio::time::timeout;

use super::ending::closes;
use super::*;
use crate::downstream::judged_clients::JudgedClients;
use crate::downstream::lifetime::AgeLimit;
use crate::downstream::slot::Status;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: None,
    per_address: 0,
    per_identity: 0,
    new_per_second: 0,
    first_request: Duration::from_secs(60),
    streams_per_connection: 100,
    streams_per_identity: 0,
    new_streams_per_second: 0,
    streams: 1000,
    requests_per_second: 0,
    header_bytes: 16 << 10,
};
const REFUSALS: usize = 3;
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

/// Closes connections without streams at once.
fn connections(limits: ConnectionLimits, clients: usize) -> Arc<Connections> {
    let unused = UnusedTimes { silent: Duration::ZERO, without_request: Duration::ZERO, idle: Duration::ZERO };
    connections_with(limits, clients, unused)
}

fn connections_with(limits: ConnectionLimits, clients: usize, unused: UnusedTimes) -> Arc<Connections> {
    let times = Times { unused, end: LONG, room: LONG, first_request: LONG };
    Connections::with_times(
        limits,
        Shares { clients, refusals: REFUSALS, others: 0 },
        SpareFiles::new(0),
        1,
        ConnectionCounters::default(),
        times,
    )
}

/// A connection that is served, without limits that matter. While it sends nothing, it may be closed at once.
pub(in crate::downstream) async fn any_place() -> Arc<ConnectionPlace> {
    place_of_pace(LIMITS.new_streams_per_second).await
}

/// The same, with a limit of new streams in a second.
pub(in crate::downstream) async fn place_of_pace(new_streams_per_second: usize) -> Arc<ConnectionPlace> {
    let unused = UnusedTimes { silent: Duration::ZERO, without_request: LONG, idle: LONG };
    let limits = ConnectionLimits { new_streams_per_second, ..LIMITS };
    enter(&connections_with(limits, 100, unused), 1).await.unwrap()
}

async fn enter(connections: &Arc<Connections>, host: u8) -> Option<Arc<ConnectionPlace>> {
    let spare = connections.spare_place().await;
    connections.admit(Some(([127, 0, 0, host], 1000).into()), spare)
}

/// A connection with a request, and whether that is served.
async fn request(place: Arc<ConnectionPlace>) -> (Arc<ConnectionPlace>, OpenStream, Option<Refusal>) {
    let stream = place.open_stream();
    place.decide().await;
    let refusal = place.refuse();
    (place, stream, refusal)
}

async fn stays_open(place: &ConnectionPlace) -> bool {
    timeout(SHORT, closes(place)).await.is_err()
}

fn is_unused(connections: &Connections) -> bool {
    let free = (connections.places.free(), connections.spare.free());
    connections.unused.is_empty()
        && connections.addresses.is_empty()
        && connections.identities.is_empty()
        && connections.open.load(Ordering::Relaxed) == 0
        && connections.streams.load(Ordering::Relaxed) == 0
        && free == (connections.max(), REFUSALS)
}

#[tokio::test]
async fn the_connection_that_has_been_without_streams_for_longest_makes_room() {
    let connections = connections(LIMITS, 3);
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(enter(&connections, 1).await.unwrap());
    }
    let stream = places[0].open_stream();
    drop(places[1].open_stream()); // since later than the third
    let entering = tokio::spawn({
        let connections = connections.clone();
        async move { request(enter(&connections, 1).await.unwrap()).await }
    });
    assert_eq!(timeout(LONG, closes(&places[2])).await, Ok(End::Unused));
    assert!(stays_open(&places[0]).await && stays_open(&places[1]).await);
    assert!(!entering.is_finished());
    drop(places.pop());
    let entered = timeout(LONG, entering).await.unwrap().unwrap();
    assert_eq!(entered.2, None);
    drop((stream, places, entered));
    assert!(is_unused(&connections));
}

#[tokio::test]
async fn a_connection_that_was_to_close_and_has_a_stream_again_stays_and_another_one_closes() {
    let connections = connections(LIMITS, 2);
    let (first, second) = (enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap());
    connections.make_room();
    let _stream = first.open_stream();
    assert!(stays_open(&first).await);
    assert_eq!(timeout(LONG, closes(&second)).await, Ok(End::Unused));
}

#[tokio::test]
async fn without_room_requests_are_refused_and_no_more_is_accepted_than_can_be() {
    let connections = connections(LIMITS, 1);
    let place = enter(&connections, 1).await.unwrap();
    let stream = place.open_stream();
    let mut refused = Vec::new();
    for _ in 0..REFUSALS {
        refused.push(request(enter(&connections, 1).await.unwrap()).await);
    }
    assert!(timeout(SHORT, connections.spare_place()).await.is_err(), "another one could not be answered");
    let (place_of_refused, _, refusal) = &refused[0];
    assert_eq!(refusal, &Some(Refusal::too_many_connections(1)));
    assert_eq!(timeout(LONG, closes(place_of_refused)).await, Ok(End::Refused));
    drop(refused);
    drop(timeout(LONG, connections.spare_place()).await.unwrap());
    drop((stream, place));
    assert!(is_unused(&connections));
}

#[tokio::test]
async fn a_connection_gets_the_place_of_another_with_its_first_request_and_not_before() {
    let connections = connections(LIMITS, 1);
    let (first, second) = (enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap());
    second.note_bytes();
    assert!(stays_open(&first).await);
    let second = tokio::spawn(request(second));
    assert_eq!(timeout(LONG, closes(&first)).await, Ok(End::Unused));
    drop(first);
    let second = timeout(LONG, second).await.unwrap().unwrap();
    assert_eq!(second.2, None);
    assert_eq!(connections.spare.free(), REFUSALS, "it needs its spare place no more");
    drop(second);
    assert!(is_unused(&connections));
}

#[tokio::test(start_paused = true)]
async fn a_first_request_waits_until_another_connection_may_be_closed_for_it() {
    let unused = UnusedTimes { silent: 5 * SHORT, without_request: LONG, idle: 2 * LONG };
    let connections = connections_with(LIMITS, 1, unused);
    let first = enter(&connections, 1).await.unwrap();
    let second = tokio::spawn(request(enter(&connections, 1).await.unwrap()));
    assert_eq!(timeout(LONG, closes(&first)).await, Ok(End::Unused));
    drop(first);
    let (second, stream, refusal) = timeout(LONG, second).await.unwrap().unwrap();
    assert_eq!(refusal, None);
    drop(stream);
    // It could be closed only after all the time that the next request may wait.
    let third = timeout(LONG / 2, request(enter(&connections, 1).await.unwrap())).await.unwrap();
    assert_eq!(third.2, Some(Refusal::too_many_connections(1)));
    drop((second, third));
    assert!(is_unused(&connections));
}

#[tokio::test(start_paused = true)]
async fn a_spare_place_without_a_request_is_vacated_for_the_next_connection_and_no_other_one_is() {
    let unused = UnusedTimes { silent: SHORT, without_request: LONG, idle: LONG };
    let connections = connections_with(LIMITS, 1, unused);
    let _served = request(enter(&connections, 1).await.unwrap()).await;
    let silent = enter(&connections, 1).await.unwrap();
    let slow = enter(&connections, 1).await.unwrap();
    slow.note_bytes();
    let refused = request(enter(&connections, 1).await.unwrap()).await;
    assert!(stays_open(&silent).await, "there is no other connection");
    let next = tokio::spawn({
        let connections = connections.clone();
        async move { enter(&connections, 1).await.unwrap() }
    });
    assert_eq!(timeout(LONG, closes(&silent)).await, Ok(End::Unused));
    drop(silent);
    let next = timeout(LONG, next).await.expect("it is not accepted").unwrap();
    assert!(stays_open(&slow).await && stays_open(&next).await);
    assert_eq!(timeout(LONG, closes(&refused.0)).await, Ok(End::Refused));
}

#[tokio::test]
async fn each_connection_has_a_number_of_its_own() {
    let connections = connections(LIMITS, 3);
    let places = [enter(&connections, 1).await.unwrap(), enter(&connections, 2).await.unwrap()];
    drop(enter(&connections, 1).await.unwrap());
    let third = enter(&connections, 1).await.unwrap();
    let mut numbers = vec![places[0].number(), places[1].number(), third.number()];
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

#[tokio::test]
async fn a_health_check_decides_without_waiting_and_closes_no_other_connection() {
    let connections = connections(LIMITS, 1);
    let first = enter(&connections, 1).await.unwrap();
    let checking = enter(&connections, 1).await.unwrap();
    checking.decide_now();
    assert!(checking.refuse().is_some() && stays_open(&first).await);
    let checking = enter(&connections, 1).await.unwrap();
    drop(first);
    checking.decide_now();
    assert!(checking.refuse().is_none());
}

#[tokio::test]
async fn an_address_has_its_limit_two_refusals_and_then_nothing() {
    let connections = connections(ConnectionLimits { per_address: 2, ..LIMITS }, 100);
    let held = [enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap()];
    assert!(held.iter().all(|place| place.refuse().is_none()));
    let refused = [enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap()];
    assert!(refused.iter().all(|place| place.refuse() == Some(Refusal::too_many_from_address(2))));
    assert!(enter(&connections, 1).await.is_none());
    drop(refused);
    assert!(enter(&connections, 2).await.unwrap().refuse().is_none());
    drop(held);
    assert!(is_unused(&connections));
}

#[tokio::test(start_paused = true)]
async fn a_first_request_is_late_after_its_time_and_not_if_there_was_one() {
    let connections = connections(ConnectionLimits { first_request: SHORT, ..LIMITS }, 100);
    let (silent, served) = (enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap());
    drop(served.open_stream());
    assert_eq!(timeout(LONG, closes(&silent)).await, Ok(End::Late));
    assert!(timeout(5 * SHORT, closes(&served)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_too_many_new_streams_is_read_again_when_its_time_has_come() {
    let limits = ConnectionLimits { new_streams_per_second: 10, ..LIMITS };
    let place = enter(&connections(limits, 1), 1).await.unwrap();
    let first: Vec<_> = (0..10).map(|_| place.open_stream()).collect();
    assert_eq!(place.resumes_reading(Instant::now()), None);
    let _beyond: Vec<_> = (0..5).map(|_| place.open_stream()).collect();
    let until = place.resumes_reading(Instant::now()).expect("it is not read for a while");
    assert_eq!(place.resumes_reading(until - SHORT / 10), Some(until));
    assert_eq!(place.resumes_reading(until), None);
    assert_eq!(place.resumes_reading(until - SHORT / 10), None, "the time is over");
    drop(first);
}

#[tokio::test]
async fn a_connection_whose_client_is_sent_elsewhere_ends_with_its_streams() {
    let (place, _stream, refusal) = request(enter(&connections(LIMITS, 1), 1).await.unwrap()).await;
    assert!(refusal.is_none() && stays_open(&place).await);
    place.send_elsewhere();
    assert_eq!(timeout(LONG, closes(&place)).await, Ok(End::Full));
}

/// It was without a stream when it was told to end.
#[tokio::test(start_paused = true)]
async fn a_connection_that_gets_a_stream_while_it_ends_stays_for_no_longer_than_its_client_and_its_age_allow() {
    for end in [End::Late, End::Unused] {
        let place = any_place().await;
        let (clients, is_revoked) = (Arc::new(JudgedClients::default()), Arc::new(AtomicBool::new(false)));
        let judge = is_revoked.clone();
        place.set_judged(clients.enter(Box::new(move || match judge.load(Ordering::Relaxed) {
            true => Err(Status::unauthenticated("revoked")),
            false => Ok(None),
        })));
        let _stream = place.open_stream();
        let mut finishing = Box::pin(finish(&place, end, pending::<()>()));
        assert!(timeout(10 * LONG, finishing.as_mut()).await.is_err(), "{end:?}");
        is_revoked.store(true, Ordering::Relaxed);
        clients.judge_again();
        tokio::select! {
            () = clients.run() => unreachable!(),
            ended = timeout(10 * LONG, finishing) => assert_eq!(ended, Ok(None), "{end:?}: its client failed"),
        }

        let place = any_place().await;
        place.set_age_limit(AgeLimit { age: LONG, grace: Duration::ZERO });
        let _stream = place.open_stream();
        let ended = timeout(10 * LONG, finish(&place, end, pending::<()>())).await;
        assert_eq!(ended, Ok(None), "{end:?}: it is too old");
    }
}

use tokio::time::timeout;

use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: None,
    per_address: 0,
    new_per_second: 0,
    first_request: Duration::from_secs(60),
    streams_per_connection: 100,
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
    let counters = Arc::<LimitCounters>::default();
    let times = Times { idle: Duration::ZERO, end: LONG, room: LONG, refusal: LONG };
    Connections::with_times(
        limits,
        Shares { clients, refusals: REFUSALS, others: 0 },
        Spare::new(0),
        1,
        counters,
        Arc::default(),
        times,
    )
}

/// A connection that is served, without limits that matter.
pub(in crate::downstream) async fn any_place() -> Arc<Place> {
    enter(&connections(LIMITS, 100), 1).await.unwrap()
}

async fn enter(connections: &Arc<Connections>, host: u8) -> Option<Arc<Place>> {
    let spare = connections.spare_place().await;
    connections.admit(Some(([127, 0, 0, host], 1000).into()), spare).await
}

fn is_unused(connections: &Connections) -> bool {
    let state = connections.lock();
    let free = (connections.places.available_permits(), connections.spare.available_permits());
    state.idle.is_empty()
        && state.addresses.is_empty()
        && connections.streams.load(Ordering::Relaxed) == 0
        && free == (connections.max, REFUSALS)
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
        async move { enter(&connections, 1).await.unwrap() }
    });
    assert_eq!(timeout(LONG, places[2].closes()).await, Ok(End::Idle));
    assert!(timeout(SHORT, places[0].closes()).await.is_err() && timeout(SHORT, places[1].closes()).await.is_err());
    assert!(!entering.is_finished());
    drop(places.pop());
    let entered = timeout(LONG, entering).await.unwrap().unwrap();
    assert!(entered.refuse().is_none());
    drop((stream, places, entered));
    assert!(is_unused(&connections));
}

#[tokio::test]
async fn a_connection_that_was_to_close_and_has_a_stream_again_stays_and_another_one_closes() {
    let connections = connections(LIMITS, 2);
    let (first, second) = (enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap());
    assert!(connections.make_room());
    let _stream = first.open_stream();
    assert!(timeout(SHORT, first.closes()).await.is_err());
    assert_eq!(timeout(LONG, second.closes()).await, Ok(End::Idle));
}

#[tokio::test]
async fn without_room_requests_are_refused_and_no_more_is_accepted_than_can_be() {
    let connections = connections(LIMITS, 1);
    let place = enter(&connections, 1).await.unwrap();
    let stream = place.open_stream();
    let mut refused = Vec::new();
    for _ in 0..REFUSALS {
        refused.push(enter(&connections, 1).await.unwrap());
    }
    assert!(timeout(SHORT, connections.spare_place()).await.is_err(), "another one could not be answered");
    assert_eq!(refused[0].refuse(), Some(Refusal::too_many_connections(1)));
    assert_eq!(timeout(LONG, refused[0].closes()).await, Ok(End::Refused));
    drop(refused);
    drop(timeout(LONG, connections.spare_place()).await.unwrap());
    drop((stream, place));
    assert!(is_unused(&connections));
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

#[tokio::test]
async fn a_first_request_is_late_after_its_time_and_not_if_there_was_one() {
    let connections = connections(ConnectionLimits { first_request: SHORT, ..LIMITS }, 100);
    let (silent, served) = (enter(&connections, 1).await.unwrap(), enter(&connections, 1).await.unwrap());
    drop(served.open_stream());
    assert_eq!(timeout(LONG, silent.closes()).await, Ok(End::Late));
    assert!(timeout(5 * SHORT, served.closes()).await.is_err());
}

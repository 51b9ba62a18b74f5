//! A gateway that answers liveness calls itself, whether the server behind it is reachable or not. The tests use virtual time: both ends are in one
//! runtime. The kernel between them may need real time on a busy machine, so some real time passes with each virtual second.

use tokio::task::JoinSet;

use super::*;

/// With two streams on a connection, the streams of the views need three connections.
const VIEWS: usize = 5;
const CONNECTIONS: usize = 3;
const TWO_EACH: &str = "max_streams_per_connection: 2";
/// A hanging server counts as unreachable this long after it last sent something.
const BOUND: Duration = Duration::from_secs(30);
/// The time between two empty streams on a connection.
const INTERVAL: Duration = Duration::from_secs(15);

/// Returns gateways by how they answer a liveness call. Behind them is a server that answers empty streams.
fn gateways() -> [fn(Option<u16>) -> Answers; 3] {
    let jwt = |own| Answers::Refused(16, own);
    let rbac = |own| Answers::Refused(7, own);
    let no_route = |own| Answers::NoRoute(12, own);
    [jwt, rbac, no_route]
}

/// Stops the clock. While the returned task exists, at most one virtual second passes before some real time has passed.
fn pause() -> JoinSet<()> {
    tokio::time::pause();
    let mut pace: JoinSet<()> = JoinSet::new();
    pace.spawn(async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // Virtual time does not pass while a blocking thread works.
            tokio::task::spawn_blocking(|| std::thread::sleep(REAL)).await.unwrap();
        }
    });
    pace
}

/// The real time for each virtual second. A call has five virtual seconds, and so at least five times this.
const REAL: Duration = Duration::from_millis(5);

async fn views(connector: &AdsConnector, server: &mut Plane) -> Vec<(View, Stream)> {
    let mut views = Vec::new();
    for _ in 0..VIEWS {
        let (mut view, stream) = View::up(connector, server).await;
        stream.send(response("a"));
        view.answered().await;
        views.push((view, stream));
    }
    views
}

#[tokio::test]
async fn up_36_a_server_behind_a_gateway_is_never_given_up_and_gets_few_empty_streams() {
    for gateway in gateways() {
        let mut server = Plane::answering(gateway(Some(0))).await;
        let connector = connector(server.address, TWO_EACH);
        let mut views = views(&connector, &mut server).await;
        let pace = pause();
        let time = Duration::from_secs(600);
        let nothing = views.iter_mut().map(|(view, _)| view.says_nothing(time));
        join_all(nothing).await;
        let (first, most) = (CONNECTIONS, time.as_secs() / INTERVAL.as_secs());
        let empty = server.empty_streams();
        assert!(empty <= first + usize::try_from(most).unwrap(), "{empty}: one connection asks, the others once");
        assert!(empty > CONNECTIONS, "it is asked");
        assert_eq!((connector.unanswered_calls(), connector.unrouted_calls()), (Some(0), None));
        drop(pace);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn up_36_a_hung_server_behind_a_gateway_is_found_by_all_views_within_30_s_of_its_last_word() {
    for gateway in gateways() {
        for after in [0, 3, 8, 13].map(Duration::from_secs) {
            let mut server = Plane::answering(gateway(Some(0))).await;
            let connector = connector(server.address, TWO_EACH);
            let mut views = views(&connector, &mut server).await;
            let pace = pause();
            tokio::time::sleep(3 * INTERVAL).await;
            let empty = server.empty_streams();
            while server.empty_streams() == empty {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(after).await;
            server.answer(gateway(None)); // the gateway is up, and the server is not
            let last_word = server.last_word();
            let ended = views.iter_mut().map(async |(view, _)| (view.ended().await, Instant::now()));
            for ((reason, answered), at) in join_all(ended).await {
                assert_eq!((&*reason, answered), ("Unavailable: no answer to two calls within 5s each", true));
                assert!(at - last_word < BOUND, "after {after:?}: {:?}", at - last_word);
            }
            drop(pace);
            tokio::time::resume();
        }
    }
}

/// One call on a connection counts for all its streams, also for those that wanted one when it was too early.
#[tokio::test]
async fn up_36_one_empty_stream_is_for_all_that_waited_for_it() {
    let mut server = Plane::answering(Answers::Refused(7, Some(0))).await;
    let connector = connector(server.address, "");
    let mut views = views(&connector, &mut server).await;
    let _pace = pause();
    views[0].0.life.notify_one();
    views[0].0.is_alive().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begun = Instant::now();
    for (view, _) in &views {
        view.life.notify_one();
    }
    join_all(views.iter_mut().map(|(view, _)| view.is_alive())).await;
    let waited = begun.elapsed();
    assert!(waited > INTERVAL - Duration::from_secs(1) && waited < INTERVAL + Duration::from_secs(2), "{waited:?}");
    assert_eq!(server.empty_streams(), 2);
}

/// If a server hangs, its answers on earlier connections count for the new one: otherwise each stream after the first would stay for ever.
#[tokio::test]
#[ignore = "waits two minutes for calls that are not answered"]
async fn night_up_36_a_server_that_hangs_behind_a_gateway_is_out_of_reach_with_the_stream_after_the_one_that_it_answered()
 {
    let times = "liveness: {interval: 1h, timeout: 1s}";
    for gateway in gateways() {
        let mut server = Plane::answering(gateway(Some(0))).await;
        let connector = connector(server.address, &format!("{TWO_EACH}, {times}"));
        let mut views = views(&connector, &mut server).await;
        for (view, _) in &mut views {
            view.life.notify_one();
            view.is_alive().await;
        }
        server.answer(gateway(None));
        let pace = pause();
        tokio::time::sleep(INTERVAL).await;
        drop(pace);
        tokio::time::resume();
        for (view, _) in &views {
            view.life.notify_one();
        }
        for (view, _) in &mut views {
            assert!(view.ended().await.1, "it had answered on this stream");
            view.opened().await;
            view.life.notify_one();
            let (reason, answered) = view.ended().await;
            assert_eq!((&*reason, answered), ("Unavailable: no answer to two calls within 1s each", false));
        }
    }
}

/// A gateway that knows that its server is down reports it at once, in answer to every call.
#[tokio::test]
async fn up_36_a_server_that_a_gateway_calls_unavailable_is_left_by_all_views_of_a_connection() {
    for code in [7, 16] {
        let mut server = Plane::answering(Answers::Refused(code, Some(0))).await;
        let connector = connector(server.address, "liveness: {interval: 1h, timeout: 2s}");
        let mut views = views(&connector, &mut server).await;
        server.answer(Answers::Refused(code, Some(14)));
        for (view, _) in &views {
            view.life.notify_one();
        }
        for (view, _) in &mut views {
            let (reason, answered) = view.ended().await;
            assert!(reason.contains("unavailable") && answered, "{reason}");
        }
    }
}

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::upstream::observed_socket::ObservedSocket;

/// Connections that are never dialed.
fn pool(max_streams_per_connection: usize) -> Arc<ConnectionPool> {
    let server = AdsServer { max_streams_per_connection, ..AdsServer::undialed() };
    Arc::new(ConnectionPool::new(Arc::new(server), Arc::default(), Some(Arc::new(Moves::new(Duration::from_secs(5))))))
}

impl ConnectionPool {
    fn open(self: &Arc<Self>) -> StreamSlot {
        let (mut slot, _dialed) = self.reserve(0, false);
        assert!(slot.open().unwrap(), "there is room");
        slot
    }

    /// The number of waiting, open and served streams, and of calls, of each connection.
    fn counts(&self) -> Vec<[usize; 4]> {
        let of = |one: &Connection| [one.waiting, one.streams, one.served, one.calls];
        self.lock().open.iter().map(of).collect()
    }

    /// A stream on a connection with at least this number.
    fn open_from(self: &Arc<Self>, least_number: u64) -> StreamSlot {
        let (mut slot, _dialed) = self.reserve(least_number, false);
        assert!(slot.open().unwrap(), "there is room");
        slot
    }

    /// The connection is made, and the server allows so many streams on it, for as long as the result is kept.
    async fn made(&self, number: u64, max_streams: u8) -> ObservedSocket {
        let channel = self.endpoint.connect_lazy();
        let state = self.lock().find(number).unwrap().state.clone();
        let made = Made { channel, state: state.clone() };
        let dialed: Dialed = Box::pin(async { Ok(made) });
        let dialed = dialed.shared();
        dialed.clone().await.unwrap();
        self.lock().find(number).unwrap().dialed = dialed;
        let (socket, mut server) = tokio::io::duplex(64);
        let mut socket = ObservedSocket::new(Box::new(socket), state, None);
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, max_streams];
        server.write_all(&settings).await.unwrap();
        socket.read_exact(&mut [0; 15]).await.unwrap();
        socket
    }

    /// Lets the time pass after which an unused connection may be closed.
    fn age(&self) {
        self.lock().open[0].unused_since = Instant::now() - UNREAD_TIMEOUT;
    }
}

#[tokio::test]
async fn what_streams_have_of_a_connection_is_given_back_and_the_connection_closes_with_the_last() {
    let pool = pool(2);
    let stays = pool.open();
    for _ in 0..3 {
        let other = Arc::new(pool.open());
        let (served, call) = (ServedStream::new(other), stays.call().unwrap());
        assert_eq!(pool.counts(), [[0, 2, 1, 1]], "there was room on the same connection");
        drop(served);
        assert_eq!(pool.counts(), [[0, 1, 0, 1]]);
        drop(call);
        assert_eq!(pool.counts(), [[0, 1, 0, 0]]);
    }
    drop(stays);
    assert_eq!(pool.counts(), [[0; 4]; 0]);
}

#[tokio::test]
async fn a_stream_that_gives_up_before_its_connection_is_made_leaves_nothing() {
    let pool = pool(1);
    for _ in 0..3 {
        let waits = [pool.reserve(0, false), pool.reserve(0, false)];
        assert_eq!(pool.counts(), [[1, 0, 0, 0]; 2]);
        drop(waits);
        assert_eq!(pool.counts(), [[0; 4]; 0]);
    }
}

#[tokio::test]
async fn a_connection_is_unused_from_the_end_of_its_last_served_stream_and_not_while_one_begins() {
    let pool = pool(2);
    let slot = Arc::new(pool.open());
    pool.age();
    let served = ServedStream::new(slot.clone());
    pool.age();
    drop(served);
    pool.close_unused(slot.number);
    assert_eq!(pool.len(), 1, "it was served until now");
    pool.age();
    let begins = pool.open();
    pool.close_unused(slot.number);
    assert_eq!(pool.len(), 1, "a stream was opened on it");
    drop(begins);
    pool.age();
    pool.close_unused(slot.number);
    assert_eq!(pool.len(), 0);
}

#[tokio::test]
async fn a_connection_with_a_stream_that_is_served_and_one_that_waits_is_in_use() {
    let pool = pool(2);
    let served = ServedStream::new(Arc::new(pool.open()));
    let waits = pool.reserve(0, false);
    assert_eq!(pool.counts(), [[1, 1, 1, 0]]);
    pool.age();
    pool.close_unused(0);
    assert_eq!(pool.len(), 1);
    drop((served, waits));
}

#[tokio::test]
async fn a_stream_gets_the_fullest_connection_that_has_room_and_at_least_the_number_that_it_needs() {
    let pool = pool(3);
    let mut slots = vec![pool.open_from(0), pool.open_from(1), pool.open_from(1)];
    assert_eq!(pool.counts(), [[0, 1, 0, 0], [0, 2, 0, 0]], "one was left for a later one");
    slots.push(pool.open_from(0));
    assert_eq!(pool.counts(), [[0, 1, 0, 0], [0, 3, 0, 0]]);
    slots.push(pool.open_from(0));
    assert_eq!(pool.counts(), [[0, 2, 0, 0], [0, 3, 0, 0]]);
    assert_eq!([7, 7, 8, 0].map(|least| pool.open_from(least).connection()), [7, 8, 9, 0], "no number is used twice");
    drop(slots);
    assert_eq!(pool.open_from(0).connection(), 10);
}

#[tokio::test]
async fn a_connection_that_is_retired_keeps_its_streams_and_gets_no_other() {
    let pool = pool(3);
    let (stays, other) = (pool.open(), pool.open());
    stays.retire();
    let next = pool.open();
    assert_eq!(pool.counts(), [[0, 2, 0, 0], [0, 1, 0, 0]]);
    assert!(stays.call().is_ok(), "its streams may still be alive");
    drop((stays, other));
    assert_eq!((pool.counts(), pool.open().connection()), (vec![[0, 1, 0, 0]], next.connection()));
}

#[tokio::test]
async fn a_connection_has_room_for_half_of_what_its_server_allows_and_the_next_is_expected_to() {
    let pool = pool(50);
    let first = pool.open();
    assert!(!first.is_shared());
    let _of_first = pool.made(0, 5).await;
    let second = pool.open();
    assert!(second.is_shared(), "the connection was there");
    let mut waits = vec![pool.reserve(0, false).0, pool.reserve(0, false).0, pool.reserve(0, false).0];
    assert_eq!(pool.counts(), [[0, 2, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0]]);

    let _of_second = pool.made(1, 2).await;
    assert!(waits[0].open().unwrap(), "each connection has room for one");
    assert!(!waits[1].open().unwrap());
    drop(waits);
    assert_eq!(pool.counts(), [[0, 2, 0, 0]]);
}

#[tokio::test]
async fn a_call_needs_room_beside_all_streams_and_calls_and_a_connection_that_is_open() {
    let pool = pool(50);
    let one = pool.open();
    let connection = pool.made(0, 4).await;
    let two = pool.open();
    let (of_one, of_two) = (one.call().unwrap(), two.call().unwrap());
    assert_eq!(one.call().unwrap_err(), NoCall::Full);
    drop(of_one);
    let again = one.call();
    assert!(again.is_ok());
    assert_eq!(two.call().unwrap_err(), NoCall::Full);
    drop((again, of_two));
    drop(two);
    assert!(one.call().is_ok());
    drop(connection);
    assert_eq!(one.call().unwrap_err(), NoCall::Closed);
    assert_ne!(pool.open().connection(), one.connection(), "it takes no other stream either");
}

/// The connections that are made are old after ten seconds.
async fn old(pool: &Arc<ConnectionPool>, connections: u64) -> Vec<ObservedSocket> {
    let mut sockets = Vec::new();
    for number in 0..connections {
        sockets.push(pool.made(number, 100).await);
        pool.lock().find(number).unwrap().state.set_end(Some(10 * SECOND));
    }
    sockets
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_left_gets_no_stream_and_one_whose_streams_cannot_move_keeps_them_for_a_while() {
    let pool = pool(4);
    let (one, two) = (pool.open(), pool.open());
    let _sockets = old(&pool, 1).await;
    assert!(matches!(pool.next_to_leave(), Next::Look(at) if at <= Instant::now() + 10 * SECOND));
    tokio::time::advance(10 * SECOND).await;
    assert_eq!(pool.next_to_leave(), Next::Connection);
    let three = pool.open();
    assert_eq!(three.connection(), one.connection(), "there is no other");
    let (elsewhere, _dialed) = pool.reserve(0, true);
    assert_ne!(elsewhere.connection(), one.connection(), "a stream that moves does not come here");
    let least = elsewhere.connection() + 1;
    {
        let mut dialing = std::pin::pin!(pool.slot_elsewhere(least));
        assert!(dialing.as_mut().now_or_never().is_none());
        assert_eq!(pool.lock().open.last().unwrap().number, least, "nor does one go where it was rejected");
    }
    drop(three);

    assert!(pool.begin_to_leave());
    let turn = MoveTurn::of(&one).now_or_never().expect("it moves");
    assert!(MoveTurn::of(&two).now_or_never().is_none(), "one at a time");
    drop(turn);
    let turn = MoveTurn::of(&two).now_or_never().expect("it is next");
    let other = pool.open();
    assert_eq!(other.connection(), elsewhere.connection());
    drop((other, elsewhere));
    turn.stay();
    assert!(MoveTurn::of(&one).now_or_never().is_none() && !pool.begin_to_leave());
    assert_eq!(pool.open().connection(), one.connection(), "it takes streams again");
    assert!(matches!(pool.next_to_leave(), Next::Look(_)));
    tokio::time::advance(30 * SECOND).await;
    assert_eq!(pool.next_to_leave(), Next::Connection);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_gets_no_more_streams_is_left_too_and_one_that_its_server_has_ended_is_not() {
    for (retires, ends) in [(true, false), (false, true)] {
        let pool = pool(4);
        let one = pool.open();
        let mut sockets = old(&pool, 1).await;
        if retires {
            one.retire();
        }
        if ends {
            sockets.clear();
        }
        tokio::time::advance(10 * SECOND).await;
        assert_eq!(pool.next_to_leave() == Next::Connection, !ends);
        assert_eq!(pool.begin_to_leave(), !ends);
    }
}

/// One stream has moved, and another is next.
#[tokio::test(start_paused = true)]
async fn streams_follow_one_that_has_moved_where_the_server_responds_or_is_alive_and_stay_where_it_does_neither() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Does {
        Responds,
        RespondsAndEnds,
        IsAlive,
        Ends,
        Nothing,
    }
    let after = async |does: bool, time| match does {
        true => sleep(time).await,
        false => std::future::pending().await,
    };
    for (does, follows, within) in [
        (Does::Responds, true, 5),
        (Does::RespondsAndEnds, true, 5),
        (Does::IsAlive, true, 3), // a second of silence before the call
        (Does::Ends, false, 5),
        (Does::Nothing, false, 30),
    ] {
        let pool = pool(4);
        let (one, two) = (pool.open(), pool.open());
        let _sockets = old(&pool, 1).await;
        tokio::time::advance(10 * SECOND).await;
        assert!(pool.next_to_leave() == Next::Connection && pool.begin_to_leave());
        let (turn, begun) = (MoveTurn::of(&one).await, Instant::now());
        let mut stream = std::pin::pin!(after(matches!(does, Does::Ends | Does::RespondsAndEnds), 5 * SECOND));
        let responded = after(does == Does::Responds, 5 * SECOND);
        let alive = after(does == Does::IsAlive, 2 * SECOND);
        let end = settle(Some(turn), stream.as_mut(), responded, || does == Does::RespondsAndEnds, alive).await;
        assert_eq!(
            (end.is_some(), begun.elapsed().as_secs()),
            (matches!(does, Does::Ends | Does::RespondsAndEnds), within),
            "{does:?}"
        );
        let turn = MoveTurn::of(&two).now_or_never();
        assert_eq!(turn.is_some(), follows, "{does:?}");
        if !follows {
            tokio::time::advance(29 * SECOND).await;
            assert_ne!(pool.next_to_leave(), Next::Connection, "{does:?}");
            tokio::time::advance(SECOND).await;
            assert_eq!(pool.next_to_leave(), Next::Connection, "{does:?}: it is tried again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_connection_to_a_server_is_left_at_a_time_and_the_next_after_five_seconds() {
    let moves = Moves::new(5 * SECOND);
    let begun = Instant::now();
    assert!(moves.try_turn());
    assert!(!moves.try_turn());
    drop(moves.turn().await);
    assert_eq!(begun.elapsed(), 5 * SECOND);
    let _turn = moves.turn().await;
    assert_eq!(begun.elapsed(), 10 * SECOND);
    tokio::time::advance(60 * SECOND).await;
    assert!(!moves.try_turn(), "its streams have not moved yet");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_streams_do_not_move_keeps_the_next_one_for_a_minute() {
    let pool = pool(1);
    let served: Vec<_> = (0..3).map(|_| ServedStream::new(Arc::new(pool.open()))).collect();
    let _sockets = old(&pool, 3).await;
    let begun = Instant::now();
    tokio::spawn(moves::follow(Arc::downgrade(&pool), pool.moves.clone().unwrap()));
    let leaves = async |count| {
        while pool.lock().open.iter().filter(|connection| connection.leaving == Leaving::Now).count() < count {
            sleep(SECOND / 10).await;
        }
        begun.elapsed().as_secs()
    };
    assert_eq!(leaves(1).await, 10);
    assert_eq!(leaves(2).await, 70);
    drop(served);
}

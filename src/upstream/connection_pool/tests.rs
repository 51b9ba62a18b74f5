use super::*;

/// Connections that are never dialed.
fn pool(max_streams_per_connection: usize) -> Arc<ConnectionPool> {
    let server = AdsServer { max_streams_per_connection, ..AdsServer::undialed() };
    Arc::new(ConnectionPool::new(Arc::new(server)))
}

impl ConnectionPool {
    fn open(self: &Arc<Self>) -> StreamSlot {
        let (mut slot, _dialed) = self.reserve(0);
        assert!(slot.open().unwrap(), "there is room");
        slot
    }

    /// Waiting, open and served streams, and calls, of each connection.
    fn counts(&self) -> Vec<[usize; 4]> {
        let of = |one: &Connection| [one.waiting, one.streams, one.served, one.calls];
        self.lock().open.iter().map(of).collect()
    }

    /// Lets the time pass after which the connection may be closed for being unused.
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
        let waits = [pool.reserve(0), pool.reserve(0)];
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

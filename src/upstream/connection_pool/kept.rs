//! Connections without a stream, which are kept for the first one.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;

use super::ConnectionPool;

/// Closes a connection that is kept for a first stream, once its time is over and no stream uses it.
pub(super) async fn end_unused(pool: Weak<ConnectionPool>, number: u64) {
    while pool.upgrade().is_some_and(|pool| pool.lock().keeps(number)) {
        sleep(LOOK).await;
    }
}

const LOOK: Duration = Duration::from_secs(1);

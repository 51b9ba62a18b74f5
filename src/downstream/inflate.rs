//! Inflates requests. A request counts as incomplete until it is inflated, and has the limits of a plain one.

use bytes::Bytes;
use tokio::task::yield_now;

use super::incomplete::Incomplete;
use super::slot::Status;
use crate::compression::{InflateError, Inflater};

/// Why a request could not be inflated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotInflated {
    Unreadable(InflateError),
    /// The requests of all clients take too much memory.
    NoRoom(Status),
}

/// Inflates a request to at most `limit` bytes. Yields to other tasks meanwhile; large requests take turns.
pub(super) async fn inflate(
    compressed: Bytes,
    limit: usize,
    incomplete: &mut Incomplete,
) -> Result<Bytes, NotInflated> {
    let arrived = compressed.len();
    let mut inflater = Inflater::new(compressed, limit);
    let mut turn = None;
    loop {
        let has_more = inflater.step().map_err(NotInflated::Unreadable)?;
        incomplete.grow_to(arrived + inflater.len()).map_err(NotInflated::NoRoom)?; // both are kept
        if !has_more {
            return Ok(inflater.into_bytes());
        }
        if turn.is_none() && inflater.len() >= LARGE {
            turn = Some(incomplete.turn().await.map_err(NotInflated::NoRoom)?);
        }
        yield_now().await;
    }
}

/// From this size on a request needs a turn. This limits how many clients can make much memory of few bytes at a time.
const LARGE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;
    use crate::compression::tests::gzip;
    use crate::downstream::incomplete::IncompleteRequests;

    #[tokio::test]
    async fn i8_what_is_inflated_counts_among_the_incomplete_requests_until_it_is_done() {
        const LIMIT: usize = 4 * LARGE;
        let plain = vec![7; LIMIT];
        let compressed = gzip(&plain).len();
        let all = IncompleteRequests::new(LIMIT + compressed, 1000, Arc::default());
        let mut incomplete = all.connection().begin();
        let inflated = inflate(gzip(&plain).into(), LIMIT, &mut incomplete).await;
        assert_eq!(inflated, Ok(plain.clone().into()), "a request of the largest size fits into a budget for it");
        assert_eq!(all.bytes(), LIMIT + compressed, "as it came, and inflated");
        drop(incomplete);
        assert_eq!(all.bytes(), 0);

        let (mut first, mut second) = (all.connection().begin(), all.connection().begin());
        first.grow_to(1).unwrap();
        let without_room = inflate(gzip(&plain).into(), LIMIT, &mut second).await;
        assert!(matches!(without_room, Err(NotInflated::NoRoom(_))), "it has more than its share: {without_room:?}");
        assert!(first.grow_to(2).is_ok());
        let too_large = inflate(gzip(&plain).into(), LIMIT - 1, &mut first).await;
        assert_eq!(too_large, Err(NotInflated::Unreadable(InflateError::TooLarge { limit: LIMIT - 1 })));
    }

    #[tokio::test]
    async fn i8_of_requests_that_become_large_only_so_many_are_inflated_at_a_time_and_small_ones_do_not_wait() {
        let all = IncompleteRequests::with_turns(1 << 30, 1);
        let (mut holds, mut waits, mut small) =
            (all.connection().begin(), all.connection().begin(), all.connection().begin());
        let turn = holds.turn().await.unwrap();
        let plain = vec![7; 4 * LARGE];
        let mut waiting = Box::pin(inflate(gzip(&plain).into(), usize::MAX, &mut waits));
        for _ in 0..100 {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert!(inflate(gzip(&plain[..LARGE / 2]).into(), usize::MAX, &mut small).await.is_ok());
        drop((small, turn));
        assert_eq!(waiting.await.unwrap().len(), plain.len());
    }
}

//! A response that is complete before its first byte is sent, sent in pieces.
//!
//! The peer may stop reading. Over HTTP/2 the body is then no longer polled, so a task watches it: bytes that are not read for too long are
//! freed, and the stream fails if its peer continues to read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::body::ReadStalled;
use super::encode::PIECE;
use super::piece::Piece;

pub(super) struct BufferedBody {
    rest: Arc<Mutex<UnsentBytes>>,
    watch: Option<JoinHandle<()>>,
}

struct UnsentBytes {
    bytes: Bytes,
    given_up: bool,
}

impl BufferedBody {
    /// Must be called within a Tokio runtime.
    pub(crate) fn new(bytes: Bytes, patience: Duration) -> Self {
        let long = bytes.len() > PIECE;
        // A short response is no larger than what any stream may pin, so it does not count towards the shared budget.
        let bytes = if long { bytes } else { Bytes::copy_from_slice(&bytes) };
        let rest = Arc::new(Mutex::new(UnsentBytes { bytes, given_up: false }));
        let watch = long.then(|| tokio::spawn(watch(Arc::downgrade(&rest), patience)));
        Self { rest, watch }
    }

    fn left(&self) -> usize {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).bytes.len()
    }
}

async fn watch(rest: Weak<Mutex<UnsentBytes>>, patience: Duration) {
    let mut before = usize::MAX;
    loop {
        tokio::time::sleep(patience).await;
        let Some(rest) = rest.upgrade() else { return };
        let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
        if rest.bytes.is_empty() {
            return; // all of it was read
        }
        if rest.bytes.len() == before {
            tracing::debug!(remaining_bytes = before, "client stopped reading; response dropped");
            (rest.bytes, rest.given_up) = (Bytes::new(), true);
            return;
        }
        before = rest.bytes.len();
    }
}

impl Body for BufferedBody {
    type Data = Piece;
    type Error = ReadStalled;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, ReadStalled>>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if rest.given_up {
            return Poll::Ready(Some(Err(ReadStalled::new())));
        }
        if rest.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let piece = if self.watch.is_some() {
            // A slice would keep all of a long response alive while it is in flight.
            let piece = Bytes::copy_from_slice(&rest.bytes[..rest.bytes.len().min(PIECE)]);
            rest.bytes.advance(piece.len());
            piece
        } else {
            std::mem::take(&mut rest.bytes)
        };
        if rest.bytes.is_empty() {
            rest.bytes = Bytes::new(); // a body that was read to its end pins nothing
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.bytes.is_empty() && !rest.given_up
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left() as u64)
    }
}

impl Drop for BufferedBody {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// How long a client may read nothing of the response to its poll.
pub(super) const UNTAKEN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    async fn take(body: &mut BufferedBody) -> Result<usize, ReadStalled> {
        let frame = body.frame().await.expect("the body is at its end")?;
        Ok(frame.into_data().ok().unwrap().remaining())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_is_released_and_a_slow_reader_gets_all() {
        let answer = Bytes::from(vec![7; 4 * PIECE + 1]);
        let mut slow = BufferedBody::new(answer.clone(), PATIENCE);
        let mut sizes = Vec::new();
        while !slow.is_end_stream() {
            sizes.push(take(&mut slow).await.unwrap());
            tokio::time::sleep(PATIENCE / 2).await; // longer than the timeout in total
        }
        assert_eq!(sizes, [PIECE, PIECE, PIECE, PIECE, 1]);

        let mut stuck = BufferedBody::new(answer.clone(), PATIENCE);
        let piece = stuck.frame().await.unwrap().unwrap();
        assert!(!answer.is_unique());
        let let_go = async {
            while !answer.is_unique() {
                tokio::time::sleep(PATIENCE / 10).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE * 40, let_go).await;
        assert!(in_time.is_ok(), "neither the rest nor the piece that is out keeps it alive");
        drop(piece);
        assert!(take(&mut stuck).await.is_err(), "the peer is told that there is no more to come");
    }

    #[tokio::test]
    async fn nothing_watches_a_body_that_is_gone() {
        let body = BufferedBody::new(Bytes::from(vec![7; PIECE + 1]), Duration::from_secs(3600));
        let watch = body.watch.as_ref().unwrap().abort_handle();
        drop(body);
        let ended = async {
            while !watch.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it is watched for an hour");
    }
}

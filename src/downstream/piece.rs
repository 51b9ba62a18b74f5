//! A piece of a reply on its way to the connection, and the gate that counts those of one body.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;

use super::encode::Head;
use crate::compression::END;

/// Counts the pieces in flight. A stalled stream pins one piece of its own, or a few that are shared with other clients.
#[derive(Default)]
pub(super) struct Gate {
    out: AtomicUsize,
    body: AtomicWaker,
}

/// A piece in flight, and the bytes before it. The gate opens when the last byte is written.
pub(super) struct Piece {
    head: Head,
    head_sent: usize,
    bytes: Bytes,
    /// The bytes after the piece.
    end: [u8; END],
    end_left: usize,
    gate: Arc<Gate>,
}

impl Gate {
    /// Waits until fewer pieces than this are in flight.
    pub(super) fn poll_open(&self, width: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_shut(width) {
            self.body.register(cx.waker());
            // The gate may have opened before the waker was registered.
            if self.is_shut(width) {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn is_shut(&self, width: usize) -> bool {
        self.out.load(Ordering::Acquire) >= width
    }
}

impl From<Bytes> for Piece {
    /// A message of a short call, which needs no gate.
    fn from(bytes: Bytes) -> Self {
        Self { head: Head::default(), head_sent: 0, bytes, end: [0; END], end_left: 0, gate: Arc::default() }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.gate.out.fetch_sub(1, Ordering::AcqRel);
        self.gate.body.wake();
    }
}

impl Piece {
    /// Counts a piece as in flight until it is dropped.
    pub(super) fn through(gate: &Arc<Gate>, head: Head, bytes: Bytes, end: Option<[u8; END]>) -> Self {
        gate.out.fetch_add(1, Ordering::AcqRel);
        let (end, end_left) = end.map_or(Default::default(), |end| (end, END));
        Self { head, head_sent: 0, bytes, end, end_left, gate: gate.clone() }
    }

    fn head(&self) -> &[u8] {
        &self.head.bytes()[self.head_sent..]
    }

    fn end(&self) -> &[u8] {
        &self.end[END - self.end_left..]
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.head().len() + self.bytes.len() + self.end_left
    }

    fn chunk(&self) -> &[u8] {
        let chunks = [self.head(), &self.bytes, self.end()];
        chunks.into_iter().find(|chunk| !chunk.is_empty()).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let chunks = [self.head(), &self.bytes, self.end()].into_iter().filter(|chunk| !chunk.is_empty());
        into.iter_mut().zip(chunks).map(|(slot, chunk)| *slot = IoSlice::new(chunk)).count()
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head().len());
        let of_bytes = (count - of_head).min(self.bytes.len());
        self.head_sent += of_head;
        self.bytes.advance(of_bytes);
        self.end_left -= count - of_head - of_bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use weir_core::protocol::session::Variant;

    use super::*;
    use crate::downstream::body::tests::reply_of_text;
    use crate::downstream::encode::{Outgoing, SharedMessages};

    /// A body that checks its gate when it is woken.
    struct AtGate(Arc<Gate>, AtomicUsize);

    impl Wake for AtGate {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.out.load(Ordering::Acquire), Ordering::Release);
        }
    }

    #[test]
    fn a_body_that_is_woken_by_a_piece_that_was_written_finds_its_gate_open() {
        let gate = Arc::<Gate>::default();
        let found = Arc::new(AtGate(gate.clone(), AtomicUsize::new(usize::MAX)));
        gate.out.store(1, Ordering::Release);
        gate.body.register(&Waker::from(found.clone()));
        drop(Piece { head: Head::default(), head_sent: 0, bytes: Bytes::new(), end: [0; END], end_left: 0, gate });
        assert_eq!(found.1.load(Ordering::Acquire), 0, "pieces in flight");
    }

    /// The end follows the bytes, however few of them each write takes.
    #[test]
    fn a_piece_is_its_head_its_bytes_and_its_end_however_it_is_written() {
        let messages = SharedMessages::new("weir");
        let mut outgoing = Outgoing::new(reply_of_text(100), Variant::Delta, &messages);
        let (head, _) = outgoing.next_piece();
        let whole = [head.bytes(), b"some bytes", &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
        for step in 1..=whole.len() {
            let mut piece = Piece::from(Bytes::from_static(b"some bytes"));
            (piece.head, piece.end, piece.end_left) = (head, [1, 2, 3, 4, 5, 6, 7, 8], END);
            let mut written = Vec::new();
            while piece.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 4];
                let count = piece.chunks_vectored(&mut slices);
                let gathered = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>();
                assert_eq!(gathered.len(), piece.remaining());
                assert_eq!(&*slices[0], piece.chunk());
                let taken = step.min(gathered.len());
                written.extend_from_slice(&gathered[..taken]);
                piece.advance(taken);
            }
            assert_eq!(written, whole, "{step} at a time");
        }
    }
}

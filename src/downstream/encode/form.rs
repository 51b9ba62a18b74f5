//! The compressed form of a message, which its takers share in pieces.
//!
//! Like a plain piece, a piece in flight keeps only itself alive: a client that reads nothing of a reply that was given up pins 64 KiB.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use crate::compression::{END, SharedGzip, SharedSum};
use crate::memory::Charge;

/// The compressed form of a message.
#[derive(Debug)]
pub(super) struct CompressedForm {
    pieces: Box<[Arc<FormPiece>]>,
    length: usize,
    sum: SharedSum,
    _charge: Charge,
}

/// The progress of making a compressed form.
#[derive(Debug, Default)]
pub(super) enum FormState {
    #[default]
    NotBegun,
    Begun(Making),
    Made(Arc<CompressedForm>),
    /// The form would be hardly smaller than the message, or could not be made.
    Useless,
}

/// Always completes: with an error if the maker has ended without a result.
pub(super) type Making = Shared<oneshot::Receiver<Option<Arc<CompressedForm>>>>;

/// A part of a form, with a memory charge of its own.
#[derive(Debug)]
struct FormPiece {
    bytes: Vec<u8>,
    _charge: Charge,
}

/// Keeps a piece in flight alive, but not the rest of its form.
struct Owner(Arc<FormPiece>);

impl CompressedForm {
    /// `charge`: the charge from making the form, which keeps it.
    pub(super) fn new(gzip: SharedGzip, charge: Charge) -> Self {
        let length = gzip.len();
        let (pieces, sum) = gzip.into_parts();
        charge.set(OVERHEAD);
        let charged = |bytes: Vec<u8>| {
            let _charge = charge.beside(bytes.len() + OVERHEAD);
            Arc::new(FormPiece { bytes, _charge })
        };
        let pieces = pieces.into_iter().map(charged).collect();
        charge.tell();
        Self { pieces, length, sum, _charge: charge }
    }

    /// Returns the length of the bytes that all takers share.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns one piece.
    pub(super) fn piece(&self, at: usize) -> Bytes {
        self.pieces.get(at).map_or_else(Bytes::new, |piece| Bytes::from_owner(Owner(piece.clone())))
    }

    pub(super) fn end(&self, own: &[u8]) -> [u8; END] {
        self.sum.end(own)
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// The overhead in bytes that is charged for a form and for each of its pieces.
const OVERHEAD: usize = 256;

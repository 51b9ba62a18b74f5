//! The compressed form of a message, which its takers share in pieces.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use super::message::PIECE;
use crate::compression::{END, SharedGzip};
use crate::memory::Charge;

/// The compressed form of a message.
#[derive(Debug)]
pub(super) struct Form {
    gzip: SharedGzip,
    _charge: Charge,
}

/// How far the compressed form of a message is.
#[derive(Debug, Default)]
pub(super) enum FormState {
    #[default]
    NotBegun,
    Begun(Making),
    Made(Arc<Form>),
    /// It is hardly smaller than the message, or could not be made.
    Useless,
}

/// Ends in any case: without a form if what makes it has ended.
pub(super) type Making = Shared<oneshot::Receiver<Option<Arc<Form>>>>;

/// A part of a form in flight, which keeps it alive.
struct Part(Arc<Form>);

impl Form {
    pub(super) fn new(gzip: SharedGzip, charge: Charge) -> Self {
        Self { gzip, _charge: charge }
    }

    pub(super) fn blocks(&self) -> &[u8] {
        self.gzip.blocks()
    }

    pub(super) fn pieces(&self) -> usize {
        self.blocks().len().div_ceil(PIECE)
    }

    /// Returns one piece.
    pub(super) fn piece(self: &Arc<Self>, at: usize) -> Bytes {
        let all = Bytes::from_owner(Part(self.clone()));
        let from = (at * PIECE).min(all.len());
        all.slice(from..all.len().min(from + PIECE))
    }

    pub(super) fn end(&self, own: &[u8]) -> [u8; END] {
        self.gzip.end(own)
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.0.blocks()
    }
}

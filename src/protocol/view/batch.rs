//! Additions of one snapshot for all clients with the same cursor, collected for the first of them.
//!
//! A snapshot never changes, so a batch is valid as long as its snapshot exists.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::revision::Revision;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, SetVersion, Type};

/// What a batch depends on, besides its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey {
    pub(crate) kind: Type,
    /// A complete set, as opposed to what changed after `added`.
    pub(crate) complete: bool,
    /// The client reads wrapped resources in SotW.
    pub(crate) wrappers: bool,
    /// Additions up to here were sent.
    pub(crate) added: Revision,
    /// It is the first response to `*`.
    pub(crate) first: bool,
}

/// Resources of one reply.
#[derive(Debug)]
pub struct Batch {
    pub(crate) resources: Arc<[Arc<Resource>]>,
    /// Names that the new resources make a client subscribe to next.
    pub(crate) refers_to: Vec<Name>,
    pub(crate) bytes: usize,
    pub(crate) version: SetVersion,
    /// The last change in it, if the batch was cut.
    pub(crate) cut_after: Option<Revision>,
    /// When the oldest change in it was received.
    pub(crate) oldest_change: Option<Moment>,
}

/// The batches of one snapshot. Collecting one again only costs time, so only a few are kept.
#[derive(Debug, Default)]
pub(super) struct Batches(Mutex<VecDeque<(BatchKey, Cell)>>);

type Cell = Arc<OnceLock<Arc<Batch>>>;

impl Batches {
    /// Clients that need the same batch wait for the first of them; those that need another one do not.
    pub(crate) fn get(&self, key: BatchKey, collect: impl FnOnce() -> Batch) -> Arc<Batch> {
        self.cell(key).get_or_init(|| Arc::new(collect())).clone()
    }

    fn cell(&self, key: BatchKey) -> Cell {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cell)) = kept.iter().find(|(known, _)| *known == key) {
            return cell.clone();
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let cell = Cell::default();
        kept.push_back((key, cell.clone()));
        cell
    }
}

const KEPT: usize = 16;

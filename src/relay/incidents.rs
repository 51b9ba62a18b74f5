//! Errors in views, counted over the life of the process: the counts stay when a view is removed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::brakes::BrakeWatch;
use super::report::Totals;
use super::wait_watch::WaitWatch;
use crate::xds::{Type, TypeTable};

/// One for the process, shared by the views and the hub.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// By server and type. Unknown types count as one, since peers can invent them.
    rejected: Mutex<BTreeMap<(String, String), u64>>,
    panics: AtomicU64,
    /// By server.
    upstream: Mutex<BTreeMap<String, Totals>>,
    pub(crate) brakes: Arc<BrakeWatch>,
    pub(crate) waits: WaitWatch,
}

impl Incidents {
    /// Starts with the types that have brakes.
    pub(crate) fn with_brakes<'a>(types: impl Iterator<Item = &'a str>) -> Self {
        Self { brakes: Arc::new(BrakeWatch::new(types)), ..Self::default() }
    }

    pub(crate) fn rejected(&self, server: &str, kind: &Type, table: &TypeTable, count: usize) {
        let kind = if table.knows(kind.name()) { kind.name() } else { "other" };
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected.entry((server.to_owned(), kind.to_owned())).or_default() += count as u64;
    }

    /// Counts what happened on upstream streams to a server.
    pub(crate) fn upstream(&self, server: String, news: Totals) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner).entry(server).or_default() += news;
    }

    /// Returns what happened on upstream streams, by server.
    pub(crate) fn upstream_totals(&self) -> BTreeMap<String, Totals> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn view_panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many view tasks panicked.
    pub(crate) fn view_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Returns how many resources of servers were rejected, each version of a name once, by server and type.
    pub(crate) fn rejected_resources(&self) -> BTreeMap<(String, String), u64> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

//! Log lines about views that begin and end. Clients decide how many of these there are.

use std::time::Instant;

use weir_core::xds::SharingKey;

use crate::log_pace::LogPace;

pub(super) struct ViewLines {
    created: LogPace,
    removed: LogPace,
}

impl Default for ViewLines {
    fn default() -> Self {
        Self { created: LogPace::of_process(), removed: LogPace::of_process() }
    }
}

impl ViewLines {
    pub(super) fn created(&self, view: &SharingKey, count: usize) {
        if let Some(unlogged) = self.created.line(Instant::now()) {
            tracing::info!(%view, count, unlogged, "view created");
        }
    }

    pub(super) fn removed_idle(&self, view: &SharingKey) {
        if let Some(unlogged) = self.removed.line(Instant::now()) {
            tracing::info!(%view, unlogged, "view removed; it was idle");
        }
    }

    pub(super) fn removed_for_another(&self, view: &SharingKey) {
        if let Some(unlogged) = self.removed.line(Instant::now()) {
            tracing::info!(%view, unlogged, "view removed to make room; it has no clients");
        }
    }
}

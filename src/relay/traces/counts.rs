//! What became of spans, counted over the life of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a span was not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanDrop {
    /// The queue of the exporter was full.
    QueueFull,
    /// The collector did not accept it.
    ExportFailed,
    /// Too many changes were open, and it was the oldest.
    TooManyOpen,
}

#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    exported: AtomicU64,
    dropped: [AtomicU64; SpanDrop::ALL.len()],
}

impl SpanDrop {
    pub(crate) const ALL: [Self; 3] = [Self::QueueFull, Self::ExportFailed, Self::TooManyOpen];

    fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::ExportFailed => "export_failed",
            Self::TooManyOpen => "too_many_open",
        }
    }
}

impl SpanCounts {
    pub(crate) fn count_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, reason: SpanDrop, spans: usize) {
        self.dropped[reason as usize].fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns how many were dropped, by reason.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SpanDrop::ALL.into_iter().map(|reason| (reason.name(), self.dropped[reason as usize].load(Ordering::Relaxed)))
    }
}

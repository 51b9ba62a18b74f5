//! A helper for the tests of several parts: the log lines of a test's own subscriber.

use std::io;
use std::sync::{Arc, Mutex, Once};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, Interest, set_default, set_global_default};
use tracing::{Event, Metadata, Subscriber, span};
use tracing_subscriber::fmt;

#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenLines(Arc<Mutex<Vec<u8>>>);

impl WrittenLines {
    /// Stores the lines of this thread from now on, until the guard is dropped.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        ASKED_EACH_TIME.call_once(|| set_global_default(AskEachTime).unwrap());
        let lines = Self::default();
        let out = lines.clone();
        let guard = set_default(fmt().with_writer(move || out.clone()).with_ansi(false).finish());
        (lines, guard)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns how many lines contain this text.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.text().lines().filter(|line| line.contains(part)).count()
    }
}

impl io::Write for WrittenLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stores nothing. While it is the default of all threads, each call site of a line asks the subscriber of its thread whether that wants the line.
/// Otherwise a call site that another thread reaches first, just as lines begin to be stored, may cache that thread's answer, no.
struct AskEachTime;

static ASKED_EACH_TIME: Once = Once::new();

impl Subscriber for AskEachTime {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

//! The log of the process: which events are logged, and in which form. The level can be changed while the process runs.

use std::io::{self, IsTerminal, Write, stderr};
use std::str::FromStr;
use std::time::Instant;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use super::log_format::LogFormat;
use super::log_panics;
use super::log_queue::{LAST_LINES, LogQueue};
use crate::log_pace::LogPace;

/// Which events are logged: a level, and levels of single modules.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFilter(Targets);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogFilterError {
    #[error("unknown log level {0:?}: expected error, warn, info, debug, trace or off")]
    UnknownLevel(String),
    #[error("invalid log filter {0:?}: expected LEVEL or MODULE=LEVEL, separated by commas")]
    Invalid(String),
}

/// The log of the process. Clones share it.
#[derive(Debug, Clone)]
pub struct LogControl {
    filter: Option<reload::Handle<Targets, Registry>>,
    /// `None` if a thread that logs waits until its line is written.
    queue: Option<LogQueue>,
}

/// When dropped, waits until the last lines are written, for a second at most: their reader may hang.
#[derive(Debug)]
pub struct LogEnd(Option<LogQueue>);

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        for part in text.split(',').map(str::trim) {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
            if level.is_empty() || level.parse::<LevelFilter>().is_err() {
                return Err(LogFilterError::UnknownLevel(level.to_owned()));
            }
        }
        text.parse().map(Self).map_err(|_| LogFilterError::Invalid(text.to_owned()))
    }
}

impl LogControl {
    /// Starts the log of the process, on standard error. A thread that logs waits until its line is written.
    pub fn start(filter: &LogFilter, format: LogFormat) -> Self {
        Self::start_on(filter, format, None)
    }

    /// Starts the log of a process that has to run on while no process reads its log. Panics are lines of this log.
    pub fn start_with_queue(filter: &LogFilter, format: LogFormat) -> io::Result<Self> {
        let queue = LogQueue::start(format, stderr())?;
        log_panics::report_to(queue.clone(), format);
        Ok(Self::start_on(filter, format, Some(queue)))
    }

    fn start_on(filter: &LogFilter, format: LogFormat, queue: Option<LogQueue>) -> Self {
        let (filter, handle) = reload::Layer::new(filter.0.clone());
        // If stderr is closed, the report of a write error would panic.
        let writer = queue.clone().map_or_else(|| BoxMakeWriter::new(stderr), BoxMakeWriter::new);
        let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
        let registry = tracing_subscriber::registry().with(filter);
        let pace = LibraryPace::default();
        match format {
            LogFormat::Text => {
                let lines = lines.fmt_fields(text_fields()).with_ansi(stderr().is_terminal());
                registry.with(lines.with_filter(pace)).init();
            }
            LogFormat::Json => registry.with(lines.json().flatten_event(true).with_filter(pace)).init(),
        }
        Self { filter: Some(handle), queue }
    }

    /// Returns a control without a log, for a relay in a process that has a log of its own.
    pub(crate) fn none() -> Self {
        Self { filter: None, queue: None }
    }

    /// Writes a text that is not an event, such as why the program ends.
    pub fn say(&self, text: &str) {
        match &self.queue {
            Some(queue) => queue.put(format!("{text}\n").as_bytes()),
            None => drop(writeln!(stderr(), "{text}")), // stderr may be closed
        }
    }

    /// Returns the guard that has to be dropped last.
    pub fn end(&self) -> LogEnd {
        LogEnd(self.queue.clone())
    }

    /// Returns how many lines were dropped because the queue was full, or because they could not be written.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.queue.as_ref().map_or(0, LogQueue::dropped)
    }

    /// Changes the level. Returns false if there is no log whose level can be changed.
    pub(crate) fn set(&self, filter: &LogFilter) -> bool {
        self.filter.as_ref().is_some_and(|handle| handle.reload(filter.0.clone()).is_ok())
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.filter.as_ref()?.with_current(ToString::to_string).ok()
    }
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.flush(LAST_LINES); // otherwise the last lines are lost
        }
    }
}

/// Limits warnings of libraries to a few a minute: peers can cause any number of them, for example `h2` logs one for each misplaced ping. Lower
/// levels are not limited, because an operator has to select them.
#[derive(Debug)]
struct LibraryPace(LogPace);

impl Default for LibraryPace {
    fn default() -> Self {
        Self(LogPace::of_libraries())
    }
}

impl<S> Filter<S> for LibraryPace {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let is_own = target.split("::").next().is_some_and(|name| name.starts_with("weir"));
        is_own || *level > Level::WARN || self.0.line(Instant::now()).is_some()
    }
}

/// Formats the fields of a line as text. Texts from peers have their line breaks escaped, so they cannot forge other lines.
fn text_fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|out, field, value| match field.name() {
        "message" => write!(out, "{}", printable(format!("{value:?}"))),
        name => write!(out, "{name}={}", printable(format!("{value:?}"))),
    })
    .delimited(" ")
}

/// Escapes control characters.
fn printable(text: String) -> String {
    match text.chars().any(char::is_control) {
        true => text
            .chars()
            .map(|letter| if letter.is_control() { letter.escape_default().to_string() } else { letter.into() })
            .collect(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::WrittenLines;

    #[test]
    fn a_text_of_a_peer_cannot_begin_a_line_of_its_own() {
        let lines = WrittenLines::default();
        let out = lines.clone();
        let writer = move || out.clone();
        let layer = fmt::layer().with_writer(writer).fmt_fields(text_fields()).with_ansi(false).without_time();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let node = "a\nWARN forged \u{1b}[31m";
            tracing::warn!(%node, text = node, number = 5, "client \u{7}");
        });
        let text = lines.text();
        let expected = "client \\u{7} node=a\\nWARN forged \\u{1b}[31m text=\"a\\nWARN forged \\u{1b}[31m\" number=5\n";
        assert!(text.ends_with(expected), "{text:?}");
    }

    #[test]
    fn a_flood_of_warnings_of_a_library_has_few_lines_and_those_of_the_relay_have_all() {
        let lines = WrittenLines::default();
        let out = lines.clone();
        let layer = fmt::layer().with_writer(move || out.clone()).with_ansi(false);
        let layer = layer.with_filter(LibraryPace::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..1000 {
                tracing::warn!(target: "h2::proto::ping_pong", "recv PING ack that we never sent");
                tracing::error!(target: "hyper::proto", "broken");
                tracing::info!(target: "h2::proto", "asked for");
                tracing::warn!(target: "weir::downstream", "own");
            }
        });
        assert_eq!(lines.count("PING") + lines.count("broken"), 10);
        assert_eq!((lines.count("asked for"), lines.count("own")), (1000, 1000));
    }

    #[test]
    fn levels_are_known_also_by_module_and_others_are_rejected() {
        for good in ["info", "WARN", "off", "info,weir::downstream=debug", "weir=trace"] {
            assert!(good.parse::<LogFilter>().is_ok(), "{good}");
        }
        assert_eq!("verbose".parse::<LogFilter>(), Err(LogFilterError::UnknownLevel("verbose".into())));
        assert_eq!("info,weir=loud".parse::<LogFilter>(), Err(LogFilterError::UnknownLevel("loud".into())));
        assert!("".parse::<LogFilter>().is_err());
    }
}

//! The log of the process: what is logged and in which form. The level can be changed while the process runs.

use std::io::{IsTerminal, stderr};
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// What is logged: a level, and levels of single modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogFilterError {
    #[error("unknown log level {0:?}: expected error, warn, info, debug, trace or off")]
    UnknownLevel(String),
    #[error("invalid log filter {0:?}: expected LEVEL or MODULE=LEVEL, separated by commas")]
    Invalid(String),
}

/// Changes what is logged.
#[derive(Debug, Clone)]
pub struct LogControl(Option<reload::Handle<EnvFilter, Registry>>);

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        for part in text.split(',').map(str::trim) {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
            if level.is_empty() || level.parse::<LevelFilter>().is_err() {
                return Err(LogFilterError::UnknownLevel(level.to_owned()));
            }
        }
        EnvFilter::try_new(text).map_err(|_| LogFilterError::Invalid(text.to_owned()))?;
        Ok(Self(text.to_owned()))
    }
}

impl LogFilter {
    fn filter(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

impl LogControl {
    /// Starts the log of the process, on standard error.
    pub fn start(filter: &LogFilter, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter.filter());
        // If stderr is closed, reporting that error would panic.
        let lines = fmt::layer().with_writer(stderr).log_internal_errors(false);
        let registry = tracing_subscriber::registry().with(filter);
        match format {
            LogFormat::Text => registry.with(lines.with_ansi(stderr().is_terminal())).init(),
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
        }
        Self(Some(handle))
    }

    /// For a relay in a process that has a log of its own.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Changes the level. Returns false if there is no log whose level can be changed.
    pub(crate) fn set(&self, filter: &LogFilter) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.reload(filter.filter()).is_ok())
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.0.as_ref()?.with_current(ToString::to_string).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

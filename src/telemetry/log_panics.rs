//! Panics as lines of the log. The standard library would write them to standard error itself, and the panicking thread would wait for the reader
//! of standard error.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

use serde_json::Value;
use tracing::Level;

use super::log_format::LogFormat;
use super::log_queue::{LAST_LINES, LogQueue};

/// Writes all later panics of the process to the log.
pub(super) fn report_to(queue: LogQueue, format: LogFormat) {
    std::panic::set_hook(Box::new(move |panic| {
        let error = panic.payload_as_str().unwrap_or("without a message");
        queue.put(line(format, panic, error).as_bytes());
        if ABORTS.contains(&error) {
            queue.flush(LAST_LINES);
        }
    }));
}

fn line(format: LogFormat, panic: &PanicHookInfo<'_>, error: &str) -> String {
    let location = panic.location().map(ToString::to_string);
    let name = thread::current().name().map(str::to_owned);
    let fields = [("thread", name.into()), ("at", location.into()), ("error", error.into())];
    let backtrace = Backtrace::capture(); // only if an environment variable enables it
    match (format, backtrace.status() == BacktraceStatus::Captured) {
        (_, false) => format.line(Level::ERROR, PANICKED, fields),
        (LogFormat::Text, true) => format!("{}{backtrace}\n", format.line(Level::ERROR, PANICKED, fields)),
        (LogFormat::Json, true) => {
            let [thread, at, error] = fields;
            let backtrace = ("backtrace", Value::String(backtrace.to_string()));
            format.line(Level::ERROR, PANICKED, [thread, at, error, backtrace])
        }
    }
}

const PANICKED: &str = "a thread panicked";
/// The messages of panics that abort the process. They have to be flushed at once, because nothing later would wait for the log.
const ABORTS: [&str; 2] = ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];

//! A queue of log lines for the thread that writes them. A thread that logs never waits for the log's reader: without room its line is dropped,
//! counted, and mentioned before the next line that is written.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use super::log_format::LogFormat;
use crate::memory::costs::LOG_QUEUE;

/// Clones share the queue.
#[derive(Debug, Clone)]
pub(super) struct LogQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    format: LogFormat,
    /// Locked while lines are added or taken, never while they are written.
    lines: Mutex<Lines>,
    /// Signals that there are lines to write.
    filled: Condvar,
    /// Signals that all lines are written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<Box<[u8]>>,
    /// The size of the lines that wait, and of those that the thread has taken and not yet written.
    bytes: usize,
    dropped: u64,
    /// How many of the dropped lines the log has mentioned.
    mentioned: u64,
    /// Whether the thread waits.
    is_idle: bool,
}

/// The lines that the thread writes next.
struct Batch {
    lines: VecDeque<Box<[u8]>>,
    /// The number of dropped lines that the log has not mentioned.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread, which runs as long as the process.
    pub(super) fn start(format: LogFormat, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, filled, emptied) = Default::default();
        let queue = Self(Arc::new(Shared { format, lines, filled, emptied }));
        let own = queue.clone();
        thread::Builder::new().name(NAME.into()).spawn(move || own.write_all(Output { out, is_within_line: false }))?;
        Ok(queue)
    }

    /// Adds a line, including its line break. Without room the line is dropped.
    pub(super) fn put(&self, line: &[u8]) {
        let line: Box<[u8]> = match line.len() > LONGEST {
            true => self.0.format.cut(line, LONGEST).into_bytes().into(),
            false => line.into(),
        };
        let cost = cost(&line);
        let mut lines = self.lock();
        if lines.bytes + cost > LOG_QUEUE {
            lines.dropped += 1;
            return;
        }
        lines.bytes += cost;
        lines.waiting.push_back(line);
        drop(lines);
        self.0.filled.notify_one();
    }

    /// Returns how many lines were dropped or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Waits until everything is written. Returns false if that takes too long.
    pub(super) fn flush(&self, at_most: Duration) -> bool {
        let is_busy = |lines: &mut Lines| !(lines.is_idle && lines.waiting.is_empty());
        let waited = self.0.emptied.wait_timeout_while(self.lock(), at_most, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn write_all(&self, mut output: Output<impl Write>) {
        let mut is_writable = true;
        loop {
            let Batch { lines, dropped } = self.take(is_writable);
            if dropped > 0 {
                let mention = self.0.format.line(Level::WARN, DROPPED, [("lines", dropped.into())]);
                is_writable = output.write(mention.as_bytes()).is_ok();
                self.lock().mentioned += if is_writable { dropped } else { 0 };
            }
            for line in lines {
                is_writable = output.write(&line).is_ok();
                let mut lines = self.lock();
                lines.bytes -= cost(&line);
                lines.dropped += u64::from(!is_writable);
            }
        }
    }

    /// Waits for lines to write. Lines that were dropped during the last batch are mentioned before this batch. After a failed write
    /// (`!is_writable`), dropped lines alone do not cause another attempt.
    fn take(&self, is_writable: bool) -> Batch {
        let mut lines = self.lock();
        loop {
            let dropped = lines.dropped - lines.mentioned;
            if !lines.waiting.is_empty() || dropped > 0 && is_writable {
                lines.is_idle = false;
                return Batch { lines: std::mem::take(&mut lines.waiting), dropped };
            }
            lines.is_idle = true;
            self.0.emptied.notify_all();
            lines = self.0.filled.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

/// Each call is one line: `tracing` writes it as a whole.
impl Write for &LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output. Each line is written as a whole.
struct Output<W> {
    out: W,
    /// Whether the last write failed within a line.
    is_within_line: bool,
}

impl<W: Write> Output<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_within_line {
            self.write_bytes(b"\n")?;
        }
        self.write_bytes(line)
    }

    fn write_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.is_within_line = !bytes.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another process that shares the pipe has made it non-blocking.
                #[allow(clippy::disallowed_methods, reason = "a thread of its own")]
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The memory that a line takes, with its entry in the queue.
fn cost(line: &[u8]) -> usize {
    line.len() + ENTRY
}

const DROPPED: &str = "log lines were dropped; the log was not read, or could not be written";
/// A longer line is cut.
const LONGEST: usize = 16 << 10;
const ENTRY: usize = 64;
/// How long the end of the process waits for the last lines.
pub(super) const LAST_LINES: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(10);
/// The name that tools such as `top` show.
const NAME: &str = "weir-log";

#[cfg(test)]
#[path = "tests/log_queue.rs"]
mod tests;

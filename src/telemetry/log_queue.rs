//! Lines of the log on their way to the one thread that writes them. Who logs never waits for who reads: a line without room is dropped,
//! counted, and mentioned in front of the next line that is written.

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
    /// Locked to move bytes in or out, never while something is written.
    lines: Mutex<Lines>,
    /// There is something to write.
    filled: Condvar,
    /// There is nothing.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: VecDeque<Box<[u8]>>,
    /// Bytes of the lines that wait, and of those that the thread has taken and not yet written.
    bytes: usize,
    dropped: u64,
    /// How many of the dropped ones the log has mentioned.
    mentioned: u64,
    /// The thread waits.
    is_idle: bool,
}

/// What the thread writes next.
struct Batch {
    lines: VecDeque<Box<[u8]>>,
    /// Dropped lines that the log has not mentioned.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread. It lives as long as the process.
    pub(super) fn start(format: LogFormat, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, filled, emptied) = Default::default();
        let queue = Self(Arc::new(Shared { format, lines, filled, emptied }));
        let own = queue.clone();
        thread::Builder::new().name(NAME.into()).spawn(move || own.write_all(Output { out, is_within_line: false }))?;
        Ok(queue)
    }

    /// Hands over a line, with its end. It is dropped if there is no room.
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

    /// Returns how many lines were not written.
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

    /// Waits for something to write. What was dropped while the last batch was written has its place in front of this one. It alone is no
    /// reason to write if that has just failed.
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

/// Where lines are written, each as a whole.
struct Output<W> {
    out: W,
    /// The last one failed after some of its bytes.
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
                // Who shares the pipe has made it so that writes do not wait.
                #[allow(clippy::disallowed_methods, reason = "a thread of its own")]
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What a line takes, with its entry in the queue.
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
/// As tools such as `top` show it.
const NAME: &str = "weir-log";

#[cfg(test)]
#[path = "tests/log_queue.rs"]
mod tests;

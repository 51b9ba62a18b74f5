//! Output of the program to stdout, which its reader may close at any time.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Prints a line. After the reader has closed stdout, lines are dropped, and [`closed`] returns.
pub fn line(text: impl Display) {
    if CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        CLOSED.store(true, Ordering::Relaxed);
        WAITER.notify_one(); // stored until a waiter comes
    }
}

/// Prints an error or progress to stderr. A closed stderr is ignored.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Waits until the reader of stdout has closed it, as `head` does. Only one task may wait.
pub async fn closed() {
    WAITER.notified().await;
}

static CLOSED: AtomicBool = AtomicBool::new(false);
static WAITER: Notify = Notify::const_new();

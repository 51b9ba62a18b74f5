//! The signals that a relay handles. They are caught before it first accesses a disk.

use std::io;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals of a process that serves.
pub struct Signals {
    pub terminate: Signal,
    pub interrupt: Signal,
    /// Without a configuration file SIGHUP keeps its default and ends the process.
    pub hang_up: Option<Signal>,
}

impl Signals {
    pub fn catch(has_file: bool) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: has_file.then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Runs the start of the relay in a thread for which the process does not wait at its end, because a disk may hang. `None`: a signal came first.
    pub async fn or_ended<T: Send + 'static>(
        &mut self,
        start: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        tokio::select! {
            started = tokio::task::spawn_blocking(start) => Ok(Some(started.context("the start has failed")?)),
            _ = self.terminate.recv() => {
                tracing::info!("SIGTERM received during the start; stopping at once");
                Ok(None)
            }
            _ = self.interrupt.recv() => {
                tracing::info!("interrupted during the start; stopping at once");
                Ok(None)
            }
        }
    }
}

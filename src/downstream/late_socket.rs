//! Addresses that another process still has: the relay before this one, which serves there until it has drained.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// A listening socket, or one that is still to be opened. Clones share it.
#[derive(Debug)]
pub(crate) struct LateSocket<T>(Arc<SetOnce<T>>);

/// An address of a [`LateSocket`] that is not open.
pub(crate) struct AwaitedAddress {
    address: String,
    /// How long after an attempt the next one follows.
    pause: Duration,
    open: Open,
    opened: Arc<AtomicBool>,
}

/// An attempt to open an address. It may block.
type Open = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

impl<T> LateSocket<T> {
    pub(crate) fn open(socket: T) -> Self {
        Self(Arc::new(SetOnce::new_with(Some(socket))))
    }

    /// Returns one that is still to be opened.
    pub(super) fn unopened() -> Self {
        Self(Arc::new(SetOnce::new()))
    }

    /// Opens it.
    pub(super) fn set(&self, socket: T) {
        let _ = self.0.set(socket); // it was not open
    }

    /// Waits until it is open. Cancel-safe.
    pub(crate) async fn get(&self) -> &T {
        self.0.wait().await
    }

    /// Returns it if it is open.
    pub(crate) fn now(&self) -> Option<&T> {
        self.0.get()
    }
}

impl<T> Clone for LateSocket<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl AwaitedAddress {
    pub(super) fn new(
        address: String,
        pause: Duration,
        open: impl FnMut() -> anyhow::Result<()> + Send + 'static,
    ) -> Self {
        Self { address, pause, open: Box::new(open), opened: Arc::default() }
    }

    /// Returns where it is noted that the address is open.
    pub(crate) fn opened(&self) -> Arc<AtomicBool> {
        self.opened.clone()
    }

    /// Opens the address as soon as the other process has left it, and fails if that takes longer than this. Until then it tries again after
    /// every error, since any may come from the other process just leaving.
    pub(crate) async fn opened_within(self, time: Duration) -> anyhow::Result<()> {
        let Self { address, pause, mut open, opened: is_open } = self;
        let last = Instant::now() + time;
        let limit = humantime::format_duration(time).to_string();
        tracing::warn!(%address, limit, "address in use; waiting for the process that has it, and serving at the others");
        loop {
            let attempt = spawn_blocking(move || {
                let opened = open();
                (open, opened)
            });
            let (back, opened) = attempt.await?;
            open = back;
            match opened {
                Ok(()) => {
                    is_open.store(true, Ordering::Relaxed);
                    tracing::info!(%address, "address free; listening");
                    return Ok(());
                }
                Err(_) if Instant::now() < last => sleep(pause).await,
                Err(error) => return Err(error.context(format!("cannot listen on {address}"))),
            }
        }
    }
}

impl fmt::Debug for AwaitedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwaitedAddress").field(&self.address).finish()
    }
}

impl fmt::Display for AwaitedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The pause after which a port is tried again. Clients are refused there meanwhile.
pub(super) const OF_PORT: Duration = Duration::from_millis(100);
/// The pause after which the path of a Unix socket is tried again. The process that has it sees a connection at each try.
pub(super) const OF_UNIX: Duration = Duration::from_secs(1);

//! Addresses that another process still has: the relay before this one, which serves there until it has drained.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep};

/// A listening socket, or one that is still to be opened. Clones share it.
#[derive(Debug)]
pub(crate) struct LateSocket<T>(Arc<SetOnce<T>>);

/// An address of a [`LateSocket`] that is not open.
pub(crate) struct AwaitedAddress {
    address: String,
    open: Box<dyn FnMut() -> Result<(), StillUsed> + Send>,
}

/// Why an address cannot be opened yet.
pub(crate) struct StillUsed {
    /// Another process has it. Otherwise waiting is of no use.
    pub(crate) is_in_use: bool,
    pub(crate) error: anyhow::Error,
}

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
    pub(super) fn new(address: String, open: impl FnMut() -> Result<(), StillUsed> + Send + 'static) -> Self {
        Self { address, open: Box::new(open) }
    }

    /// Opens the address as soon as the other process has left it, and fails if that takes longer than this.
    pub(crate) async fn opened_within(mut self, time: Duration) -> anyhow::Result<()> {
        let (address, last) = (&self.address, Instant::now() + time);
        let limit = humantime::format_duration(time).to_string();
        tracing::warn!(%address, limit, "address in use; waiting for the process that has it, and serving at the others");
        loop {
            match (self.open)() {
                Ok(()) => {
                    tracing::info!(%address, "address free; listening");
                    return Ok(());
                }
                Err(StillUsed { is_in_use: true, .. }) if Instant::now() < last => sleep(LOOK).await,
                Err(StillUsed { error, .. }) => return Err(error.context(format!("cannot listen on {address}"))),
            }
        }
    }
}

impl fmt::Debug for AwaitedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwaitedAddress").field(&self.address).finish()
    }
}

impl StillUsed {
    pub(super) fn of_tcp(error: io::Error) -> Self {
        Self { is_in_use: error.kind() == io::ErrorKind::AddrInUse, error: error.into() }
    }
}

const LOOK: Duration = Duration::from_millis(100);

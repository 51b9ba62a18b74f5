//! What a test does with the connections of a control plane.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{Notify, Semaphore, watch};

/// What the test does with all open connections.
pub(super) struct Control {
    pub hangs: watch::Sender<bool>,
    /// Notifies connections to announce their end. The semaphore counts those that have.
    pub leaves: Notify,
    pub left: Semaphore,
    pub breaks: Notify,
    /// How many are open.
    pub open: AtomicUsize,
}

/// Where a connection comes from, and its number.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub from: SocketAddr,
    pub number: usize,
}

impl Control {
    pub fn new() -> Self {
        Self {
            hangs: watch::Sender::new(false),
            leaves: Notify::new(),
            left: Semaphore::new(0),
            breaks: Notify::new(),
            open: AtomicUsize::new(0),
        }
    }
}

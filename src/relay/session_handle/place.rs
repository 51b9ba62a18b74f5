//! The parts of the relay that a session uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{SessionCharge, SessionHandle};
use crate::relay::client_log::ClientLog;
use crate::relay::clients::Clients;
use crate::relay::clock::Clock;
use crate::relay::command::Command;
use crate::relay::counters::ProcessCounters;
use crate::relay::nack_watch::NackWatch;
use crate::relay::published::Published;
use crate::shared_runtime::OwnRuntime;

/// The session's view, and its counters and logs.
pub(in crate::relay) struct SessionPlace {
    pub(in crate::relay) published: Arc<Published>,
    pub(in crate::relay) commands: ViewCommands,
    /// Which versions the clients of the view NACK.
    pub(in crate::relay) nacks: Arc<NackWatch>,
    /// The list of client streams, which has this session until it leaves.
    pub(in crate::relay) clients: Arc<Clients<SessionHandle>>,
    pub(in crate::relay) clock: Clock,
    pub(in crate::relay) counters: Arc<ProcessCounters>,
    pub(in crate::relay) log: Arc<ClientLog>,
    pub(in crate::relay) charge: SessionCharge,
    /// The runtime of the thread that its connection lives on, if that has one of its own.
    pub(in crate::relay) shard: Option<OwnRuntime>,
}

/// The session's way to its view task, until it has left. The task ends with the last sender, and a body keeps the handle for as long as its client
/// does not read a reply.
pub(in crate::relay) struct ViewCommands(
    /// Locked to copy or to drop it.
    Mutex<Option<mpsc::Sender<Command>>>,
);

impl ViewCommands {
    pub(in crate::relay) fn new(sender: mpsc::Sender<Command>) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    /// Returns the sender; `None` if the session has left.
    pub(super) fn sender(&self) -> Option<mpsc::Sender<Command>> {
        self.lock().clone()
    }

    /// Whether the view task has ended, or the session has left.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Drops the sender, once the session has left.
    pub(super) fn give_up(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<mpsc::Sender<Command>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

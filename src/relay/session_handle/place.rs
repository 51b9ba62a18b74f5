//! The parts of the relay that a session uses.

use std::sync::Arc;

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
    pub(in crate::relay) commands: mpsc::Sender<Command>,
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

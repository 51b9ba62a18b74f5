//! What a view task shares with the rest of the relay.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc;

use crate::relay::command::Command;
use crate::relay::nack_watch::NackWatch;
use crate::relay::published::Published;
use crate::relay::view_usage::ViewUsage;

/// What a view task shares: the receiving end of its commands, and state that the map of views and the sessions read.
pub(in crate::relay) struct ViewChannels {
    pub(in crate::relay) commands: mpsc::Receiver<Command>,
    pub(in crate::relay) published: Arc<Published>,
    pub(in crate::relay) usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, by its place in the plan.
    pub(in crate::relay) active: Arc<AtomicUsize>,
    pub(in crate::relay) nacks: Arc<NackWatch>,
}

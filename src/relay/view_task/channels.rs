//! What others have of a view task, too.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc;

use crate::relay::command::Command;
use crate::relay::nack_watch::NackWatch;
use crate::relay::published::Published;
use crate::relay::view_usage::ViewUsage;

/// What others have of a view task, too.
pub(in crate::relay) struct ViewChannels {
    pub(in crate::relay) commands: mpsc::Receiver<Command>,
    pub(in crate::relay) published: Arc<Published>,
    pub(in crate::relay) usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, by its place in the plan.
    pub(in crate::relay) active: Arc<AtomicUsize>,
    pub(in crate::relay) nacks: Arc<NackWatch>,
}

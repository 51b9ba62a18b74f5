//! The handle of one view.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::field_values::ViewValues;
use super::saved::FromDisk;
use crate::relay::command::Command;
use crate::relay::nack_watch::NackWatch;
use crate::relay::published::Published;
use crate::relay::stay::Stay;
use crate::relay::view_quota::ViewQuota;
use crate::relay::view_usage::ViewUsage;

pub(super) struct ViewHandle {
    pub(crate) published: Arc<Published>,
    pub(crate) nacks: Arc<NackWatch>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, by its place in the plan.
    pub(crate) active: Arc<AtomicUsize>,
    pub(crate) stay: Stay,
    /// The values of the fields of its key.
    pub(crate) values: ViewValues,
    /// What counts it for the client because of which it was created.
    pub(crate) maker: Arc<ViewQuota>,
    /// Whether a relay was its first client. A relay has a view for each of its own, so that such views say nothing of how clients share.
    pub(crate) of_relay: bool,
    /// What it began with.
    pub(crate) from_disk: FromDisk,
}

/// What a session needs to join a view. The view stays until the session has left it, or did not join.
pub(super) struct Entrance {
    pub(crate) published: Arc<Published>,
    pub(crate) nacks: Arc<NackWatch>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) stay: Stay,
}

impl ViewHandle {
    pub(crate) fn enter(&self) -> Entrance {
        let (published, commands) = (self.published.clone(), self.commands.clone());
        Entrance { published, nacks: self.nacks.clone(), commands, stay: self.stay.clone() }
    }

    /// Whether the view task is running. It is not after a panic.
    pub(crate) fn is_running(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the view had no session and no interest for long enough, and no session is about to join it. Sessions look a view up under the
    /// same lock, so none can join a view that is no longer in the map.
    pub(crate) fn is_over(&self, after: Duration, now: Instant) -> bool {
        self.stay.is_last() && self.usage.is_over(after, now)
    }
}

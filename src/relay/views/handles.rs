//! The views by sharing key, and when they are removed.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::relay::command::Command;
use crate::relay::published::Published;
use crate::relay::stay::Stay;
use crate::xds::SharingKey;

pub(super) struct ViewHandle {
    pub(crate) published: Arc<Published>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) idle_since: Arc<Mutex<Option<Instant>>>,
    /// The server for `*` and old-style names, by its place in the plan.
    pub(crate) active: Arc<AtomicUsize>,
    pub(crate) stay: Stay,
}

/// What a session needs to join a view. The view stays until the session has left it, or did not join.
pub(super) struct Entrance {
    pub(crate) published: Arc<Published>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) stay: Stay,
}

impl ViewHandle {
    pub(crate) fn enter(&self) -> Entrance {
        let (published, commands) = (self.published.clone(), self.commands.clone());
        Entrance { published, commands, stay: self.stay.clone() }
    }

    /// Whether the view task is running. It is not after a panic.
    pub(crate) fn is_running(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the view had no session and no interest for this long, and no session is about to join it. Sessions look a view up under the
    /// same lock, so none can join a view that is no longer in the map.
    fn is_idle(&self, after: Duration) -> bool {
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.stay.is_last() && since.is_some_and(|since| since.elapsed() >= after)
    }
}

/// Removes idle views. A view task ends when the last sender of its commands is dropped.
pub(super) fn retire(views: &mut HashMap<SharingKey, ViewHandle>, after: Duration) {
    views.retain(|key, view| {
        let retired = view.is_idle(after);
        if retired {
            tracing::info!(view = %key, "view removed; it was idle");
        }
        view.is_running() && !retired
    });
}

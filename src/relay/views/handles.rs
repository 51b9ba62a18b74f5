//! The views by sharing key, and when they are removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::relay::command::Command;
use crate::relay::published::Published;
use crate::relay::stay::Stay;
use crate::relay::view_usage::ViewUsage;
use crate::xds::SharingKey;

pub(super) struct ViewHandle {
    pub(crate) published: Arc<Published>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) usage: Arc<ViewUsage>,
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

    /// Whether the view had no session and no interest for long enough, and no session is about to join it. Sessions look a view up under the
    /// same lock, so none can join a view that is no longer in the map.
    fn is_over(&self, after: Duration, now: Instant) -> bool {
        self.stay.is_last() && self.usage.is_over(after, now)
    }
}

/// Removes idle views. A view task ends when the last sender of its commands is dropped.
pub(super) fn retire(views: &mut HashMap<SharingKey, ViewHandle>, after: Duration) {
    let now = Instant::now();
    views.retain(|key, view| {
        let retired = view.is_over(after, now);
        if retired {
            tracing::info!(view = %key, "view removed; it was idle");
        }
        view.is_running() && !retired
    });
}

/// Removes one view without sessions, the one that was in use for the shortest time. Its interest may linger.
pub(super) fn make_room(views: &mut HashMap<SharingKey, ViewHandle>) {
    let now = Instant::now();
    let unused = views.iter().filter(|(_, view)| view.stay.is_last());
    let Some(key) = unused.min_by_key(|(_, view)| view.usage.used(now)).map(|(key, _)| key.clone()) else { return };
    tracing::info!(view = %key, "view removed to make room; it has no clients");
    views.remove(&key);
}

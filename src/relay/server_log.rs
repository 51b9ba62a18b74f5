//! Log lines about servers and ladders, one for each change and not one for each view and retry.
//!
//! Views share the log state of a server: its first connected stream and the loss of its last one are logged at info and warn, everything
//! else at debug. Many ladders change state at once in many views; of equal changes one is logged, and the others are counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::ladder::LadderState;

#[derive(Debug)]
pub(super) struct ServerLog {
    servers: Vec<Mutex<ServerState>>,
    /// Ladder changes that were not logged, since the last line about an equal change.
    ladders: Mutex<HashMap<LadderChange, u64>>,
}

#[derive(Debug, Default)]
struct ServerState {
    connected: usize,
    /// Whether the last line reported the server as lost.
    lost: bool,
}

/// Counts one connected stream for as long as it exists.
#[derive(Debug)]
pub(super) struct Connection {
    log: Arc<ServerLog>,
    server: usize,
}

/// A change of a ladder, without the view that it happened in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LadderChange {
    pub(crate) authority: String,
    pub(crate) state: LadderState,
    pub(crate) previous: Option<LadderState>,
    pub(crate) server: Option<String>,
}

impl ServerLog {
    pub(crate) fn new(servers: usize) -> Arc<Self> {
        Arc::new(Self { servers: (0..servers).map(|_| Mutex::default()).collect(), ladders: Mutex::default() })
    }

    pub(crate) fn stream_opened(self: &Arc<Self>, server: usize, name: &str, view: &str, variant: &str) -> Connection {
        self.change(server, |state| {
            state.connected += 1;
            if state.connected == 1 && std::mem::take(&mut state.lost) {
                tracing::info!(server = name, variant, "server connected again");
            } else if state.connected == 1 {
                tracing::info!(server = name, variant, "server connected");
            } else {
                tracing::debug!(server = name, view, variant, "upstream stream opened");
            }
        });
        Connection { log: self.clone(), server }
    }

    /// A stream ended, or could not be opened. Its connection is dropped by now.
    pub(crate) fn stream_ended(&self, server: usize, name: &str, view: &str, error: &str) {
        self.change(server, |state| {
            if state.connected == 0 && !state.lost {
                state.lost = true;
                tracing::warn!(server = name, error, "server connection lost; serving the cache");
            } else {
                tracing::debug!(server = name, view, error, "upstream stream ended");
            }
        });
    }

    pub(crate) fn ladder_changed(self: &Arc<Self>, view: &str, change: LadderChange, reason: Option<&str>) {
        let mut ladders = self.ladders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = ladders.get_mut(&change) {
            *count += 1;
            return;
        }
        ladders.insert(change.clone(), 0);
        drop(ladders);
        log_ladder(&change, Some(view), reason, None);
        let log = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(TOGETHER).await;
            let more = log.ladders.lock().unwrap_or_else(PoisonError::into_inner).remove(&change).unwrap_or_default();
            if more > 0 {
                log_ladder(&change, None, None, Some(more));
            }
        });
    }

    fn change(&self, server: usize, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.servers[server].lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn log_ladder(change: &LadderChange, view: Option<&str>, reason: Option<&str>, more: Option<u64>) {
    let LadderChange { authority, state, previous, server } = change;
    let (state_name, previous) = (state.name(), previous.map(LadderState::name));
    let text = if more.is_some() { "ladder state changed in more views" } else { "ladder state changed" };
    match state {
        LadderState::Cached(_) | LadderState::Down => {
            tracing::warn!(view, authority, state = state_name, previous, server, reason, count = more, "{text}");
        }
        LadderState::Idle | LadderState::Trying(_) | LadderState::Active(_) => {
            tracing::info!(view, authority, state = state_name, previous, server, reason, count = more, "{text}");
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.log.change(self.server, |state| state.connected -= 1);
    }
}

/// Equal changes within this time are logged once.
const TOGETHER: Duration = Duration::from_secs(1);

//! Log lines about servers and ladders: one for each change, however many views and retries it concerns.
//!
//! All views share the log state of a server. Its first connected stream is logged at info; that its last one is lost, or none can be opened, at
//! warn; other streams at debug. Many ladders change state at once in many views: the first of equal changes is logged, the others are counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_core::protocol::ladder::LadderState;

#[derive(Debug)]
pub(super) struct ServerLog {
    servers: Vec<Mutex<ServerState>>,
    /// For each ladder change, how many equal ones were not logged since its last line.
    ladders: Mutex<HashMap<LadderChange, u64>>,
}

#[derive(Debug, Default)]
struct ServerState {
    connected: usize,
    /// Whether the last line reported the server as lost.
    lost: bool,
    /// A stream was open at some time.
    was_connected: bool,
}

/// Counts one connected stream for as long as it exists.
#[derive(Debug)]
pub(super) struct Connection {
    log: Arc<ServerLog>,
    server: usize,
    /// The server has sent a response.
    pub(super) is_answered: bool,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamEnd {
    /// The stream was open; otherwise opening it failed.
    pub(crate) was_open: bool,
    /// The server had sent a response on it.
    pub(crate) was_answered: bool,
    /// Clients of the view have something to be served.
    pub(crate) has_cache: bool,
}

impl StreamEnd {
    /// Makes the end of a stream from its connection, which no longer counts.
    pub(super) fn of(connection: Option<Connection>, has_cache: bool) -> Self {
        let was_answered = connection.as_ref().is_some_and(|connection| connection.is_answered);
        Self { was_open: connection.is_some(), was_answered, has_cache }
    }

    /// `error` begins with the code of a status, if there is one.
    fn text(self, error: &str) -> &'static str {
        let is_refused = REFUSALS.iter().any(|code| error.split_once(':').is_some_and(|(of, _)| of == *code));
        match (self, self.has_cache) {
            (Self { was_answered: true, .. }, true) => "server connection lost; serving the cache",
            (Self { was_answered: true, .. }, false) => "server connection lost",
            (Self { was_open: true, .. }, true) if is_refused => "server refuses streams; serving the cache",
            (Self { was_open: true, .. }, false) if is_refused => "server refuses streams",
            (Self { was_open: true, .. }, true) => "server does not respond; serving the cache",
            (Self { was_open: true, .. }, false) => "server does not respond",
            (_, true) => "server unreachable; serving the cache",
            (_, false) => "server unreachable",
        }
    }
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
            let was_lost = state.connected == 1 && std::mem::take(&mut state.lost);
            if std::mem::replace(&mut state.was_connected, true) && was_lost {
                tracing::info!(server = name, variant, "server connected again");
            } else if state.connected == 1 {
                tracing::info!(server = name, variant, "server connected");
            } else {
                tracing::debug!(server = name, view, variant, "upstream stream opened");
            }
        });
        Connection { log: self.clone(), server, is_answered: false }
    }

    /// A stream ended, or could not be opened. Its connection is dropped by now.
    pub(crate) fn stream_ended(&self, server: usize, name: &str, view: &str, error: &str, end: StreamEnd) {
        self.change(server, |state| {
            if state.connected == 0 && !state.lost {
                state.lost = true;
                tracing::warn!(server = name, error, "{}", end.text(error));
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

impl Connection {
    /// Notes whether the server has sent something already.
    pub(super) fn answered(mut self, is_answered: bool) -> Self {
        self.is_answered = is_answered;
        self
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.log.change(self.server, |state| state.connected -= 1);
    }
}

/// Status codes by which a server refuses a stream. Other codes may come from connections, too.
const REFUSALS: [&str; 8] = [
    "InvalidArgument",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "Unauthenticated",
    "FailedPrecondition",
    "Unimplemented",
    "ResourceExhausted",
];
/// Equal changes within this time are logged once.
const TOGETHER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::WrittenLines;

    #[test]
    fn a_server_is_lost_with_its_last_stream_once_and_connected_again_only_after_that() {
        let (lines, _guard) = WrittenLines::of_this_thread();
        let log = ServerLog::new(2);
        let counts = || {
            let parts = ["server connected server=", "server connection lost", "server connected again"];
            parts.map(|part| lines.count(part))
        };
        let open = |server| log.stream_opened(server, "http://one", "view", "delta");
        let lost = StreamEnd { was_open: true, was_answered: true, has_cache: true };
        let end = |server| log.stream_ended(server, "http://one", "view", "reset", lost);
        let (one, two) = (open(0), open(0));
        assert_eq!(counts(), [1, 0, 0], "the second stream is no news");
        drop(one);
        end(0);
        assert_eq!(counts(), [1, 0, 0], "another one is open");
        drop(two);
        end(0);
        end(0); // it could not be opened
        assert_eq!(counts(), [1, 1, 0]);
        let again = open(0);
        assert_eq!(counts(), [1, 1, 1]);
        drop(again); // no client wants anything of it any more
        let later = open(0);
        assert_eq!(counts(), [2, 1, 1], "it was not lost");
        drop(later);
        end(0);
        let returned = open(0);
        assert_eq!(counts(), [2, 2, 2], "each time");
        end(1);
        assert_eq!(counts(), [2, 3, 2], "another server, which never was connected");
        drop(returned);
    }

    #[test]
    fn what_is_called_lost_was_there_and_a_refusal_and_a_cache_are_named_only_where_they_are() {
        let (lines, _guard) = WrittenLines::of_this_thread();
        let (reset, refusal) = ("Unavailable: reset", "PermissionDenied: who are you?");
        for (was_open, was_answered, error, expected) in [
            (true, true, reset, "server connection lost"),
            (true, true, refusal, "server connection lost"),
            (true, false, refusal, "server refuses streams"),
            (true, false, reset, "server does not respond"),
            (false, false, reset, "server unreachable"),
        ] {
            for (has_cache, more) in [(true, "; serving the cache server="), (false, " server=")] {
                let (log, expected) = (ServerLog::new(1), format!("{expected}{more}"));
                let before = lines.count(&expected);
                log.stream_ended(0, "http://one", "view", error, StreamEnd { was_open, was_answered, has_cache });
                assert_eq!(lines.count(&expected), before + 1, "{}", lines.text());
                drop(log.stream_opened(0, "http://one", "view", "delta"));
                assert_eq!(lines.count("server connected again"), 0, "it never was");
            }
        }
    }

    #[tokio::test]
    async fn equal_changes_of_ladders_are_one_line_and_their_number_and_later_ones_are_news_again() {
        let (lines, _guard) = WrittenLines::of_this_thread();
        let log = ServerLog::new(1);
        let change = |state, previous| LadderChange {
            authority: "x".into(),
            state,
            previous: Some(previous),
            server: Some("http://one".into()),
        };
        let (up, down) = (LadderState::Active(0), LadderState::Down);
        for view in ["one", "two", "three"] {
            log.ladder_changed(view, change(down, up), Some("reset"));
        }
        log.ladder_changed("four", change(up, down), None);
        let first = "ladder state changed view=\"one\" authority=\"x\" state=\"down\" previous=\"active\"";
        assert_eq!((lines.count(first), lines.count("ladder state changed")), (1, 2), "{}", lines.text());
        let counted = async {
            while lines.count("in more views") == 0 || !log.ladders.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), counted).await.expect("the others are not counted");
        assert_eq!((lines.count("in more views"), lines.count("count=2")), (1, 1), "{}", lines.text());
        log.ladder_changed("five", change(down, up), Some("reset"));
        assert_eq!(lines.count("ladder state changed view=\"five\""), 1);
    }
}

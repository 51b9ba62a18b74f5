//! Whether new clients should be sent to this relay: what probes and `grpc.health.v1` report.
//!
//! Readiness is about the start and the end of the process. A relay that has just started has an empty cache. If it reaches no server, it can give
//! a new client nothing, and a relay that has been running serves the client better. So a relay is ready once it could serve a new client
//! (`start`), with or without clients, and stays ready until it drains: an outage removes no relay from a load balancer.
//!
//! It is not ready while the state of an earlier process is loaded, and waited for.
//!
//! Strict readiness also looks at outages, and at ladders that wait for their first response. Readiness does not decide what is served: a
//! relay that is not ready serves what it has.

mod start;
mod start_report;
mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::sources::LadderSummary;
use weir_core::xds::Authority;

pub(crate) use self::start::StartSource;
pub(crate) use self::start_report::StartReport;
use self::state::ReadinessState;
use self::state::{Report, Reports};
use super::state_load::StateLoad;

/// One for the process, shared by its views and the probes.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// Guards only this state; nothing awaits while it is locked.
    state: Mutex<ReadinessState>,
    changes: watch::Sender<()>,
    next_view: AtomicU64,
    load: Arc<StateLoad>,
}

/// Why a relay is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotReady {
    Draining,
    /// The state of an earlier process is being loaded from disk.
    StateNotLoaded,
    /// No source has answered from which the relay could serve a client. This is one of the sources.
    NoAnswerYet {
        source: StartSource,
        error: Option<String>,
    },
    /// Only for strict readiness.
    NoResponseYet(LadderPlace),
    /// Only for strict readiness.
    NoServerReachable(LadderPlace),
}

/// A ladder and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LadderPlace {
    /// A sharing key.
    pub(crate) view: Arc<str>,
    pub(crate) authority: Authority,
    pub(crate) state: &'static str,
    pub(crate) error: Option<String>,
}

/// One view's part in readiness, removed with the view.
#[derive(Debug)]
pub(super) struct ViewReadiness {
    readiness: Arc<Readiness>,
    number: u64,
    key: Arc<str>,
    answered: BTreeSet<Authority>,
    reported: Reports,
}

impl Default for Readiness {
    fn default() -> Self {
        let (changes, next_view, load) = Default::default();
        Self { state: Mutex::new(ReadinessState::new(Instant::now())), changes, next_view, load }
    }
}

impl Readiness {
    /// Waits from now on for an answer of one of these sources, instead of those before. Returns where answers are reported; none if nothing
    /// is waited for: the relay was ready once, or has no sources.
    pub(crate) fn ask(self: &Arc<Self>, sources: Vec<StartSource>) -> Option<StartReport> {
        let number = self.state().start.ask(sources)?;
        self.changes.send_replace(());
        Some(StartReport::new(self.clone(), number))
    }

    /// Makes the relay ready in any case after this time since its start. `None`: never.
    pub(crate) fn set_ready_after(&self, ready_after: Option<Duration>) {
        self.state().start.set_ready_after(ready_after);
        self.changes.send_replace(());
    }

    /// Notes that the state of an earlier process is loaded, and may be given to new clients.
    pub(crate) fn is_warm(&self) {
        self.state().start.end();
        self.changes.send_replace(());
    }

    /// Starts the part of a new view. What it has from an earlier process counts as answered, because it can serve that before a control
    /// plane responds.
    pub(super) fn view(self: &Arc<Self>, key: &str, answered: BTreeSet<Authority>) -> ViewReadiness {
        let number = self.next_view.fetch_add(1, Ordering::Relaxed);
        ViewReadiness { readiness: self.clone(), number, key: key.into(), answered, reported: Reports::new() }
    }

    /// Makes the relay not ready for the rest of its life.
    pub(crate) fn drain(&self) {
        self.state().drain();
        self.changes.send_replace(());
    }

    /// Whether the relay drains.
    pub(crate) fn is_draining(&self) -> bool {
        self.state().is_draining()
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.load.is_awaited() && self.state().is_ready(Instant::now())
    }

    /// Returns why the relay is not ready: at most `limit` reasons, and how many there are. Strict readiness also counts ladders that are
    /// down.
    pub(crate) fn reasons(&self, strict: bool, limit: usize) -> (Vec<NotReady>, usize) {
        let (mut reasons, mut count) = self.state().reasons(strict, limit, Instant::now());
        if self.load.is_awaited() {
            let at = usize::from(reasons.first() == Some(&NotReady::Draining));
            reasons.insert(at, NotReady::StateNotLoaded);
            reasons.truncate(limit);
            count += 1;
        }
        (reasons, count)
    }

    /// Returns the state of loading what an earlier process had.
    pub(crate) fn load(&self) -> &Arc<StateLoad> {
        &self.load
    }

    /// Returns when readiness differs from `ready`.
    pub(crate) async fn changed_from(&self, ready: bool) {
        let mut changes = self.changes.subscribe();
        loop {
            let awaited = self.load.is_awaited();
            let next = {
                let (mut state, now) = (self.state(), Instant::now());
                if (!awaited && state.is_ready(now)) != ready {
                    return;
                }
                state.next_deadline(now)
            };
            let deadline = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {} // `self` keeps the sender alive
                () = deadline => {}
                () = self.load.changed_from(awaited) => {}
            }
        }
    }

    /// Logs when the relay is ready for the first time. If that takes long, logs before why it is not ready.
    pub(crate) async fn log_start(&self) {
        if tokio::time::timeout(SOON, self.changed_from(false)).await.is_err() {
            let (first, reasons) = self.reasons(false, 1);
            if first.first() == Some(&NotReady::Draining) {
                return;
            }
            let reason = first.first().map(ToString::to_string);
            tracing::warn!(reasons, reason, "relay not ready");
            self.changed_from(false).await;
        }
        tracing::info!("relay ready");
    }

    fn state(&self) -> MutexGuard<'_, ReadinessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewReadiness {
    /// Reports the state of the view's ladders if it has changed. A response of the hub makes no relay ready, since it may have come from disk;
    /// the hub's own view reports what its servers send. `reason` returns the cause of a ladder's state.
    pub(super) fn report<'a>(
        &mut self,
        ladders: impl Iterator<Item = LadderSummary<'a>>,
        down: &BTreeSet<Authority>,
        is_hub: impl Fn(&LadderSummary<'_>) -> bool,
        reason: impl Fn(&LadderSummary<'_>) -> Option<String>,
    ) {
        let (mut responded, mut reports) = (false, Reports::new());
        for ladder in ladders {
            let authority = ladder.authority;
            if matches!(ladder.state, LadderState::Active(_)) && !self.answered.contains(authority) {
                self.answered.insert(authority.clone());
                responded |= !is_hub(&ladder);
            }
            let (answered, down) = (self.answered.contains(authority), down.contains(authority));
            if ladder.state != LadderState::Idle && (!answered || down) {
                let (state, error) = (ladder.state.name(), reason(&ladder));
                reports.insert(authority.clone(), Report { answered, down, state, error });
            }
        }
        self.update(responded, reports);
    }

    fn update(&mut self, responded: bool, reports: Reports) {
        if !responded && reports == self.reported {
            return;
        }
        self.reported.clone_from(&reports);
        let now = Instant::now();
        let mut state = self.readiness.state();
        state.replace(self.number, &self.key, reports, now);
        let ends_start = responded && !state.start.is_over(now);
        if ends_start {
            state.start.end();
        }
        drop(state);
        if ends_start {
            self.readiness.changes.send_replace(());
        }
    }
}

impl Drop for ViewReadiness {
    fn drop(&mut self) {
        self.update(false, Reports::new());
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draining => write!(f, "draining"),
            Self::StateNotLoaded => write!(f, "the state file is being loaded"),
            Self::NoAnswerYet { source: StartSource { name, is_files }, error } => {
                match is_files {
                    true => write!(f, "not read yet: {name}")?,
                    false => write!(f, "no answer from a server yet: {name}")?,
                }
                error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            Self::NoResponseYet(place) => write!(f, "no response from a server yet: {place}"),
            Self::NoServerReachable(place) => write!(f, "no server reachable: {place}"),
        }
    }
}

impl fmt::Display for LadderPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority.name();
        write!(f, "view={} authority={authority:?} state={}", self.view, self.state)?;
        self.error.iter().try_for_each(|error| write!(f, " error={error:?}"))
    }
}

/// How long a relay may take to be ready before that is worth a log line.
const SOON: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;

//! Whether new clients should be sent to this relay: what probes and `grpc.health.v1` report.
//!
//! Readiness is about the start and the end of the process. A relay that has just started has an empty cache, so new clients are better
//! served by one that has been running. It is ready
//!
//! - while every ladder is idle: a relay gets clients only if it is ready, and asks a control plane only for its clients;
//! - while no ladder has waited for its first response for longer than two seconds: if the control plane is up, the first client of a relay
//!   does not change its readiness;
//! - and for good, until it drains, once every ladder that was awake at the first response of all has had one too, is idle again, or a
//!   minute has passed. Ladders that wake later do not count: one tenant or authority without a live server must not take the relay from
//!   all others.
//!
//! It is not ready while what an earlier process had is loaded, and waited for.
//!
//! A ladder keeps its first response for as long as its view lives, so an outage removes no relay from a load balancer. Strict readiness
//! also looks at outages. Readiness does not decide what is served: a relay that is not ready serves what it has.

mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::sources::LadderSummary;
use weir_core::xds::Authority;

use self::state::ReadinessState;
use self::state::{Report, Reports};
use super::state_load::StateLoad;

/// One for the process, shared by its views and the probes.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// Guards itself alone; nothing awaits while it is locked.
    state: Mutex<ReadinessState>,
    changes: watch::Sender<()>,
    next_view: AtomicU64,
    load: Arc<StateLoad>,
}

/// Why a relay is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotReady {
    Draining,
    /// What an earlier process had is on its way from disk.
    StateNotLoaded,
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

impl Readiness {
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

    /// Returns what an earlier process had, as far as it is being loaded.
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

    /// Logs each change until the relay drains.
    pub(crate) async fn log_changes(&self) {
        let mut ready = true;
        loop {
            self.changed_from(ready).await;
            ready = !ready;
            match self.reasons(false, 1) {
                (first, _) if first.first() == Some(&NotReady::Draining) => return,
                (first, reasons) if !ready => {
                    let reason = first.first().map(ToString::to_string);
                    tracing::warn!(reasons, reason, "relay not ready");
                }
                _ => tracing::info!("relay ready"),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ReadinessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewReadiness {
    /// Reports the state of the view's ladders if it has changed. `reason` says why a ladder is where it is.
    pub(super) fn report<'a>(
        &mut self,
        ladders: impl Iterator<Item = LadderSummary<'a>>,
        down: &BTreeSet<Authority>,
        reason: impl Fn(&LadderSummary<'_>) -> Option<String>,
    ) {
        let (mut responded, mut reports) = (false, Reports::new());
        for ladder in ladders {
            let authority = ladder.authority;
            if matches!(ladder.state, LadderState::Active(_)) && !self.answered.contains(authority) {
                self.answered.insert(authority.clone());
                responded = true;
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
        let may_matter = !state.has_started();
        state.replace(self.number, &self.key, reports, now);
        if responded {
            state.on_response(now);
        }
        drop(state);
        if may_matter {
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

#[cfg(test)]
mod tests;

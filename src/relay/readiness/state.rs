//! The state behind readiness, and the rules that follow from it. `now` is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::xds::Authority;

use super::{LadderPlace, NotReady};

/// How long a ladder may wait for its first response before the relay is not ready.
const FIRST_RESPONSE: Duration = Duration::from_secs(2);
/// How long after the first response of any server the other ladders may keep the relay from being ready.
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ReadinessState {
    draining: bool,
    phase: Phase,
    /// By the numbers of the views.
    views: BTreeMap<u64, ReportedView>,
    /// The ladders that keep the relay from being ready, now or once they have waited too long, by the start of their wait. Empty once the
    /// relay has started.
    awaited: BTreeSet<(Instant, u64, Authority)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No server has sent a response.
    #[default]
    Silent,
    /// When the first response of any server came.
    Answered(Instant),
    Started,
}

#[derive(Debug)]
struct ReportedView {
    key: Arc<str>,
    reports: Reports,
    /// Its ladders in `ReadinessState::awaited`.
    awaited: BTreeMap<Authority, Instant>,
}

/// A view's ladders that wait for their first response or are down.
pub(in crate::relay) type Reports = BTreeMap<Authority, Report>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::relay) struct Report {
    pub(crate) answered: bool,
    pub(crate) down: bool,
    pub(crate) state: &'static str,
    pub(crate) error: Option<String>,
}

impl ReadinessState {
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether reports do not matter any more.
    pub(super) fn has_started(&self) -> bool {
        self.phase == Phase::Started
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty() && self.awaited.is_empty()
    }

    /// Replaces the report of a view.
    pub(crate) fn replace(&mut self, number: u64, key: &Arc<str>, reports: Reports, now: Instant) {
        let mut before = self.views.remove(&number).map(|view| view.awaited).unwrap_or_default();
        let mut awaited = BTreeMap::new();
        for (authority, _) in reports.iter().filter(|(_, report)| !report.answered) {
            let since = before.remove(authority).or_else(|| {
                let counts = self.phase == Phase::Silent;
                counts.then(|| self.awaited.insert((now, number, authority.clone()))).map(|_| now)
            });
            awaited.extend(since.map(|since| (authority.clone(), since)));
        }
        for (authority, since) in before {
            self.awaited.remove(&(since, number, authority));
        }
        if !reports.is_empty() {
            self.views.insert(number, ReportedView { key: key.clone(), reports, awaited });
        }
    }

    pub(crate) fn on_response(&mut self, now: Instant) {
        if self.phase == Phase::Silent {
            self.phase = Phase::Answered(now);
        }
    }

    pub(crate) fn is_ready(&mut self, now: Instant) -> bool {
        self.end_start(now);
        !self.draining && self.awaited.first().is_none_or(|(since, ..)| now < *since + FIRST_RESPONSE)
    }

    pub(crate) fn reasons(&mut self, strict: bool, limit: usize, now: Instant) -> (Vec<NotReady>, usize) {
        self.end_start(now);
        let ladders =
            self.views.values().flat_map(|view| view.reports.iter().map(move |(of, report)| (view, of, report)));
        let ladders = ladders.filter_map(|(view, authority, report)| {
            let since = view.awaited.get(authority).filter(|_| self.phase != Phase::Started);
            let overdue = since.is_some_and(|since| *since + FIRST_RESPONSE <= now);
            let place = || LadderPlace {
                view: view.key.clone(),
                authority: authority.clone(),
                state: report.state,
                error: report.error.clone(),
            };
            match overdue {
                true => Some(NotReady::NoResponseYet(place())),
                false => (strict && report.down).then(|| NotReady::NoServerReachable(place())),
            }
        });
        let mut reasons = self.draining.then_some(NotReady::Draining).into_iter().chain(ladders);
        let first: Vec<_> = reasons.by_ref().take(limit).collect();
        let count = first.len() + reasons.count();
        (first, count)
    }

    fn end_start(&mut self, now: Instant) {
        if let Phase::Answered(at) = self.phase
            && (self.awaited.is_empty() || at + START_LIMIT <= now)
        {
            self.phase = Phase::Started;
            self.awaited.clear();
        }
    }

    /// When readiness may change without an event.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let limit = match self.phase {
            Phase::Answered(at) => Some(at + START_LIMIT),
            Phase::Silent | Phase::Started => None,
        };
        let overdue = self.awaited.first().map(|(since, ..)| *since + FIRST_RESPONSE);
        limit.into_iter().chain(overdue).filter(|at| *at > now).min()
    }
}

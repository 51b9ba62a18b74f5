//! The state behind readiness, and the rules that follow from it. `now` is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::xds::Authority;

use super::start::Start;
use super::{LadderPlace, NotReady};

/// How long a ladder may wait for its first response before strict readiness counts it.
const FIRST_RESPONSE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ReadinessState {
    draining: bool,
    pub(super) start: Start,
    /// By the numbers of the views.
    views: BTreeMap<u64, ReportedView>,
}

#[derive(Debug)]
struct ReportedView {
    key: Arc<str>,
    reports: Reports,
    /// Since when ladders wait for their first response.
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
    pub(super) fn new(now: Instant) -> Self {
        Self { draining: false, start: Start::new(now), views: BTreeMap::new() }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Replaces the report of a view.
    pub(crate) fn replace(&mut self, number: u64, key: &Arc<str>, reports: Reports, now: Instant) {
        let before = self.views.remove(&number).map(|view| view.awaited).unwrap_or_default();
        let waiting = reports.iter().filter(|(_, report)| !report.answered);
        let since = |authority: &Authority| before.get(authority).copied().unwrap_or(now);
        let awaited = waiting.map(|(authority, _)| (authority.clone(), since(authority))).collect();
        if !reports.is_empty() {
            self.views.insert(number, ReportedView { key: key.clone(), reports, awaited });
        }
    }

    pub(crate) fn is_ready(&mut self, now: Instant) -> bool {
        self.start.is_over(now) && !self.draining
    }

    pub(crate) fn reasons(&mut self, strict: bool, limit: usize, now: Instant) -> (Vec<NotReady>, usize) {
        let is_over = self.start.is_over(now);
        let of_start = self.start.reasons().filter(|_| !is_over);
        let ladders =
            self.views.values().flat_map(|view| view.reports.iter().map(move |(of, report)| (view, of, report)));
        let ladders = ladders.filter(|_| strict).filter_map(|(view, authority, report)| {
            let is_overdue = view.awaited.get(authority).is_some_and(|since| *since + FIRST_RESPONSE <= now);
            let place = || LadderPlace {
                view: view.key.clone(),
                authority: authority.clone(),
                state: report.state,
                error: report.error.clone(),
            };
            match is_overdue {
                true => Some(NotReady::NoResponseYet(place())),
                false => report.down.then(|| NotReady::NoServerReachable(place())),
            }
        });
        let mut reasons = self.draining.then_some(NotReady::Draining).into_iter().chain(of_start).chain(ladders);
        let first: Vec<_> = reasons.by_ref().take(limit).collect();
        let count = first.len() + reasons.count();
        (first, count)
    }

    /// When readiness may change without an event.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.start.deadline().filter(|at| *at > now)
    }
}

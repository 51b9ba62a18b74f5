//! Questions of operators to a view: each is a function that reads the view in its task, between two events, and changes nothing.

mod metrics;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::link::SharedConnector;
use super::links::Links;
use super::report::{DanglingClusters, OrderMetrics, SetBrakeReport, ViewSessions, ViewSnapshot, ViewWaits};
use super::subscriber::Subscribers;
use super::views::FromDisk;
use crate::protocol::moment::Moment;
use crate::protocol::sources::Sources;
use crate::protocol::view::{BrakeReport, Selector, View};
use crate::protocol::wait::{Wait, WaitList};
use crate::xds::{Name, Type, TypeTable, WILDCARD};

/// A view as it is now.
pub(super) struct Inspection<'a> {
    pub(super) view_id: &'a str,
    /// The node fields that form the sharing key.
    pub(super) made_from: &'a BTreeMap<String, String>,
    pub(super) metric_label: Option<Arc<str>>,
    pub(super) view: &'a View,
    pub(super) sources: &'a Sources,
    pub(super) links: &'a Links,
    /// By the servers' places in the plan.
    pub(super) connectors: &'a [SharedConnector],
    pub(super) from_disk: &'a FromDisk,
    pub(super) sessions: &'a Subscribers,
    /// How many sessions are blocked without a time limit.
    pub(super) blocked: usize,
    pub(super) order_metrics: OrderMetrics,
    pub(super) table: &'a TypeTable,
    pub(super) now: Moment,
}

impl Inspection<'_> {
    /// Returns the name of a server. Restored removals may be of one that is not in the configuration any more.
    pub(super) fn server_name(&self, server: u16) -> String {
        self.connectors.get(usize::from(server)).map_or_else(|| "unknown".into(), |server| server.describe())
    }

    fn server_names(&self) -> Vec<String> {
        self.connectors.iter().map(|connector| connector.describe()).collect()
    }

    /// Returns the published snapshot, for what takes longer than a look.
    pub(super) fn snapshot(&self) -> ViewSnapshot {
        let (view, snapshot) = (self.view_id.to_owned(), self.view.snapshot().clone());
        ViewSnapshot { view, snapshot, servers: self.server_names().into(), now: self.now }
    }

    /// Returns the sessions, to count the answers of their clients elsewhere.
    pub(super) fn sessions(&self) -> ViewSessions {
        let sessions = self.sessions.values().map(|session| session.answers()).collect();
        ViewSessions { view: self.view_id.to_owned(), sessions, now: self.now }
    }

    /// Returns the clusters that routing refers to and the view lacks.
    pub(super) fn dangling(&self) -> DanglingClusters {
        let clusters = self.view.holds().dangling().take(MAX_DANGLING);
        let clusters = clusters.map(|(name, since)| (name.clone(), (self.now - since).as_secs())).collect();
        DanglingClusters { view: self.view_id.to_owned(), clusters, state: self.view.snapshot().clone() }
    }

    /// Returns all waits but those of sessions, with so many of the oldest.
    pub(super) fn waits(&self, limit: usize) -> ViewWaits {
        let list = self.add_waits(WaitList::keeping(limit));
        ViewWaits { view: self.view_id.to_owned(), servers: self.server_names(), list }
    }

    /// Returns the waits that concern a name.
    fn waits_of(&self, kind: &Type, name: &Name) -> Vec<Wait> {
        self.add_waits(WaitList::about(kind, name)).into_oldest()
    }

    fn add_waits(&self, mut list: WaitList) -> WaitList {
        self.sources.add_waits(self.view, self.now, &mut list);
        self.view.holds().add_waits(self.now, &mut list);
        list
    }

    /// Returns what the brakes hold.
    pub(super) fn brakes(&self) -> Vec<SetBrakeReport> {
        let report = |brake: BrakeReport| {
            let seconds = |at: Moment| (at - self.now).as_secs();
            SetBrakeReport {
                view: self.view_id.to_owned(),
                type_name: brake.kind.name().to_owned(),
                set: match &brake.of {
                    Selector::Wildcard => WILDCARD.to_owned(),
                    Selector::Name(glob) => glob.to_string(),
                },
                servers: brake.servers.iter().map(|server| self.server_name(*server)).collect(),
                seconds: (self.now - brake.since).as_secs(),
                generation: brake.generation,
                held: brake.held,
                of: brake.start_size,
                changes: brake.changes,
                reason: if brake.is_emptied { "the set would be empty" } else { "too much of the set would go" },
                first_release_seconds: brake.release.map(|(first, _)| seconds(first)),
                last_release_seconds: brake.release.map(|(_, last)| seconds(last)),
                names: brake.names.iter().map(ToString::to_string).collect(),
            }
        };
        self.view.holds().brakes(MAX_HELD).into_iter().map(report).collect()
    }
}

/// The largest number of dangling clusters in a report.
const MAX_DANGLING: usize = 1_000;
/// How many held names of a set are shown.
const MAX_HELD: usize = 20;

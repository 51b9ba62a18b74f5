//! Questions of operators to a view: each is a function that reads the view in its task, between two events, and changes nothing.

mod audit;
mod metrics;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::protocol::members::Members;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::Sources;
use weir_core::protocol::view::{BrakeReport, Class, Lookup, Selector, View};
use weir_core::protocol::wait::{Wait, WaitList};
use weir_core::xds::{Name, Type, WILDCARD};

pub(super) use self::audit::{
    AuditSubject, AuditedSide, are_shown_and_present, audit_subject, audited_side, is_finding_over,
};
pub(super) use self::metrics::metrics;
pub(super) use self::report::{explain, report};
use super::links::Links;
use super::metric_labels::MetricLabel;
use super::published::FromDisk;
use super::report::{DanglingClusters, OrderMetrics, SetBrakeReport, ViewSessions, ViewSnapshot, ViewWaits};
use super::shared::Shared;
use super::subscriber::Subscribers;
use crate::view_words::view_words;

/// What is known of a view from its start.
pub(super) struct ViewFacts {
    pub(super) view_id: Arc<str>,
    pub(super) is_hub: bool,
    pub(super) metric_label: MetricLabel,
    /// The node fields that form the sharing key.
    pub(super) key_fields: BTreeMap<String, String>,
    /// The encoded node that servers are shown, unless they are shown the node of a client.
    pub(super) node: Bytes,
    /// What was loaded for the view from disk.
    pub(super) from_disk: FromDisk,
}

impl ViewFacts {
    /// Returns the description of the view for operators.
    pub(super) fn words(&self) -> String {
        if self.is_hub {
            return self.view_id.to_string();
        }
        view_words(self.key_fields.iter().map(|(field, value)| (&**field, &**value)))
    }
}

/// A view as it is now.
pub(super) struct Inspection<'a> {
    pub(super) facts: &'a ViewFacts,
    pub(super) view: &'a View,
    pub(super) sources: &'a Sources,
    pub(super) links: &'a Links,
    pub(super) sessions: &'a Subscribers,
    /// The clients that servers may be shown, and the one that they are shown.
    pub(super) members: &'a Members,
    /// How many sessions are blocked without a time limit.
    pub(super) blocked: usize,
    pub(super) order_metrics: OrderMetrics,
    pub(super) shared: &'a Shared,
    pub(super) now: Moment,
}

/// Returns the published snapshot, for work that takes longer than one question.
pub(super) fn snapshot(of: &Inspection<'_>) -> ViewSnapshot {
    let (view, snapshot) = (of.facts.view_id.to_string(), of.view.snapshot().clone());
    ViewSnapshot { view, snapshot, servers: of.links.servers().collect(), now: of.now }
}

/// Returns the sessions, so that the answers of their clients can be counted outside of the task.
pub(super) fn sessions(of: &Inspection<'_>) -> ViewSessions {
    ViewSessions { view: of.facts.view_id.to_string(), sessions: of.sessions.answers(), now: of.now }
}

/// Returns the clusters that routing refers to and the view lacks.
pub(super) fn dangling(of: &Inspection<'_>) -> DanglingClusters {
    let clusters = of.view.holds().dangling().take(MAX_DANGLING);
    let clusters = clusters.map(|(name, since)| (name.clone(), (of.now - since).as_secs())).collect();
    DanglingClusters { view: of.facts.view_id.to_string(), clusters, state: of.view.snapshot().clone() }
}

/// Returns the name of the view and the fields of its key as text, if a resource is present in the view.
pub(super) fn words_if_present(of: &Inspection<'_>, kind: &Type, name: &Name) -> Option<(String, String)> {
    let state = of.view.snapshot();
    let mut found = [Class::Wildcard, Class::Named].into_iter().map(|class| state.lookup(kind, class, name));
    found.any(|found| matches!(found, Lookup::Present(_))).then(|| {
        let stated = of.facts.key_fields.iter().filter(|(_, value)| !value.is_empty());
        let words: Vec<_> = stated.map(|(field, value)| format!("{field}={value}")).collect();
        (of.facts.view_id.to_string(), words.join(" "))
    })
}

/// Returns all waits except those of sessions, with so many of the oldest.
pub(super) fn waits(of: &Inspection<'_>, limit: usize) -> ViewWaits {
    let list = add_waits(of, WaitList::keeping(limit));
    ViewWaits { view: of.facts.view_id.to_string(), servers: of.links.servers().collect(), list }
}

/// Returns the waits that concern a name.
fn waits_of(of: &Inspection<'_>, kind: &Type, name: &Name) -> Vec<Wait> {
    add_waits(of, WaitList::about(kind, name)).into_oldest()
}

fn add_waits(of: &Inspection<'_>, mut list: WaitList) -> WaitList {
    of.sources.add_waits(of.view, of.now, &mut list);
    of.view.holds().add_waits(of.now, &mut list);
    list
}

/// Returns what the brakes hold.
pub(super) fn brakes(of: &Inspection<'_>) -> Vec<SetBrakeReport> {
    let report = |brake: BrakeReport| {
        let seconds = |at: Moment| (at - of.now).as_secs();
        SetBrakeReport {
            view: of.facts.view_id.to_string(),
            type_name: brake.kind.name().to_owned(),
            set: match &brake.of {
                Selector::Wildcard => WILDCARD.to_owned(),
                Selector::Name(glob) => glob.to_string(),
            },
            servers: brake.servers.iter().map(|server| of.links.server_name(*server)).collect(),
            seconds: (of.now - brake.since).as_secs(),
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
    of.view.holds().brakes(MAX_HELD).into_iter().map(report).collect()
}

/// The largest number of dangling clusters in a report.
const MAX_DANGLING: usize = 1_000;
/// How many held names of a set are shown.
const MAX_HELD: usize = 20;

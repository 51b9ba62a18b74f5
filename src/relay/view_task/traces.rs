//! The changes of a view that are traced, from the receipt of their responses until they are published.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;
use weir_core::protocol::upstream::ResponseSummary;
use weir_core::protocol::view::{NameChanged, Notifications, Revision, SessionId, View};
use weir_core::xds::Type;
use weir_core::xds::truncate;

use crate::relay::counters::ProcessCounters;
use crate::relay::links::Links;
use crate::relay::subscriber::Subscribers;
use crate::relay::traces::{ChangeFacts, OpenChange, SpanIds, SpanTime, Tracer};

pub(super) struct TracedChanges {
    counters: Arc<ProcessCounters>,
    /// The response that is being applied, if it is sampled.
    response: Option<TracedResponse>,
    /// Those that have changed something.
    changes: Vec<TracedChange>,
}

struct TracedResponse {
    tracer: Arc<Tracer>,
    ids: SpanIds,
    time: SpanTime,
    server: usize,
    summary: ResponseSummary,
}

pub(super) struct TracedChange {
    response: TracedResponse,
    /// The last revisions before it and in it.
    revisions: (Revision, Revision),
    /// Sessions of `*` that it concerns.
    wildcard: BTreeSet<SessionId>,
}

impl TracedChanges {
    pub(super) fn of(counters: Arc<ProcessCounters>) -> Self {
        Self { counters, response: None, changes: Vec::new() }
    }

    /// A response is about to be applied.
    pub(super) fn begin(&mut self, server: usize, summary: impl FnOnce() -> ResponseSummary, received: Instant) {
        self.response = self.counters.traces.sample().map(|(tracer, ids)| TracedResponse {
            tracer: tracer.clone(),
            ids,
            time: SpanTime::since(received),
            server,
            summary: summary(),
        });
    }

    /// The response was applied, between two revisions.
    pub(super) fn note(&mut self, before: Revision, after: Revision) {
        if let Some(response) = self.response.take().filter(|_| before != after) {
            self.changes.push(TracedChange { response, revisions: (before, after), wildcard: BTreeSet::new() });
        }
    }

    /// Takes the changes that the view is about to publish.
    pub(super) fn take(&mut self, view: &View) -> Vec<TracedChange> {
        let mut changes = std::mem::take(&mut self.changes);
        for change in &mut changes {
            change.wildcard = view.changed_wildcard_sessions(&change.response.summary.kind).collect();
        }
        changes
    }
}

/// Lets the sessions that traced changes concern count them. To be called before they can read the snapshot.
pub(super) fn trace_changes(
    changes: Vec<TracedChange>,
    wakes: &Notifications,
    sessions: &Subscribers,
    view_id: &str,
    links: &Links,
) {
    let concerned = concerned_by(&changes, wakes);
    for (TracedChange { response, revisions: (_, after), .. }, concerned) in changes.into_iter().zip(concerned) {
        let TracedResponse { tracer, ids, time, server, summary } = response;
        let ResponseSummary { kind, version, bytes, resources, removed } = summary;
        let version = truncate(&version, VERSION_BYTES);
        let sessions = sessions.that_answer(&concerned);
        let (view, server) = (view_id.to_owned(), links.server(server));
        let facts = ChangeFacts { view, server, kind, version, bytes, resources, removed, revision: after };
        let change = Arc::new(OpenChange::new(ids, time, facts, sessions.len()));
        sessions.iter().for_each(|session| session.on_traced_change(&change));
        tracer.add(change);
    }
}

/// Returns the sessions that each change concerns. The changes have revisions of their own, in ascending order.
fn concerned_by(changes: &[TracedChange], wakes: &Notifications) -> Vec<BTreeSet<SessionId>> {
    let mut concerned: Vec<_> = changes.iter().map(|change| change.wildcard.clone()).collect();
    if changes.is_empty() {
        return concerned;
    }
    let revisions: Vec<_> = changes.iter().map(|change| (change.revisions, &change.response.summary.kind)).collect();
    for (session, names) in &wakes.0 {
        for place in names.iter().filter_map(|name| place_of(&revisions, name)) {
            concerned[place].insert(*session);
        }
    }
    concerned
}

/// Returns the index of the change that changed a name. Each change has two revisions: the last one before it, and the last one in it.
fn place_of(changes: &[((Revision, Revision), &Type)], name: &NameChanged) -> Option<usize> {
    let place = changes.partition_point(|((_, last), _)| *last < name.revision);
    let ((before, _), kind) = changes.get(place)?;
    (*before < name.revision && **kind == name.kind).then_some(place)
}

/// How much of a version is traced: a server decides how long it is.
const VERSION_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use weir_core::xds::TypeTable;

    use super::*;

    #[test]
    fn a_name_belongs_to_the_change_whose_revisions_its_own_is_among() {
        let table = TypeTable::new();
        let (one, other) = (table.resolve("one"), table.resolve("other"));
        let at = |number| (0..number).fold(Revision::ZERO, |revision, _| revision.next());
        // The third revision is of a response that is not sampled.
        let changes = [((at(0), at(2)), &one), ((at(3), at(4)), &one)];
        let of = |kind: &Type, number| {
            let (kind, name, revision) = (kind.clone(), "a".into(), at(number));
            place_of(&changes, &NameChanged { kind, name, revision, is_absent: false, claimed: None })
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|number| of(&one, number)), [None, Some(0), Some(0), None, Some(1), None]);
        assert_eq!([1, 4].map(|number| of(&other, number)), [None; 2]);
    }
}

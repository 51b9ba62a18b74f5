//! The types for which a view's servers are not asked: who hears of that, and what is logged of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_core::protocol::sources::Sources;
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{InterestChange, SessionId, View};
use weir_core::xds::Type;

use super::reports::ViewReporter;
use crate::relay::links::Links;
use crate::relay::published::{Published, TypesApart};
use crate::relay::subscriber::Subscribers;

/// What is known of them, as it was last passed on.
#[derive(Default)]
pub(super) struct NotedTypes(Arc<TypesApart>);

impl NotedTypes {
    /// A session has changed what it subscribes to. It hears at once of a type that is refused.
    pub(super) fn on_interest(&self, session: SessionId, changes: &[InterestChange], sessions: &Subscribers) {
        for change in changes.iter().filter(|change| change.on) {
            if let Some(Some(status)) = self.0.get(&change.kind) {
                sessions.refuse_type(&BTreeSet::from([session]), &change.kind, status);
            }
        }
    }

    /// Passes on what has changed: to the sessions that subscribe to the type, to reports and to the log.
    pub(super) fn follow(
        &mut self,
        sources: &Sources,
        view: &View,
        (links, sessions): (&Links, &Subscribers),
        published: &Published,
        reporter: &ViewReporter,
    ) {
        let active: BTreeSet<usize> = sources.ladders().filter_map(|ladder| ladder.server).collect();
        let mut found = TypesApart::new();
        for (id, stream) in sources.streams().filter(|(id, _)| active.contains(&id.server)) {
            for (kind, status) in stream.types_apart() {
                let known = self.0.get(kind).cloned().flatten();
                let status = status.map(|status| match known.filter(|known| **known == *status) {
                    Some(known) => known,
                    None => Arc::new(status.clone()),
                });
                if let Some(status) = status.as_ref().filter(|status| !self.is_noted(kind, status)) {
                    let clients = view.wants().sessions(kind);
                    reporter.report_refused(&links.server(id.server), kind, status, clients.len());
                    sessions.refuse_type(&clients, kind, status);
                }
                found.insert(kind.clone(), status);
            }
        }
        if *self.0 != found {
            self.0 = Arc::new(found);
            published.note_types_apart(self.0.clone());
        }
    }

    fn is_noted(&self, kind: &Type, status: &Arc<ServerStatus>) -> bool {
        self.0.get(kind).is_some_and(|known| known.as_ref() == Some(status))
    }
}

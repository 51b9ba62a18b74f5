//! The types for which a view's servers are not asked: who hears of that, and what is logged of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::protocol::sources::Sources;
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{InterestChange, Selector, SessionId, View};
use weir_core::xds::{Authority, Type};

use super::reports::ViewReporter;
use crate::relay::links::Links;
use crate::relay::published::Published;
use crate::relay::subscriber::Subscribers;

/// The types as they were last passed on, for each authority by its active server. A type that the server refuses has its status.
#[derive(Default)]
pub(super) struct NotedTypes(BTreeMap<(Type, Authority), Option<Arc<ServerStatus>>>);

impl NotedTypes {
    /// A session has changed what it subscribes to. It hears at once of a type that is refused.
    pub(super) fn on_interest(
        &self,
        session: SessionId,
        changes: &[InterestChange],
        view: &View,
        sessions: &Subscribers,
    ) {
        if self.0.is_empty() {
            return;
        }
        let of = |change: &InterestChange| match &change.selector {
            Selector::Wildcard => (change.kind.clone(), Authority::TopLevel),
            Selector::Name(name) => (change.kind.clone(), Authority::of(name)),
        };
        let changed: BTreeSet<_> = changes.iter().filter(|change| change.on).map(of).collect();
        for of in changed {
            if let Some(Some(status)) = self.0.get(&of)
                && !has_any(view, &of.0)
            {
                sessions.refuse_type(&BTreeSet::from([session]), &of.0, status);
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
        let found = found(sources);
        if found.is_empty() && self.0.is_empty() {
            return;
        }
        let mut noted = BTreeMap::new();
        for ((kind, authority), (server, status)) in found {
            let key = (kind.clone(), authority.clone());
            let known = self.0.get(&key).cloned().flatten();
            let is_known = known.as_deref() == status;
            let status = if is_known { known } else { status.cloned().map(Arc::new) };
            if let Some(status) = status.as_ref().filter(|_| !is_known) {
                let clients = view.wants().sessions(kind, authority);
                reporter.report_refused(&links.server(server), kind, status, clients.len());
                if !has_any(view, kind) {
                    sessions.refuse_type(&clients, kind, status);
                }
            }
            noted.insert(key, status);
        }
        if self.0 != noted {
            let mut types = BTreeMap::<_, Option<_>>::new();
            for ((kind, _), status) in &noted {
                let of = types.entry(kind.clone()).or_default();
                *of = of.take().or_else(|| status.clone());
            }
            published.note_types_apart(Arc::new(types));
            self.0 = noted;
        }
    }
}

type Found<'a> = BTreeMap<(&'a Type, &'a Authority), (usize, Option<&'a ServerStatus>)>;

/// Returns the types apart at the active server of each authority. Of the streams to one server, one that was refused the type counts.
fn found(sources: &Sources) -> Found<'_> {
    let mut found = Found::new();
    for ladder in sources.ladders() {
        let Some(server) = ladder.server else { continue };
        for (_, stream) in sources.streams().filter(|(id, _)| id.server == server) {
            for (kind, status) in stream.types_apart() {
                let of = found.entry((kind, ladder.authority)).or_insert((server, None));
                of.1 = of.1.or(status);
            }
        }
    }
    found
}

/// Whether anything of a type is cached. Then a refusal ends no stream: what is there is served.
fn has_any(view: &View, kind: &Type) -> bool {
    [true, false].into_iter().any(|wildcard| view.tables().held(kind, wildcard) > 0)
}

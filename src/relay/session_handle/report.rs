//! The reports of a session for the admin address, and what it knows of one resource.

use std::collections::BTreeMap;

use super::SessionHandle;
use super::transit::Obstruction;
use crate::protocol::moment::Moment;
use crate::protocol::session::{Differences, Known, Summary, similar_to};
use crate::protocol::view::Class;
use crate::protocol::wait::WaitList;
use crate::relay::command::ask;
use crate::relay::inspection::Inspection;
use crate::relay::report::{
    AnswersSource, Census, ClientHoldings, ClientReport, ClientTypeReport, DifferenceReport, HoldingsSource,
    NackCounts, SessionBook, SyncState, TypeDifference, TypeGlance, WaitReport,
};
use crate::xds::{Name, Type};

impl SessionHandle {
    /// Puts a question to the view of this session.
    pub(in crate::relay) async fn ask_view<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Inspection<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        ask(&self.commands, question).await
    }

    pub(crate) fn report(&self) -> ClientReport {
        let newest = self.published.newest();
        let now = self.clock.now();
        let session = self.lock();
        let types: Vec<_> = session.report().summaries(&newest, now).map(|of| type_report(&of, now)).collect();
        let unsupported_requests = session.unsupported_requests();
        drop(session);
        let unread = self.transit.get().filter(|(what, _)| *what == Obstruction::Unread);
        ClientReport {
            session: self.id.0,
            peer: self.peer.to_string(),
            identity: self.peer.identity(),
            node: self.node_id.clone(),
            user_agent: self.user_agent.to_string(),
            view: self.key.clone(),
            variant: self.variant.name(),
            connected_seconds: (now - self.connected).as_secs(),
            state: types.iter().map(|of| of.state).max().unwrap_or(SyncState::Synced),
            behind_seconds: types.iter().filter_map(|of| of.behind_seconds).max_by(f64::total_cmp),
            unread_seconds: unread.map(|(_, since)| (now - since).as_secs_f64()),
            unsupported_requests,
            types,
        }
    }
}

impl SessionHandle {
    /// Counts the client. Nothing is allocated for it.
    pub(in crate::relay) fn count_in(&self, census: &mut Census) {
        let newest = self.published.newest();
        let now = self.clock.now();
        let session = self.lock();
        let types = session.report().summaries(&newest, now).map(|of| TypeGlance {
            kind: of.kind,
            state: state_of(&of),
            has_unsent: of.has_unsent,
            behind_since: of.behind_since,
        });
        census.add(self.id.0, &self.key, types, now);
    }

    /// Adds what waits for the client.
    pub(in crate::relay) fn add_waits(&self, report: &mut WaitReport) {
        let now = self.clock.now();
        let mut list = report.list();
        self.lock().add_waits(now, &mut list);
        report.add(&self.key, Some(self.id.0), &[], list);
    }

    /// Compares what the client was sent with what there is for it.
    pub(crate) fn differences(&self) -> DifferenceReport {
        let newest = self.published.newest();
        let session = self.lock();
        let answers: BTreeMap<_, _> = session.report().answers().map(|answers| (answers.kind, answers)).collect();
        let of_type = |(kind, of): (&Type, Differences)| {
            let answers = answers.get(kind);
            let nack = answers.and_then(|answers| answers.nack);
            TypeDifference {
                kind: kind.name().to_owned(),
                missing: of.missing.into(),
                outdated: of.outdated.into(),
                surplus: of.surplus.into(),
                unknown: of.unknown.into(),
                unacked_version: answers.filter(|of| of.is_pending).map(|of| of.newest.version.to_string()),
                nacked_version: nack.map(|nack| nack.reply.version.to_string()),
                suspected: nack.iter().flat_map(|nack| nack.suspects()).map(ToString::to_string).collect(),
                acked_version: answers.and_then(|of| of.accepted).map(|accepted| accepted.version.to_string()),
            }
        };
        let types = session.report().differences(&newest, MAX_NAMES, self.clock.now()).map(of_type).collect();
        DifferenceReport { session: self.id.0, node: self.node_id.clone(), view: self.key.clone(), types }
    }
}

/// How many names of a list are shown.
const MAX_NAMES: usize = 100;

fn state_of(of: &Summary) -> SyncState {
    let is_unanswered = of.newest.is_some_and(|(_, is_unanswered)| is_unanswered);
    let wants_any = of.wildcard || of.names > 0;
    match of.newest {
        _ if of.nacked => SyncState::Nacked,
        None if wants_any => SyncState::NotSent,
        _ if is_unanswered || of.has_unsent => SyncState::Stale,
        _ => SyncState::Synced,
    }
}

fn type_report(of: &Summary, now: Moment) -> ClientTypeReport {
    ClientTypeReport {
        kind: of.kind.name().to_owned(),
        state: state_of(of),
        wildcard: of.wildcard,
        names: of.names,
        pending: of.pending,
        waits_for: of.delay.map(|delay| delay.reason.name()),
        sent_version: of.newest.map(|(newest, _)| newest.version.to_string()),
        sent_seconds: of.newest.map(|(newest, _)| (now - newest.sent).as_secs_f64()),
        acked_version: of.accepted.map(|accepted| accepted.version.to_string()),
        behind_seconds: of.behind_since.map(|since| (now - since).as_secs_f64()),
        last_nack: of.last_nack.map(|nack| nack.message.to_string()),
        nacked: of.nacked,
    }
}

impl HoldingsSource for SessionHandle {
    fn node_id(&self) -> &str {
        &self.node_id
    }

    fn holdings(&self) -> ClientHoldings {
        let holdings = self.lock().report().holdings();
        let snapshot = self.published.newest(); // after what was sent, so no older
        ClientHoldings {
            session: self.id.0,
            node_id: self.node_id.clone(),
            peer: self.peer.to_string(),
            view: self.key.clone(),
            holdings,
            snapshot,
            now: self.clock.now(),
        }
    }
}

impl AnswersSource for SessionHandle {
    fn count(&self, into: &mut NackCounts) {
        self.lock().report().answers().for_each(|answers| into.add(&answers, &self.node_id, &self.user_agent));
    }
}

impl SessionHandle {
    /// Returns what the session knows of a name.
    pub(crate) fn explain(&self, kind: &Type, name: &Name) -> SessionBook {
        let newest = self.published.newest();
        let now = self.clock.now();
        let session = self.lock();
        let book = session.report().explain(kind, name, &newest, now);
        let mut waits = WaitList::about(kind, name);
        session.add_waits(now, &mut waits);
        drop(session);
        let similar = match book.known {
            Known::Present { .. } => None,
            Known::Unknown | Known::Absent { .. } => {
                let tables =
                    [Class::Wildcard, Class::Named].into_iter().filter_map(|class| newest.resources(kind, class));
                similar_to(name, tables.flat_map(|table| table.present_names()))
            }
        };
        SessionBook { now, name: book, obstruction: self.transit.get(), similar, waits: waits.into_oldest() }
    }
}

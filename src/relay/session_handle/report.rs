//! The reports of a session for the admin address, and what it knows of one resource.

use std::collections::BTreeMap;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Differences, Summary};
use weir_core::protocol::view::Class;
use weir_core::protocol::wait::WaitList;
use weir_core::xds::{Name, Type, WILDCARD};

use super::SessionHandle;
use super::transit::Blocker;
use crate::relay::published::TypesApart;
use crate::relay::report::{
    AnswersSource, Census, ClientHoldings, ClientReport, ClientTypeReport, DifferenceReport, HoldingsSource,
    NackCounts, SessionExplanation, SetExplanation, SyncState, TypeDifference, TypeGlance, WaitReport,
};

/// Returns what `/clients` shows of a client.
pub(in crate::relay) fn report(handle: &SessionHandle) -> ClientReport {
    let (newest, client) = (handle.newest(), handle.client());
    let (now, apart) = (handle.clock().now(), handle.place.published.types_apart());
    let (types, unsupported_requests) = handle.look(|session| {
        let types: Vec<_> = session.report().summaries(&newest, now).map(|of| type_report(&of, &apart, now)).collect();
        (types, session.unsupported_requests())
    });
    let unread = handle.obstruction().filter(|(what, _)| *what == Blocker::Unread);
    ClientReport {
        session: client.id.0,
        peer: client.peer.to_string(),
        identity: client.peer.identity(),
        node: client.node_id.clone(),
        user_agent: client.user_agent.to_string(),
        view: client.key.clone(),
        variant: client.variant.name(),
        connected_seconds: (now - client.connected).as_secs(),
        state: types.iter().map(|of| of.state).max().unwrap_or(SyncState::Synced),
        behind_seconds: types.iter().filter_map(|of| of.behind_seconds).max_by(f64::total_cmp),
        unread_seconds: unread.map(|(_, since)| (now - since).as_secs_f64()),
        unsupported_requests,
        types,
    }
}

/// Counts the client. Nothing is allocated for it.
pub(in crate::relay) fn count_in(handle: &SessionHandle, census: &mut Census) {
    let (newest, client) = (handle.newest(), handle.client());
    let (now, apart) = (handle.clock().now(), handle.place.published.types_apart());
    handle.look(|session| {
        let types = session.report().summaries(&newest, now).map(|of| TypeGlance {
            kind: of.kind,
            state: state_of(&of, &apart),
            has_unsent: of.has_unsent,
            behind_since: of.behind_since,
        });
        census.add(client.id.0, &client.key, types, now);
    });
}

/// Adds the waits of the client.
pub(in crate::relay) fn add_waits(handle: &SessionHandle, report: &mut WaitReport) {
    let (now, client) = (handle.clock().now(), handle.client());
    let mut list = report.list();
    handle.look(|session| session.add_waits(now, &mut list));
    report.add(&client.key, Some(client.id.0), &[], list);
}

/// Compares what the client was sent with the present state for it.
pub(in crate::relay) fn differences(handle: &SessionHandle) -> DifferenceReport {
    let (newest, client) = (handle.newest(), handle.client());
    let types = handle.look(|session| {
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
        session.report().differences(&newest, MAX_NAMES, handle.clock().now()).map(of_type).collect()
    });
    DifferenceReport { session: client.id.0, node: client.node_id.clone(), view: client.key.clone(), types }
}

/// Returns what the session knows of a name.
pub(in crate::relay) fn explain(handle: &SessionHandle, kind: &Type, name: &Name) -> SessionExplanation {
    let newest = handle.newest();
    let now = handle.clock().now();
    let mut waits = WaitList::about(kind, name);
    let book = handle.look(|session| {
        session.add_waits(now, &mut waits);
        session.report().explain(kind, name, &newest, now)
    });
    let present = newest.resources(kind, Class::Wildcard).filter(|_| book.completeness.is_some());
    let present = present.map_or(0, |table| table.present());
    SessionExplanation { now, name: book, obstruction: handle.obstruction(), present, waits: waits.into_oldest() }
}

/// Returns what the session knows of the wildcard set of a type.
pub(in crate::relay) fn explain_set(handle: &SessionHandle, kind: &Type) -> SetExplanation {
    let (newest, now) = (handle.newest(), handle.clock().now());
    let table = newest.resources(kind, Class::Wildcard);
    let mut waits = WaitList::about(kind, &Name::from(WILDCARD));
    let (summary, differences, answer) = handle.look(|session| {
        session.add_waits(now, &mut waits);
        let report = session.report();
        let summary = report.summaries(&newest, now).find(|of| of.kind == kind);
        let summary = summary.map(|of| (of.wildcard, of.delay.cloned()));
        let differences = report.differences(&newest, MAX_SET_NAMES, now).find(|(of, _)| *of == kind);
        (summary, differences.map(|(_, of)| of).unwrap_or_default(), report.set_answer(kind, &newest, now))
    });
    SetExplanation {
        now,
        is_requested: summary.is_some(),
        is_subscribed: summary.as_ref().is_some_and(|(wildcard, _)| *wildcard),
        completeness: table.map(|table| table.coverage().completeness()).unwrap_or_default(),
        present: table.map_or(0, |table| table.present_names().count()),
        differences,
        answer,
        delay: summary.and_then(|(_, delay)| delay),
        obstruction: handle.obstruction(),
        waits: waits.into_oldest(),
    }
}

/// How many names of the list of a set are shown.
const MAX_SET_NAMES: usize = 5;
/// How many names of a list are shown.
const MAX_NAMES: usize = 100;

fn state_of(of: &Summary, apart: &TypesApart) -> SyncState {
    let is_unanswered = of.newest.is_some_and(|(_, is_unanswered)| is_unanswered);
    let wants_any = of.wildcard || of.names > 0;
    match of.newest {
        _ if of.nacked => SyncState::Nacked,
        _ if wants_any && matches!(apart.get(of.kind), Some(Some(_))) => SyncState::Refused,
        None if wants_any && apart.contains_key(of.kind) => SyncState::NotAsked,
        None if wants_any => SyncState::NotSent,
        _ if is_unanswered || of.has_unsent => SyncState::Stale,
        _ => SyncState::Synced,
    }
}

fn type_report(of: &Summary, apart: &TypesApart, now: Moment) -> ClientTypeReport {
    ClientTypeReport {
        kind: of.kind.name().to_owned(),
        state: state_of(of, apart),
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
        &self.client().node_id
    }

    fn holdings(&self) -> ClientHoldings {
        let (holdings, client) = (self.look(|session| session.report().holdings()), self.client());
        let snapshot = self.newest(); // after what was sent, so no older
        ClientHoldings {
            session: client.id.0,
            node_id: client.node_id.clone(),
            peer: client.peer.to_string(),
            view: client.key.clone(),
            holdings,
            snapshot,
            now: self.clock().now(),
        }
    }
}

impl AnswersSource for SessionHandle {
    fn count(&self, into: &mut NackCounts) {
        let client = self.client();
        self.look(|session| {
            session.report().answers().for_each(|answers| into.add(&answers, &client.node_id, &client.user_agent));
        });
    }
}

//! The report of a view for the admin address, with the names that are wanted and not cached, and what is known of one name.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_core::protocol::local_set::LocalSet;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::StreamId;
use weir_core::protocol::upstream::{Stream, TypePlace, TypeSummary};
use weir_core::protocol::view::{Selector, View};
use weir_core::xds::{Authority, Name, Type, WILDCARD};

use super::{Inspection, waits_of};
use crate::relay::links::LinkFacts;
use crate::relay::report::{
    AuthorityReport, FromDiskReport, LadderExplanation, MissingReport, RejectedReport, ServerExplanation, StreamReport,
    SyncState, TypeReport, ViewExplanation, ViewReport, completeness_name,
};

fn type_report(of: &TypeSummary, rejected: (Vec<RejectedReport>, usize), view: &View) -> TypeReport {
    let (rejected, rejected_count) = rejected;
    let completeness = || completeness_name(view.tables().completeness_of(of.kind, &Selector::Wildcard));
    let (state, refusal) = match of.place {
        TypePlace::OnStream => ("REQUESTED", None),
        TypePlace::NotAsked => (SyncState::NotAsked.name(), None),
        TypePlace::Refused(status) => (SyncState::Refused.name(), Some(status.to_string())),
    };
    TypeReport {
        kind: of.kind.name().to_owned(),
        state,
        refusal,
        wildcard: of.wildcard,
        names: of.names,
        names_left_out: of.left_out,
        cached: view.tables().held(of.kind, of.wildcard),
        completeness: of.wildcard.then(completeness),
        requested_again: of.asked_again,
        name_mismatches: of.misnamed,
        rejected,
        rejected_count,
    }
}

/// Returns the rejected resources of a type, up to a limit, and how many there are.
fn rejected_of_type(stream: &Stream, of: &TypeSummary) -> (Vec<RejectedReport>, usize) {
    let unnamed = of.unnamed.map(|reason| RejectedReport { name: None, version: None, reason: reason.to_string() });
    let count = of.rejected + usize::from(unnamed.is_some());
    let named = stream.rejected(of.kind).map(|(name, rejection)| RejectedReport {
        name: Some(name.to_string()),
        version: Some(rejection.version.clone()).filter(|version| !version.is_empty()),
        reason: rejection.reason.to_string(),
    });
    (unnamed.into_iter().chain(named).take(MAX_REJECTED).collect(), count)
}

/// Returns what `/upstreams` shows.
pub(in crate::relay) fn report(of: &Inspection<'_>) -> ViewReport {
    let Inspection { facts, view, sources, links, sessions, members, now, .. } = of;
    let missing = Missing::by_authority(view);
    let missing = |authority: &Authority| missing.get(authority);
    let authorities = sources.ladders().map(|ladder| AuthorityReport {
        authority: ladder.authority.name().to_owned(),
        state: ladder.state.name(),
        reason: links.reason_of(&ladder),
        missing: missing(ladder.authority).map(Missing::shown).unwrap_or_default(),
        missing_count: missing(ladder.authority).map_or(0, |missing| missing.count),
        server: ladder.server.map(|server| links.server(server)),
        state_seconds: (*now - ladder.since).as_secs(),
        fallbacks: ladder.switches.down,
        returns: ladder.switches.up,
    });
    let of_link = |id: StreamId| {
        let LinkFacts { connected, responses, last_error, unrouted_calls } = links.facts(id);
        StreamReport {
            server: links.server(id.server),
            connected,
            variant: Variant::Delta.name(),
            responses,
            last_error,
            liveness_call: None,
            liveness_unrouted: unrouted_calls,
            types: Vec::new(),
        }
    };
    let of_stream = |(id, stream): (StreamId, &Stream)| StreamReport {
        variant: stream.variant().name(),
        liveness_call: stream.has_answered_call().map(|answered| if answered { "answered" } else { "pending" }),
        types: stream.types().map(|of| type_report(&of, rejected_of_type(stream, &of), view)).collect(),
        ..of_link(id)
    };
    let of_set = |(id, set): (StreamId, &LocalSet)| StreamReport {
        types: set.types().map(|of| type_report(&of, Default::default(), view)).collect(),
        ..of_link(id)
    };
    let cached = view.tables().cached_by_server().into_iter();
    let from_disk = &facts.from_disk;
    let from_disk = from_disk.loaded.filter(|_| view.tables().loaded_from_disk() > 0).map(|loaded| FromDiskReport {
        resources: view.tables().loaded_from_disk(),
        seconds: loaded.elapsed().as_secs(),
        unheard_seconds: from_disk.age.map(|age| age.as_secs()),
    });
    ViewReport {
        view: facts.view_id.to_string(),
        key_fields: facts.key_fields.clone(),
        node: if members.shown().is_some() { String::new() } else { STANDARD.encode(&facts.node) },
        shown_client: members.shown_member().and_then(|of| of.sessions().next()).map(|session| session.0),
        clients: sessions.len(),
        cached: cached.map(|(server, count)| (links.server_name(server), count)).collect(),
        from_disk,
        authorities: authorities.collect(),
        streams: sources.streams().map(of_stream).chain(sources.local_sets().map(of_set)).collect(),
        audit: of.shared.incidents.audits.last(&facts.view_id),
    }
}

/// Returns what is known of one name.
pub(in crate::relay) fn explain(of: &Inspection<'_>, kind: &Type, name: &Name) -> ViewExplanation {
    let Inspection { view, sources, links, now, .. } = of;
    let authority = Authority::of(name);
    let ladder = sources.ladders().find(|ladder| *ladder.authority == authority);
    let active = ladder.as_ref().and_then(|ladder| ladder.server);
    let ladder = ladder.map(|ladder| LadderExplanation {
        authority: authority.name().to_owned(),
        state: ladder.state.name(),
        server: ladder.server.map(|server| links.server(server)),
        since: ladder.since,
        reason: links.reason_of(&ladder),
    });
    let of_streams = sources.streams().map(|(id, stream)| (id, stream.request_of(kind, name)));
    let of_sets = sources.local_sets().map(|(id, set)| (id, set.request_of(kind, name)));
    let requests = of_streams.chain(of_sets).filter_map(|(id, request)| {
        Some(ServerExplanation {
            server: links.server(id.server),
            connected: links.is_connected(id),
            is_active: active == Some(id.server),
            request: request?,
        })
    });
    let (holds, waits) = (view.holds().of_name(kind, name), waits_of(of, kind, name));
    let (references, servers) = (view.holds().references_to(kind, name), links.servers().collect());
    ViewExplanation { now: *now, servers, holds, references, ladder, requests: requests.collect(), waits }
}

/// How many rejected resources of a type are shown.
const MAX_REJECTED: usize = 20;

/// The missing names of one authority: the first few in order, and how many there are.
#[derive(Debug, Default)]
struct Missing {
    first: BTreeSet<(Type, Selector)>,
    count: usize,
}

impl Missing {
    /// Sums up all interest in one pass.
    fn by_authority(view: &View) -> BTreeMap<Authority, Self> {
        let mut missing: BTreeMap<Authority, Self> = BTreeMap::new();
        for (kind, wanted) in view.wants().missing() {
            let authority = match &wanted {
                Selector::Wildcard => Authority::TopLevel,
                Selector::Name(name) => Authority::of(name),
            };
            missing.entry(authority).or_default().note(kind, wanted);
        }
        missing
    }

    fn note(&mut self, kind: &Type, wanted: Selector) {
        self.count += 1;
        self.first.insert((kind.clone(), wanted));
        if self.first.len() > MAX_SHOWN {
            self.first.pop_last();
        }
    }

    fn shown(&self) -> Vec<MissingReport> {
        let shown = |(kind, wanted): &(Type, Selector)| MissingReport {
            kind: kind.name().to_owned(),
            name: match wanted {
                Selector::Wildcard => WILDCARD.to_owned(),
                Selector::Name(name) => name.to_string(),
            },
        };
        self.first.iter().map(shown).collect()
    }
}

/// How many missing names of an authority `/upstreams` shows.
const MAX_SHOWN: usize = 10;

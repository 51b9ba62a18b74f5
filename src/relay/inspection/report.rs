//! The report of a view for the admin address, with the names that are wanted and not cached, and what is known of one name.

use std::collections::{BTreeMap, BTreeSet};

use super::Inspection;
use crate::protocol::sources::StreamId;
use crate::protocol::upstream::{Stream, TypeSummary};
use crate::protocol::view::{Completeness, Selector, View};
use crate::relay::report::{
    AuthorityReport, FromDiskReport, LadderBook, MissingReport, RejectedReport, ServerBook, StreamReport, TypeReport,
    ViewBook, ViewReport,
};
use crate::xds::{Authority, Name, Type, WILDCARD};

fn completeness_name(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::Unknown => "unknown",
        Completeness::Arriving => "arriving",
        Completeness::FirstResponse => "first_response",
        Completeness::Settled => "settled",
        Completeness::Complete => "complete",
    }
}

fn type_report(of: &TypeSummary, stream: &Stream, view: &View) -> TypeReport {
    let (rejected, rejected_count) = rejected_of_type(stream, of);
    let completeness = || completeness_name(view.completeness_of(of.kind, &Selector::Wildcard));
    TypeReport {
        kind: of.kind.name().to_owned(),
        wildcard: of.wildcard,
        names: of.names,
        names_left_out: of.left_out,
        cached: view.held(of.kind, of.wildcard),
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

impl Inspection<'_> {
    /// Returns what `/upstreams` shows.
    pub(crate) fn report(&self) -> ViewReport {
        let now = self.now;
        let named = |server: usize| self.connectors[server].describe();
        let missing = Missing::by_authority(self.view);
        let missing = |authority: &Authority| missing.get(authority);
        let authorities = self.sources.ladders().map(|ladder| AuthorityReport {
            authority: ladder.authority.name().to_owned(),
            state: ladder.state.name(),
            reason: self.links.reason_of(&ladder),
            missing: missing(ladder.authority).map(Missing::shown).unwrap_or_default(),
            missing_count: missing(ladder.authority).map_or(0, |missing| missing.count),
            server: ladder.server.map(named),
            state_seconds: (now - ladder.since).as_secs(),
            fallbacks: ladder.switches.down,
            returns: ladder.switches.up,
        });
        let authorities = authorities.collect();
        let (view, links, connectors) = (self.view, self.links, self.connectors);
        let of_stream = |(id, stream): (StreamId, &Stream)| {
            let link = links.get(id);
            let of_type = |of: TypeSummary| type_report(&of, stream, view);
            StreamReport {
                server: connectors[id.server].describe(),
                connected: link.is_some_and(|link| link.up.is_some()),
                variant: stream.variant().name(),
                responses: link.map_or(0, |link| link.responses),
                last_error: link.and_then(|link| link.last_error.clone()),
                liveness_call: stream.has_answered_call().map(|answered| if answered { "answered" } else { "pending" }),
                types: stream.types().map(of_type).collect(),
            }
        };
        let streams = self.sources.streams().map(of_stream).collect();
        let (key, made_from) = (self.view_id.to_owned(), self.made_from.clone());
        let cached = self.view.cached_by_server().into_iter();
        let cached = cached.map(|(server, count)| (self.connectors[usize::from(server)].describe(), count)).collect();
        let from_disk =
            self.from_disk.loaded.filter(|_| self.view.loaded_from_disk() > 0).map(|loaded| FromDiskReport {
                resources: self.view.loaded_from_disk(),
                seconds: loaded.elapsed().as_secs(),
                unheard_seconds: self.from_disk.age.map(|age| age.as_secs()),
            });
        let clients = self.sessions.len();
        ViewReport { view: key, key_fields: made_from, clients, cached, from_disk, authorities, streams }
    }
}

/// How many rejected resources of a type are shown.
const MAX_REJECTED: usize = 20;

/// The missing names of one authority: the first few in order, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Missing {
    first: BTreeSet<(Type, Selector)>,
    pub(crate) count: usize,
}

impl Missing {
    /// Goes through all interest once.
    pub(crate) fn by_authority(view: &View) -> BTreeMap<Authority, Self> {
        let mut missing: BTreeMap<Authority, Self> = BTreeMap::new();
        for (kind, wanted) in view.missing() {
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

    pub(crate) fn shown(&self) -> Vec<MissingReport> {
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

impl Inspection<'_> {
    /// Returns what is known of one name.
    pub(crate) fn explain(&self, kind: &Type, name: &Name) -> ViewBook {
        let authority = Authority::of(name);
        let connectors = self.connectors;
        let ladder = self.sources.ladders().find(|ladder| *ladder.authority == authority);
        let active = ladder.as_ref().and_then(|ladder| ladder.server);
        let ladder = ladder.map(|ladder| LadderBook {
            authority: authority.name().to_owned(),
            state: ladder.state.name(),
            server: ladder.server.map(|server| connectors[server].describe()),
            since: ladder.since,
            reason: self.links.reason_of(&ladder),
        });
        let links = self.links;
        let requests = self.sources.streams().filter_map(|(id, stream)| {
            Some(ServerBook {
                server: connectors[id.server].describe(),
                connected: links.get(id).is_some_and(|link| link.up.is_some()),
                is_active: active == Some(id.server),
                request: stream.request_of(kind, name)?,
            })
        });
        let requests = requests.collect();
        let (holds, waits) = (self.view.holds().of_name(kind, name), self.waits_of(kind, name));
        ViewBook { now: self.now, holds, ladder, requests, waits }
    }
}

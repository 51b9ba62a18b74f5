//! The report of a view for the admin address.

use super::Inspection;
use super::missing::Missing;
use crate::protocol::sources::StreamId;
use crate::protocol::upstream::{Stream, TypeSummary};
use crate::protocol::view::{Completeness, Selector, View};
use crate::relay::report::{AuthorityReport, FromDiskReport, RejectedReport, StreamReport, TypeReport, ViewReport};
use crate::xds::Authority;

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

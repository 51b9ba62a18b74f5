//! What a unit says of itself at the admin address.

use std::collections::BTreeMap;

use serde::Serialize;

use super::links::Links;
use super::missing::{Missing, MissingReport};
use super::rejected::RejectedReport;
use super::view_task::ViewTask;
use crate::protocol::ladder::LadderState;
use crate::protocol::session::Variant;
use crate::protocol::sources::{LadderSummary, StreamId};
use crate::protocol::upstream::{Stream, TypeSummary};
use crate::protocol::view::{Completeness, Selector, View};
use crate::xds::Authority;

#[derive(Debug, Serialize)]
pub struct ViewReport {
    pub view: String,
    /// The fields of its clients' nodes that made the key.
    pub key_fields: BTreeMap<String, String>,
    pub clients: usize,
    pub authorities: Vec<AuthorityReport>,
    pub streams: Vec<StreamReport>,
}

/// Which server serves an authority, and since when.
#[derive(Debug, Serialize)]
pub struct AuthorityReport {
    /// Empty for `*` and old-style names.
    pub authority: String,
    /// idle, trying, active, held (out of reach, and the cache serves) or down.
    pub state: &'static str,
    pub server: Option<String>,
    pub state_seconds: u64,
    /// Why a server further up does not serve: what last went wrong with the one before.
    pub reason: Option<String>,
    /// What clients wait for that is not cached, in part, and how much of that there is. It lets the ladder move on.
    pub missing: Vec<MissingReport>,
    pub missing_count: usize,
    /// Moves to the next server, and back to one further up.
    pub fallbacks: u64,
    pub returns: u64,
}

#[derive(Debug, Serialize)]
pub struct StreamReport {
    pub server: String,
    pub connected: bool,
    pub variant: &'static str,
    pub responses: u64,
    pub last_error: Option<String>,
    /// Whether the server answered the last call that asked whether it is there: answered or pending, null without one.
    pub liveness_call: Option<&'static str>,
    pub types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub struct TypeReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub cached: usize,
    /// How much of the wildcard set is known: unknown, arriving, first_response, settled or complete.
    pub completeness: Option<&'static str>,
    /// Names that the server is asked for a second time, since clients hold them and it did not mention them.
    pub requested_again: usize,
    /// Resources whose body goes by another name than they came under.
    pub name_mismatches: u64,
    /// What the server sent and cannot be used, up to a number, and how much of that there is.
    pub rejected: Vec<RejectedReport>,
    pub rejected_count: usize,
}

pub(super) fn state_name(standing: LadderState) -> &'static str {
    match standing {
        LadderState::Idle => "idle",
        LadderState::Trying(_) => "trying",
        LadderState::Active(_) => "active",
        LadderState::Cached(_) => "cached",
        LadderState::Down => "down",
    }
}

fn completeness_name(fill: Completeness) -> &'static str {
    match fill {
        Completeness::Unknown => "unknown",
        Completeness::Arriving => "arriving",
        Completeness::FirstResponse => "first_response",
        Completeness::Settled => "settled",
        Completeness::Complete => "complete",
    }
}

/// Why the ladder is not further up: what last went wrong with the lowest server that is out of reach.
pub(super) fn reason_of(ladder: &LadderSummary<'_>, links: &Links) -> Option<String> {
    let rung = match ladder.state {
        LadderState::Idle => None,
        LadderState::Trying(at) | LadderState::Active(at) => at.checked_sub(1),
        LadderState::Cached(at) => Some(at),
        LadderState::Down => ladder.servers.len().checked_sub(1),
    };
    links.last_error(*ladder.servers.get(rung?)?).map(str::to_owned)
}

impl TypeReport {
    fn new(topic: &TypeSummary, stream: &Stream, unit: &View) -> Self {
        let (rejected, rejected_count) = RejectedReport::of_type(stream, topic);
        Self {
            kind: topic.kind.name().to_owned(),
            wildcard: topic.wildcard,
            names: topic.names,
            cached: unit.held(topic.kind, topic.wildcard),
            completeness: topic
                .wildcard
                .then(|| completeness_name(unit.completeness_of(topic.kind, &Selector::Wildcard))),
            requested_again: topic.asked_again,
            name_mismatches: topic.misnamed,
            rejected,
            rejected_count,
        }
    }
}

impl ViewTask {
    pub(super) fn report(&mut self) -> ViewReport {
        let now = self.clock.now();
        let named = |server: usize| self.connectors[server].describe();
        let links = &self.links;
        let missing = Missing::by_authority(&self.view);
        let missing = |authority: &Authority| missing.get(authority);
        let authorities = self.sources.ladders().map(|ladder| AuthorityReport {
            authority: match ladder.authority {
                Authority::TopLevel => String::new(),
                Authority::Named(name) => name.clone(),
            },
            state: state_name(ladder.state),
            reason: reason_of(&ladder, links),
            missing: missing(ladder.authority).map(Missing::shown).unwrap_or_default(),
            missing_count: missing(ladder.authority).map_or(0, |missing| missing.count),
            server: ladder.server.map(named),
            state_seconds: (now - ladder.since).as_secs(),
            fallbacks: ladder.switches.down,
            returns: ladder.switches.up,
        });
        let authorities = authorities.collect();
        let (unit, links, connectors) = (&self.view, &self.links, &self.connectors);
        let of_stream = |(id, stream): (StreamId, &mut Stream)| {
            let link = links.get(id);
            let of_type = |topic: TypeSummary| TypeReport::new(&topic, stream, unit);
            StreamReport {
                server: connectors[id.server].describe(),
                connected: link.is_some_and(|link| link.up.is_some()),
                variant: if stream.variant() == Variant::Sotw { "sotw" } else { "delta" },
                responses: link.map_or(0, |link| link.responses),
                last_error: link.and_then(|link| link.last_error.clone()),
                liveness_call: stream.has_answered_call().map(|answered| if answered { "answered" } else { "pending" }),
                types: stream.types().map(of_type).collect(),
            }
        };
        let streams = self.sources.streams().map(of_stream).collect();
        let (key, made_from) = (self.view_id.clone(), self.made_from.clone());
        ViewReport { view: key, key_fields: made_from, clients: self.seats.len(), authorities, streams }
    }
}

//! What a unit says of itself at the admin address.

use std::collections::BTreeMap;

use serde::Serialize;

use super::links::Links;
use super::owner::Owner;
use crate::protocol::ladder::Standing;
use crate::protocol::session::Variant;
use crate::protocol::sources::{LadderSummary, StreamId};
use crate::protocol::upstream::Stream;
use crate::xds::Authority;

#[derive(Debug, Serialize)]
pub struct UnitReport {
    pub key: String,
    /// The fields of its clients' nodes that made the key.
    pub made_from: BTreeMap<String, String>,
    pub sessions: usize,
    pub authorities: Vec<AuthorityReport>,
    pub streams: Vec<StreamReport>,
}

/// Which server serves an authority, and since when.
#[derive(Debug, Serialize)]
pub struct AuthorityReport {
    /// Empty for `*` and old-style names.
    pub authority: String,
    /// idle, trying, active, held (out of reach, and the cache serves) or down.
    pub standing: &'static str,
    pub server: Option<String>,
    pub seconds: u64,
    /// Why a server further up does not serve: what last went wrong with the one before.
    pub because: Option<String>,
    /// Moves to the next server, and back to one further up.
    pub moves_down: u64,
    pub moves_up: u64,
}

#[derive(Debug, Serialize)]
pub struct StreamReport {
    pub server: String,
    pub up: bool,
    pub variant: &'static str,
    pub responses: u64,
    pub last_error: Option<String>,
    pub types: Vec<TopicReport>,
}

#[derive(Debug, Serialize)]
pub struct TopicReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub held: usize,
    /// Resources whose body goes by another name than they came under.
    pub misnamed: u64,
}

pub(super) fn standing_of(standing: Standing) -> &'static str {
    match standing {
        Standing::Idle => "idle",
        Standing::Trying(_) => "trying",
        Standing::Active(_) => "active",
        Standing::Held(_) => "held",
        Standing::Down => "down",
    }
}

/// Why the ladder is not further up: what last went wrong with the lowest server that is out of reach.
pub(super) fn reason_of(ladder: &LadderSummary<'_>, links: &Links) -> Option<String> {
    let rung = match ladder.standing {
        Standing::Idle => None,
        Standing::Trying(at) | Standing::Active(at) => at.checked_sub(1),
        Standing::Held(at) => Some(at),
        Standing::Down => ladder.servers.len().checked_sub(1),
    };
    links.last_error(*ladder.servers.get(rung?)?).map(str::to_owned)
}

impl Owner {
    pub(super) fn report(&mut self) -> UnitReport {
        let now = self.clock.now();
        let named = |server: usize| self.connectors[server].describe();
        let links = &self.links;
        let authorities = self.sources.ladders().map(|ladder| AuthorityReport {
            authority: match ladder.authority {
                Authority::Top => String::new(),
                Authority::Named(name) => name.clone(),
            },
            standing: standing_of(ladder.standing),
            because: reason_of(&ladder, links),
            server: ladder.server.map(named),
            seconds: (now - ladder.since).as_secs(),
            moves_down: ladder.moves.down,
            moves_up: ladder.moves.up,
        });
        let authorities = authorities.collect();
        let (unit, links, connectors) = (&self.unit, &self.links, &self.connectors);
        let of_stream = |(id, stream): (StreamId, &mut Stream)| {
            let link = links.get(id);
            let held = |topic: crate::protocol::upstream::TopicSummary| TopicReport {
                kind: topic.kind.name().to_owned(),
                wildcard: topic.wildcard,
                names: topic.names,
                misnamed: topic.misnamed,
                held: unit.held(topic.kind, topic.wildcard),
            };
            StreamReport {
                server: connectors[id.server].describe(),
                up: link.is_some_and(|link| link.up.is_some()),
                variant: if stream.variant() == Variant::Sotw { "sotw" } else { "delta" },
                responses: link.map_or(0, |link| link.responses),
                last_error: link.and_then(|link| link.last_error.clone()),
                types: stream.topics().map(held).collect(),
            }
        };
        let streams = self.sources.streams().map(of_stream).collect();
        let (key, made_from) = (self.key.clone(), self.made_from.clone());
        UnitReport { key, made_from, sessions: self.seats.len(), authorities, streams }
    }
}

//! What there is to measure of a view. It goes when the view goes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::owner::Owner;
use super::report::standing_of;
use crate::protocol::ladder::Moves;
use crate::protocol::sources::{LadderSummary, Sources};
use crate::xds::{Authority, Type};

#[derive(Debug, Default)]
pub struct UnitMeasures {
    /// Its sharing key, as a hash.
    pub key: String,
    pub sessions: usize,
    /// Those that are kept waiting without a bound, and those over `limits.absent_names`.
    pub waiting: usize,
    pub guessing: usize,
    /// Resources that are held of upstream, as `*` gave them and as names did.
    pub held: usize,
    pub ladders: Vec<LadderMeasures>,
    pub servers: Vec<ServerMeasures>,
    /// Clusters that routing leads to and that are not there.
    pub dangling: usize,
    pub disorder: Disorder,
}

/// What could not be kept in order.
#[derive(Debug, Default, Clone, Copy)]
pub struct Disorder {
    /// Clusters that went while routing led to them.
    pub removals: u64,
    /// Clusters that a change of routing leads to and that did not come.
    pub waits: u64,
    /// Bodies that were too large to see where they lead.
    pub too_large: u64,
}

#[derive(Debug, Default)]
pub struct LadderMeasures {
    /// Empty for `*` and old-style names.
    pub authority: String,
    pub standing: &'static str,
    pub seconds: u64,
    /// The first choice first.
    pub servers: Vec<String>,
    /// The one whose word counts, by its place in these.
    pub active: Option<usize>,
    pub moves: Moves,
}

/// One server in a view, over all streams to it that there were.
#[derive(Debug, Default)]
pub struct ServerMeasures {
    pub server: String,
    /// Streams that are wanted, and those that are up.
    pub streams: usize,
    pub connected: usize,
    pub totals: Totals,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub opened: u64,
    pub ended: u64,
    pub responses: u64,
    /// Responses of which the relay refused something.
    pub nacks: u64,
}

impl Owner {
    pub(super) fn measures(&mut self) -> UnitMeasures {
        let now = self.clock.now();
        let connectors = &self.connectors;
        let named = |server: usize| connectors[server].describe();
        let ladder = |ladder: LadderSummary<'_>| LadderMeasures {
            authority: match ladder.authority {
                Authority::Top => String::new(),
                Authority::Named(name) => name.clone(),
            },
            standing: standing_of(ladder.standing),
            seconds: (now - ladder.since).as_secs(),
            servers: ladder.servers.iter().map(|server| named(*server)).collect(),
            active: ladder.server.and_then(|active| ladder.servers.iter().position(|server| *server == active)),
            moves: ladder.moves,
        };
        let ladders = self.sources.ladders().map(ladder).collect();
        let mut servers: Vec<_> = (0..connectors.len()).map(|at| self.links.measures(at, named(at))).collect();
        servers.retain(|server| server.streams > 0 || server.totals != Totals::default());
        let types = asked_types(&mut self.sources);
        let held = types.iter().map(|(kind, star)| self.unit.held(kind, *star)).sum();
        let waiting = self.published.waiting.load(Ordering::Relaxed);
        let (key, sessions, guessing) = (self.key.clone(), self.seats.len(), self.unit.guessing());
        let (dangling, disorder) = (self.unit.dangling().count(), self.disorder);
        UnitMeasures { key, sessions, waiting, guessing, held, ladders, servers, dangling, disorder }
    }
}

/// The types that upstream is asked for, and whether for everything of them.
fn asked_types(sources: &mut Sources) -> BTreeSet<(Type, bool)> {
    let topics = sources
        .streams()
        .flat_map(|(_, stream)| stream.topics().map(|topic| (topic.kind.clone(), topic.wildcard)).collect::<Vec<_>>());
    topics.collect()
}

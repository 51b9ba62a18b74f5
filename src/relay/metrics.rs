//! What there is to measure of a view. It goes when the view goes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::report::state_name;
use super::view_task::ViewTask;
use crate::protocol::ladder::Switches;
use crate::protocol::sources::{LadderSummary, Sources};
use crate::xds::{Authority, Type};

#[derive(Debug, Default)]
pub struct ViewMetrics {
    /// Its sharing key, as a hash.
    pub view: String,
    pub sessions: usize,
    /// Those that are kept waiting without a bound, and those over `limits.absent_names_per_stream`.
    pub blocked: usize,
    pub over_absent_limit: usize,
    /// Resources that are held of upstream, as `*` gave them and as names did.
    pub cached: usize,
    pub ladders: Vec<LadderMetrics>,
    pub servers: Vec<ServerMetrics>,
    /// Clusters that routing leads to and that are not there.
    pub dangling: usize,
    pub order: OrderMetrics,
}

/// What could not be kept in order.
#[derive(Debug, Default, Clone, Copy)]
pub struct OrderMetrics {
    /// Clusters that went while routing led to them.
    pub removals: u64,
    /// Clusters that a change of routing leads to and that did not come.
    pub waits: u64,
    /// Bodies that were too large to see where they lead.
    pub too_large: u64,
}

#[derive(Debug, Default)]
pub struct LadderMetrics {
    /// Empty for `*` and old-style names.
    pub authority: String,
    pub state: &'static str,
    pub seconds: u64,
    /// The first choice first.
    pub servers: Vec<String>,
    /// The one whose word counts, by its place in these.
    pub active: Option<usize>,
    pub switches: Switches,
}

/// One server in a view, over all streams to it that there were.
#[derive(Debug, Default)]
pub struct ServerMetrics {
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

impl ViewTask {
    pub(super) fn metrics(&mut self) -> ViewMetrics {
        let now = self.clock.now();
        let connectors = &self.connectors;
        let named = |server: usize| connectors[server].describe();
        let ladder = |ladder: LadderSummary<'_>| LadderMetrics {
            authority: match ladder.authority {
                Authority::TopLevel => String::new(),
                Authority::Named(name) => name.clone(),
            },
            state: state_name(ladder.state),
            seconds: (now - ladder.since).as_secs(),
            servers: ladder.servers.iter().map(|server| named(*server)).collect(),
            active: ladder.server.and_then(|active| ladder.servers.iter().position(|server| *server == active)),
            switches: ladder.switches,
        };
        let ladders = self.sources.ladders().map(ladder).collect();
        let mut servers: Vec<_> = (0..connectors.len()).map(|at| self.links.measures(at, named(at))).collect();
        servers.retain(|server| server.streams > 0 || server.totals != Totals::default());
        let types = asked_types(&mut self.sources);
        let held = types.iter().map(|(kind, star)| self.view.held(kind, *star)).sum();
        let waiting = self.published.waiting.load(Ordering::Relaxed);
        let (key, sessions, guessing) = (self.view_id.clone(), self.seats.len(), self.view.over_absent_limit());
        let (dangling, disorder) = (self.view.dangling().count(), self.disorder);
        ViewMetrics {
            view: key,
            sessions,
            blocked: waiting,
            over_absent_limit: guessing,
            cached: held,
            ladders,
            servers,
            dangling,
            order: disorder,
        }
    }
}

/// The types that upstream is asked for, and whether for everything of them.
fn asked_types(sources: &mut Sources) -> BTreeSet<(Type, bool)> {
    let topics = sources
        .streams()
        .flat_map(|(_, stream)| stream.types().map(|topic| (topic.kind.clone(), topic.wildcard)).collect::<Vec<_>>());
    topics.collect()
}

//! What a view reports of its brakes, and what waits in them.

use super::rules::BrakeRules;
use super::{Brakes, Hold};
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::Selector;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Name, Type};

/// Something that operators want to know at once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields: the docs of each variant cover them
pub enum BrakeEvent {
    /// A brake has engaged: `held` of `size` resources stay for now although `server` has removed them.
    Engaged { kind: Type, of: Selector, server: u16, generation: u64, held: usize, size: usize },
    /// Removals were let go, or taken back by their server. `left` are still held.
    Released { kind: Type, of: Selector, server: u16, reason: ReleaseReason, count: usize, left: usize },
}

/// Why a removal is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseReason {
    /// The server has the resources again, or so many others that the loss is an ordinary one.
    Recovered,
    /// A later opening or poll, or another server, agrees.
    Agreed,
    /// The grace has passed.
    Grace,
    /// The longer time of an empty set has passed.
    EmptyGrace,
    /// An operator has released them.
    Operator,
}

impl ReleaseReason {
    /// All reasons, for metrics.
    pub const ALL: [Self; 5] = [Self::Recovered, Self::Agreed, Self::Grace, Self::EmptyGrace, Self::Operator];

    /// Returns the name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Agreed => "agreed",
            Self::Grace => "grace",
            Self::EmptyGrace => "empty_grace",
            Self::Operator => "operator",
        }
    }
}

/// The brake of one set while it holds something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrakeReport {
    /// The type of the set.
    pub kind: Type,
    /// `*`, or the glob of a collection.
    pub of: Selector,
    /// When it engaged.
    pub since: Moment,
    /// What a release has to name. Removals that are held later have a higher one.
    pub generation: u64,
    /// How many removals are held.
    pub held: usize,
    /// How many additions and changes wait with them.
    pub changes: usize,
    /// How many resources there were at the start of the window.
    pub start_size: usize,
    /// Without the held resources the set would be empty.
    pub is_emptied: bool,
    /// The servers that removed them, by their places in the plan.
    pub servers: Vec<u16>,
    /// When the first of them will be let go, and the last. `None` until the server has stated its set on this opening.
    pub release: Option<(Moment, Moment)>,
    /// The first names.
    pub names: Vec<Name>,
}

impl BrakeReport {
    pub(crate) fn of(set: &super::SetKey, hold: &Hold, rules: &BrakeRules, limit: usize) -> Self {
        let removals = || hold.items().filter(|(_, held)| held.is_removal());
        let mut servers: Vec<_> = removals().map(|(_, held)| held.source.server).collect();
        servers.sort_unstable();
        servers.dedup();
        Self {
            kind: set.0.clone(),
            of: set.1.clone(),
            since: hold.since,
            generation: hold.generation(),
            held: hold.removals(),
            changes: hold.items().count() - hold.removals(),
            start_size: hold.start_size,
            is_emptied: hold.empty_since.is_some(),
            servers,
            release: hold.next_due(rules).zip(hold.last_due(rules)),
            names: removals().map(|(name, _)| name.clone()).take(limit).collect(),
        }
    }
}

/// Why an operator's release did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReleased {
    /// No brake holds anything of what was named.
    NothingHeld,
    /// All that is held was held after that generation.
    Later,
}

impl Brakes {
    /// Adds everything that is held. Its clock stands from the end of an opening until the server has stated its set on the next.
    pub(crate) fn add_waits(&self, rules: &BrakeRules, now: Moment, list: &mut WaitList) {
        for ((kind, _), hold) in self.holds() {
            for (name, held) in hold.items() {
                let (since, lasting) = hold.clock_of(held, rules);
                let age = hold.clock.read(now).saturating_sub(since);
                let bound = hold.clock.runs().then_some(lasting);
                list.add(WaitKind::Brake, age, bound, || WaitSubject::name(kind, name));
            }
        }
    }
}

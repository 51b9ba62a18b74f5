//! What brakes report: their events, what they hold, and what survives the process. Also the commands of operators.

use std::time::Duration;

use crate::protocol::keys::Selector;
use crate::protocol::moment::Moment;
use crate::protocol::view::update::Origin;
use crate::xds::{Name, Type};

/// Something that operators want to know at once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields: the docs of each variant cover them
pub enum BrakeEvent {
    /// A brake has engaged: `held` of `size` resources stay for now although `server` has removed them.
    Engaged { kind: Type, of: Selector, server: u16, generation: u64, held: usize, size: usize },
    /// Removals were released, or taken back by their server. `left` are still held.
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
    /// The number that a release has to name. Removals that are held later have a higher one.
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
    /// When the first and the last of them will be released. `None` until the server has stated its set on this opening.
    pub release: Option<(Moment, Moment)>,
    /// The first names.
    pub names: Vec<Name>,
}

/// What an operator releases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'a> {
    /// One set, or all.
    pub(crate) of: Option<(&'a Type, &'a Selector)>,
    /// What one server has removed, or any.
    pub(crate) server: Option<u16>,
    /// Removals up to this one.
    pub(crate) generation: u64,
}

/// Why an operator's release did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReleased {
    /// No brake holds anything of what was named.
    NothingHeld,
    /// All that is held was held after that generation.
    Later,
}

/// What is held in a view, and how large its sets were. Times are ages, so that another process with another clock can go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrakeState {
    /// Each set that has anything to remember.
    pub sets: Vec<SetState>,
}

/// The brake of one set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetState {
    /// The full name of the type.
    pub type_name: String,
    /// The glob of a collection, or `None` for `*`.
    pub glob: Option<Name>,
    /// How long ago the set had which size, oldest first.
    pub sizes: Vec<(Duration, usize)>,
    /// The size that the loss is measured against.
    pub start_size: usize,
    /// The server has not stated its set, so the time of what is held stands still.
    pub is_stopped: bool,
    /// For how long the set has been empty but for what is held.
    pub empty_for: Option<Duration>,
    /// What is held. Changes that wait are not among it: the server sends them again.
    pub removals: Vec<HeldRemoval>,
}

/// A held removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRemoval {
    /// The name that is removed.
    pub name: Name,
    /// For how long it has been held. Time during which the server had not stated its set does not count.
    pub age: Duration,
    /// The number that a release has to name.
    pub generation: u64,
    /// The set would have been empty without it.
    pub emptied: bool,
    /// The server that removed it, by its place in the plan, and its rank.
    pub server: u16,
    /// See `server`.
    pub rank: u8,
}

impl BrakeState {
    /// Whether the same is held, regardless of times.
    pub fn holds_the_same(&self, other: &Self) -> bool {
        let held = |state: &Self| -> Vec<(String, Option<Name>, Name, u64)> {
            let of_set = |set: &SetState| {
                let held =
                    |held: &HeldRemoval| (set.type_name.clone(), set.glob.clone(), held.name.clone(), held.generation);
                set.removals.iter().map(held).collect::<Vec<_>>()
            };
            state.sets.iter().flat_map(of_set).collect()
        };
        held(self) == held(other)
    }
}

impl HeldRemoval {
    /// Returns the origin of what is restored: no server has stated it in this process.
    pub(super) fn origin(&self) -> Origin {
        Origin { server: self.server, rank: self.rank, ..Origin::default() }
    }
}

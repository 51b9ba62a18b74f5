//! What a control plane that answers by itself does, as values, and what it has seen.

use std::collections::{BTreeMap, BTreeSet};

/// Resources of one type: names and contents. The contents are also the versions.
pub type Set = BTreeMap<String, String>;

/// The resources of a control plane, by type.
pub type World = BTreeMap<&'static str, Set>;

/// How the control plane treats open and new streams.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// Sends all names that are requested, each with this content.
    Gives(&'static str),
    /// Sends only these names, and all of them for a wildcard.
    GivesOnly(&'static [(&'static str, &'static str)]),
    /// Sends what it has: in SotW the complete set, in delta what the stream does not have in this version, and what no longer exists. It is
    /// silent about names that never existed, and where it has nothing new.
    Has(World),
    /// Reads requests, and answers only liveness calls.
    Mute,
    /// Ends a stream at its first request.
    EndsUnheard,
    /// Sends these names, and ends the stream after its first response.
    EndsAfterOne(&'static [(&'static str, &'static str)]),
    /// Ends a stream that requests one of these types, with a status, and has a world for others. `*` stands for all types.
    EndsForTypes(&'static [&'static str], u8, World),
}

/// How a control plane answers, whatever it has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// The maximum of resources in a response, in delta. `None`: one response has all of them.
    pub piece: Option<usize>,
    /// Whether it needs the node in each request, ACKs too, because it forgets the node of a stream after the first one: it does not answer
    /// a request without a node.
    pub forgets_node: bool,
}

/// What the control plane has seen of the relay.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The number of streams that were opened so far, and of those open now.
    pub opened: usize,
    pub open: usize,
    /// The types that were requested on each stream, in the order of the streams.
    pub types: Vec<BTreeSet<String>>,
    /// The names that were requested on the newest stream. `*` stands for everything.
    pub requested: BTreeSet<String>,
    /// Why the server ended streams whose requests were too long.
    pub refused: Vec<String>,
    /// The length of the longest request.
    pub longest: usize,
    /// The number of versions that were stated on all streams.
    pub stated: usize,
    /// The number of subscriptions to names on the newest stream, and of ACKs and NACKs.
    pub names: usize,
    pub acks: usize,
    /// The number of resources that were sent on the newest stream, and of their responses.
    pub sent: usize,
    pub responses: usize,
}

impl Way {
    /// Returns what the control plane has for streams that it does not end.
    pub fn world(&self) -> Option<&World> {
        match self {
            Self::Has(world) | Self::EndsForTypes(_, _, world) => Some(world),
            _ => None,
        }
    }

    pub fn world_mut(&mut self) -> Option<&mut World> {
        match self {
            Self::Has(world) | Self::EndsForTypes(_, _, world) => Some(world),
            _ => None,
        }
    }
}

impl Seen {
    /// Starts the counts of a new stream, and returns its index.
    pub(crate) fn begin(&mut self) -> usize {
        (self.opened, self.open) = (self.opened + 1, self.open + 1);
        (self.names, self.acks, self.sent, self.responses) = (0, 0, 0, 0);
        self.requested.clear();
        self.types.push(BTreeSet::new());
        self.types.len() - 1
    }
}

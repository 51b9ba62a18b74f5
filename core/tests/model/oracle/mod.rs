//! The reference implementation: everything that one client requested and was sent, and whether each reply to it was right.
//!
//! What the server has reported comes from [`ModelView`], recomputed from the beginning. The relay's model shares no code with this.

mod holdings;
mod order;
mod replies;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Variant};
use weir_core::protocol::view::Revision;
use weir_core::xds::Resource;

use crate::content::{Content, Kind, ensure, same, version};
use crate::coverage::{Coverage, Event};
use crate::origin::Set;
use crate::view::{Entry, ModelView};

#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Here(Content),
    Gone,
    Unknown,
}

/// What one stream requested and was sent, by a naive reading of the protocol.
#[derive(Debug)]
pub struct Judge {
    /// The node that decides which content the client gets.
    pub key: u8,
    pub variant: Variant,
    pub grpc: bool,
    pub wrappers: bool,
    /// The view keeps the bodies of removed resources only up to a few bytes.
    pub short_memory: bool,
    /// What the client held when it opened the stream.
    came_holding: BTreeMap<(Kind, String), Content>,
    wants: BTreeMap<Kind, Wants>,
    sent: BTreeMap<(Kind, String), Option<Content>>,
    /// The length of upstream's log when a name was last sent.
    told_at: BTreeMap<(Kind, String), usize>,
    /// What was requested since it was last sent. A kind without a name stands for `*`.
    requested: BTreeSet<(Kind, Option<String>)>,
    /// `*` was requested, and no reply since has concerned it.
    star_unanswered: BTreeSet<Kind>,
    /// What may be sent once more: it was sent out of turn for `*`, or before `*` was requested again.
    out_of_turn: BTreeSet<(Kind, String)>,
    last_sets: BTreeMap<Kind, Vec<Content>>,
    answered: BTreeSet<Kind>,
    needs_endpoints: BTreeSet<String>,
    /// Endpoints that may follow a cluster although nothing waits for them: only its wrapper has changed.
    may_follow: BTreeSet<String>,
    /// Endpoints for which clusters wait: the nonce of the reply with the cluster, and when that was sent.
    warming: BTreeMap<String, (u64, Moment)>,
    /// Since when a change of routing is kept back.
    kept_back_since: Option<Moment>,
    /// Routes that may refer to a missing cluster until they are sent again: they were sent before the client had all clusters, or were removed
    /// without a reply.
    early_routes: BTreeSet<String>,
    /// Names in the last reply that were changes, and not responses to a request.
    changed: Vec<String>,
    last_mark: Revision,
    last_nonce: u64,
}

#[derive(Debug, Default, Clone)]
pub struct Wants {
    pub wildcard: bool,
    pub names: BTreeSet<String>,
    named_once: bool,
    stated: bool,
    held_before: BTreeMap<String, String>,
    first_names: BTreeSet<String>,
    /// `*` was requested again, so everything has to be sent again.
    again: bool,
}

impl Judge {
    pub fn new(key: u8, variant: Variant, grpc: bool, wrappers: bool) -> Self {
        Self {
            key,
            variant,
            grpc,
            wrappers,
            short_memory: false,
            came_holding: BTreeMap::new(),
            wants: BTreeMap::new(),
            sent: BTreeMap::new(),
            told_at: BTreeMap::new(),
            requested: BTreeSet::new(),
            star_unanswered: BTreeSet::new(),
            out_of_turn: BTreeSet::new(),
            last_sets: BTreeMap::new(),
            answered: BTreeSet::new(),
            needs_endpoints: BTreeSet::new(),
            may_follow: BTreeSet::new(),
            warming: BTreeMap::new(),
            kept_back_since: None,
            early_routes: BTreeSet::new(),
            changed: Vec::new(),
            last_mark: Revision::ZERO,
            last_nonce: 0,
        }
    }

    pub fn coming_with(self, came_holding: BTreeMap<(Kind, String), Content>, short_memory: bool) -> Self {
        Self { came_holding, short_memory, ..self }
    }

    /// Whether `*` of a type got no reply because the client stated exactly the current set.
    pub fn skipped(&self, kind: Kind) -> bool {
        let wants = self.wants.get(&kind);
        wants.is_some_and(|wants| wants.wildcard && wants.stated && kind.full_state() && !self.answered.contains(&kind))
    }

    pub fn wants(&self, kind: Kind) -> Option<&Wants> {
        self.wants.get(&kind)
    }

    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.wants.keys().copied()
    }

    /// How many names a session may store for this stream: requested names, and stated names that are not compared yet.
    pub fn allowance(&self) -> usize {
        self.wants.values().map(|wants| wants.names.len() + wants.held_before.len()).sum()
    }
}

const BODIES_KEPT: Duration = Duration::from_secs(60);
const HOLD: Duration = Duration::from_secs(2);

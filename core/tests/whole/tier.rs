//! One relay of the world: a view, its sources, its sessions, and what its view task would do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Session, Variant};
use weir_core::protocol::sources::{Plan, Sources, StreamId};
use weir_core::protocol::upstream::{Backoff, Epoch};
use weir_core::protocol::view::{InterestChange, Leases, SessionId, View};
use weir_core::xds::BodyStore;

use crate::content::table;
use crate::support::bounds::Bounded;

/// One opening of a stream on which a tier requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkKey {
    pub tier: usize,
    pub id: StreamId,
    pub opening: u64,
}

/// A session of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub tier: usize,
    pub session: SessionId,
}

pub struct Tier {
    pub view: View,
    pub sources: Sources,
    pub leases: Leases,
    pub store: BodyStore,
    pub links: BTreeMap<StreamId, Link>,
    pub seats: BTreeMap<SessionId, Seat>,
    /// Sessions whose interest was counted since the last publication.
    pub counted: Vec<SessionId>,
    pub flush_at: Option<Moment>,
    /// The moment of the last turn, and how many turns in a row there were at that moment.
    pub turns: (Moment, u32),
    /// The tier accepts no connections, because it is being restarted.
    pub is_down: bool,
    /// The state of its ladder when it was last checked.
    pub ladder: LadderState,
}

/// What the edge would keep for a stream.
#[derive(Debug, Default)]
pub struct Link {
    pub opening: u64,
    pub up: Option<Epoch>,
    pub opened_at: Moment,
    pub answered: bool,
    pub backoff: Backoff,
    /// The session that serves the stream, if it is to the tier before this one.
    pub session: Option<SessionId>,
    /// When the last message in each direction arrives: messages do not overtake one another.
    pub last_in: Moment,
    pub last_out: Moment,
    /// A liveness call waits for its answer (`called`), and another one has to follow it (`calls_again`).
    pub called: bool,
    pub calls_again: bool,
    /// The stream has ended of its own accord, or could not be opened.
    pub failed: bool,
    /// How often Weir has opened the stream again of its own accord.
    pub reopened: u32,
}

/// The other end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Client(usize),
    /// The next tier.
    Relay(LinkKey),
}

pub struct Seat {
    pub session: Session,
    pub holder: Holder,
    pub variant: Variant,
    pub bounded: Bounded,
    pub poll_at: Option<Moment>,
    /// If the client polls: until when its fetch waits.
    pub fetches: Option<Moment>,
    pub last_in: Moment,
    pub last_out: Moment,
    /// Changes of interest on their way to the view task. They arrive before it learns that the session has left.
    pub under_way: VecDeque<Vec<InterestChange>>,
}

impl Tier {
    pub fn new(plan: Arc<Plan>, options: Arc<ProtocolOptions>) -> Self {
        Self {
            view: View::new(table(), options.view.clone().into()),
            sources: Sources::new(plan, Bytes::from_static(b""), table(), options.upstream.clone().into()),
            leases: Leases::new(options.view.clone().into()),
            store: BodyStore::default(),
            links: BTreeMap::new(),
            seats: BTreeMap::new(),
            counted: Vec::new(),
            flush_at: None,
            turns: (Moment::START, 0),
            is_down: false,
            ladder: LadderState::Idle,
        }
    }

    pub fn link(&mut self, key: LinkKey) -> Option<&mut Link> {
        self.links.get_mut(&key.id).filter(|link| link.opening == key.opening)
    }
}

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

use crate::bounds_of_polls::Bounded;
use crate::content::table;

/// An opening of a stream of a tier to what is below it.
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
    /// How often in a row it had to do something at one moment.
    pub turns: (Moment, u32),
    /// It accepts no connections: it is being started again.
    pub is_down: bool,
    /// The state of its ladder when it was last looked at.
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
    /// The session of the tier below that serves it.
    pub session: Option<SessionId>,
    /// When the last message of each direction arrives: none overtakes another.
    pub last_in: Moment,
    pub last_out: Moment,
    /// A liveness call waits for its answer, and another one is to follow it.
    pub called: bool,
    pub calls_again: bool,
    /// It has ended by itself, or could not be opened.
    pub failed: bool,
    /// How often Weir has opened it again by itself.
    pub reopened: u32,
}

/// Who is at the other end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Client(usize),
    /// The tier above.
    Relay(LinkKey),
}

pub struct Seat {
    pub session: Session,
    pub holder: Holder,
    pub variant: Variant,
    pub bounded: Bounded,
    pub poll_at: Option<Moment>,
    /// A fetch, and until when it waits.
    pub fetches: Option<Moment>,
    pub last_in: Moment,
    pub last_out: Moment,
    /// Changes of interest that are on their way to the view task, which has them before it hears that the session has left.
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

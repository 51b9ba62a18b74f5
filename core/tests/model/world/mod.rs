//! The small world: a control plane, one relay with a view for each of two nodes, and clients. Between them are queues that a history moves by
//! hand. Time is a number.

mod clients;
mod relay;
mod server;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost_types::{Struct, Value, value};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::proto::node::Node;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Ack, Client, CloseReason, Identity, Session, Step, Variant};
use weir_core::protocol::upstream::ViewContext;
use weir_core::protocol::view::{Class, Evidence, Selector, SessionId, Update};
use weir_core::xds::{BodyStore, HeaderHashes, KeyField, KeyRule, SharingKey};

use self::clients::{Apart, tenant_of};
pub use self::sessions::Pulled;
use crate::client::{Pretend, Profile, Reaction, Return};
use crate::content::{Content, Kind, ensure, table};
use crate::coverage::{Coverage, Event};
use crate::oracle::Judge;
use crate::origin::Truth;
use crate::rig::{Link, UnitRig, mark_of, note_asked};
use crate::view::Entry;

pub const KEYS: u8 = 2;

pub struct World {
    pub now: Moment,
    pub truths: Vec<Truth>,
    pub units: Vec<UnitRig>,
    pub clients: Vec<Pretend>,
    pub serial: u64,
    pub pieces: bool,
    pub slow_interest: bool,
    /// Whether to print each reply: `WEIR_TRACE=1`.
    trace: bool,
    epoch: u64,
    store: BodyStore,
    options: Arc<ProtocolOptions>,
    next_id: u64,
    rule: Arc<KeyRule>,
    keys: Vec<SharingKey>,
    apart: Apart,
    pub coverage: Coverage,
}

impl World {
    pub fn new(upstream: Variant, change: impl FnOnce(&mut ProtocolOptions)) -> Self {
        Self::with_requests(upstream, false, false, change)
    }

    /// With `small_requests` the server accepts requests with the node, the type, and little more. With `by_header` it knows clients by a
    /// header, and not by their node.
    pub fn with_requests(
        upstream: Variant,
        small_requests: bool,
        by_header: bool,
        change: impl FnOnce(&mut ProtocolOptions),
    ) -> Self {
        // Everything in these histories is faster than this.
        let second_silence = Duration::from_secs(7200);
        // Waits of other changes are tested in `core/tests/order.rs`.
        let reference_hold = Duration::ZERO;
        let mut options = ProtocolOptions::default().with(|options| {
            options.upstream.second_silence = second_silence;
            options.hold_referenced(reference_hold);
        });
        change(&mut options);
        let options = Arc::new(options);
        let apart = if by_header { Apart::ByHeader } else { Apart::ByMetadata };
        let token = KeyField::parse("header.x-token").unwrap();
        let fields = [KeyRule::default().fields(), &[token]].concat();
        let rule = Arc::new(KeyRule::of(fields));
        let key_of = |node| rule.key_showing(&apart.encoded_node(node, 0), &apart.headers(node)).unwrap();
        let keys: Vec<_> = (0..KEYS).map(key_of).collect();
        let units =
            keys.iter().map(|key| UnitRig::new(upstream, small_requests, key.upstream_node(), &options)).collect();
        Self {
            now: Moment::START + Duration::from_secs(1),
            truths: vec![Truth::default(); KEYS.into()],
            units,
            clients: Vec::new(),
            serial: 0,
            pieces: false,
            slow_interest: false,
            trace: std::env::var_os("WEIR_TRACE").is_some(),
            epoch: 1,
            store: BodyStore::default(),
            options,
            next_id: 0,
            rule,
            keys,
            apart,
            coverage: Coverage::default(),
        }
    }

    /// Advances time, and runs the timers that are due.
    pub fn advance(&mut self, by: Duration) -> Result<(), String> {
        self.now = self.now + by;
        let now = self.now;
        for key in 0..KEYS {
            let rig = &mut self.units[usize::from(key)];
            rig.view.on_time(now);
            let expired = rig.forgotten.len();
            self.settle(key, true)?;
            let rig = &self.units[usize::from(key)];
            for (kind, name) in &rig.forgotten[expired..] {
                let wants = |judge: &Judge| {
                    judge.wants(*kind).is_some_and(|wants| match name {
                        None => wants.wildcard,
                        Some(name) => wants.names.contains(name),
                    })
                };
                let counted = |client: &&Pretend| client.key == key && !client.ended && client.interest.is_empty();
                let wanted = self.clients.iter().filter(counted).any(|client| wants(&client.judge));
                ensure(!wanted, || format!("{name:?} of {kind:?} was dropped while somebody wants it"))?;
            }
        }
        Ok(())
    }

    pub fn unstall(&mut self) {
        self.clients.iter_mut().for_each(|client| client.stalled = false);
    }
}

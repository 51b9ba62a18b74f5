//! A client with what it was sent, for dumps and for client status.

use std::sync::Arc;

use crate::protocol::moment::Moment;
use crate::protocol::session::Holdings;
use crate::protocol::view::Snapshot;

/// A client, and what it was sent.
pub(crate) struct ClientHoldings {
    pub(crate) session: u64,
    /// The `id` of its node.
    pub(crate) node_id: String,
    pub(crate) peer: String,
    /// The hash of its sharing key.
    pub(crate) view: String,
    pub(crate) holdings: Holdings,
    /// The state of its view, no older than what it was sent.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) now: Moment,
}

/// A session whose client can be shown. This takes the session's lock, and no other.
pub(crate) trait HoldingsSource: Send + Sync {
    fn node_id(&self) -> &str;
    fn holdings(&self) -> ClientHoldings;
}

//! How clients are assigned to views and served.

use std::sync::Arc;

use crate::protocol::options::ProtocolOptions;
use crate::protocol::session::Variant;
use crate::protocol::sources::Plan;
use crate::relay::view_quota::ViewQuota;
use crate::xds::{Access, KeyRule, Peer, Permissions, TypeTable};

/// How clients are assigned to views and served.
#[derive(Debug, Clone)]
pub struct ViewsOptions {
    pub rule: KeyRule,
    /// A client without a node counts as one whose node is empty; otherwise it is rejected (TRN-12).
    pub(crate) accept_missing_node: bool,
    /// The largest number of views at one time.
    pub(crate) max_views: usize,
    /// The largest number of views that one connection may have made; 0: no limit.
    pub(crate) max_views_per_connection: usize,
    /// The largest number of views that the connections of one identity may have made; 0: no limit.
    pub(crate) max_views_per_identity: usize,
    /// The largest number of views with series of their own in the metrics.
    pub(crate) max_in_metrics: usize,
    pub(crate) table: TypeTable,
    pub(crate) access: Access,
    pub permissions: Permissions,
    pub protocol: ProtocolOptions,
    /// Memory for what all clients state that they hold, until it is judged.
    pub(crate) stated_versions_bytes: usize,
    pub(crate) plan: Plan,
}

/// A client that opens a stream, and the kind of stream.
#[derive(Debug, Clone)]
pub(crate) struct ClientInfo {
    pub(crate) variant: Variant,
    /// The type of a stream that serves only one.
    pub(crate) only: Option<&'static str>,
    /// It stays open, as opposed to a call for one response.
    pub(crate) is_stream: bool,
    pub(crate) peer: Arc<Peer>,
    /// What counts the views that it makes.
    pub(crate) quota: Arc<ViewQuota>,
}

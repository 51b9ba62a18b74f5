//! Which clients are accepted, and why one is not.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::protocol::session::{Identity, IdentityError};
use weir_core::protocol::upstream::ServerStatus;
use weir_core::xds::{Access, Clearance, Denied, HeaderHashes, KeyRule, Peer, Permissions, Permit};

use super::live_permissions::LivePermissions;
use super::views::split::Split;
use crate::limit::Limit;
use crate::memory::NoRoom;

/// Decides who a client is, which key that gives it, and what it may read.
pub(super) struct Admission {
    rule: Arc<KeyRule>,
    /// If true, a client without a node counts as one with an empty node.
    accept_missing_node: bool,
    access: Access,
    permissions: Arc<LivePermissions>,
    /// The generation that the rule and the access rules belong to.
    generation: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the first request of a stream has no node")]
    NoNode,
    #[error("invalid node: expected an encoded envoy.config.core.v3.Node")]
    BadNode,
    #[error("too many views: the limit is {limit} (views.max){}", beside(.split))]
    TooManyViews { limit: usize, split: Option<Split> },
    #[error("too many views of one connection: the limit is {limit} (limits.views_per_connection){}", beside(.split))]
    TooManyViewsOfConnection { limit: usize, split: Option<Split> },
    #[error("too many views of one identity: the limit is {limit} (limits.views_per_identity){}", beside(.split))]
    TooManyViewsOfIdentity { limit: usize, split: Option<Split> },
    #[error("too many views of one tenant: the limit is {limit} (limits.views_per_tenant){}", beside(.split))]
    TooManyViewsOfTenant { limit: usize, split: Option<Split> },
    #[error("too many streams of one tenant: the limit is {limit} (limits.streams_per_tenant); close some")]
    TooManyStreamsOfTenant { limit: usize },
    #[error("{0}")]
    NoMemory(NoRoom),
    #[error("{0}")]
    Denied(Box<Denied>),
    #[error("the control plane refuses the headers of this client: {0}")]
    RefusedByServer(Arc<ServerStatus>),
    #[error("the relay is shutting down")]
    Stopping,
    #[error("the configuration of the relay has changed since this stream was opened; open another")]
    ConfigurationChanged,
}

impl Admission {
    pub(super) fn new(
        rule: Arc<KeyRule>,
        accept_missing_node: bool,
        access: Access,
        permissions: Arc<LivePermissions>,
    ) -> Self {
        let generation = permissions.generation();
        Self { rule, accept_missing_node, access, permissions, generation }
    }

    /// Keeps the permissions in force, for a configuration that replaces an earlier one.
    pub(super) fn with_permissions(self, permissions: Arc<LivePermissions>) -> Self {
        Self { generation: permissions.generation(), permissions, ..self }
    }

    /// Returns the permissions, which decide who may be which client.
    pub(super) fn permissions(&self) -> &Arc<LivePermissions> {
        &self.permissions
    }

    /// Returns the identity of a client by its node, if it sent one. Permissions of a later configuration were never checked with this rule.
    pub(super) fn identify(
        &self,
        peer: &Arc<Peer>,
        headers: &HeaderHashes,
        node: Option<&Bytes>,
    ) -> Result<Identity, AdmissionError> {
        let permissions = self.permissions.current_for(self.generation).ok_or(AdmissionError::ConfigurationChanged)?;
        self.identify_by(permissions, peer, headers, node)
    }

    /// Judges a later node of a client that has its key and is served by it.
    pub(super) fn judge(&self, peer: &Arc<Peer>, headers: &HeaderHashes, node: &Bytes) -> Result<(), AdmissionError> {
        self.identify_by(self.permissions.current(), peer, headers, Some(node)).map(drop)
    }

    fn identify_by(
        &self,
        permissions: Permissions,
        peer: &Arc<Peer>,
        headers: &HeaderHashes,
        node: Option<&Bytes>,
    ) -> Result<Identity, AdmissionError> {
        let nobody = Bytes::new();
        let node = node.or(self.accept_missing_node.then_some(&nobody)).ok_or(AdmissionError::NoNode)?;
        Identity::of(self.rule.clone(), permissions, peer.clone(), headers.clone(), node).map_err(|error| match error {
            IdentityError::Node(_) => AdmissionError::BadNode,
            IdentityError::Denied(denied) => AdmissionError::Denied(Box::new(denied)),
        })
    }

    /// Returns what a client may read, by the permissions and by the access rules.
    pub(super) fn clearance(&self, peer: &Peer, identity: &Identity, at_hub: bool) -> Clearance {
        // The hub shares no secrets: the rules of each view decide which client may read a secret, and the hub has no such rules.
        let permit = if at_hub { Some(Arc::new(Permit::all_but_secrets())) } else { identity.permit().cloned() };
        self.access.clearance(peer.ip()).with_permit(permit)
    }
}

impl AdmissionError {
    /// Metric labels, in the order of `place`.
    pub(crate) const REASONS: [&str; 12] = [
        "no_node",
        "bad_node",
        "too_many_views",
        "too_many_views_of_connection",
        "stopping",
        "denied",
        "too_many_views_of_identity",
        "no_memory",
        "too_many_views_of_tenant",
        "too_many_streams_of_tenant",
        "refused_by_server",
        "configuration_changed",
    ];

    pub(in crate::relay) fn place(&self) -> usize {
        match self {
            Self::NoNode => 0,
            Self::BadNode => 1,
            Self::TooManyViews { .. } => 2,
            Self::TooManyViewsOfConnection { .. } => 3,
            Self::Stopping => 4,
            Self::Denied(_) => 5,
            Self::TooManyViewsOfIdentity { .. } => 6,
            Self::NoMemory(_) => 7,
            Self::TooManyViewsOfTenant { .. } => 8,
            Self::TooManyStreamsOfTenant { .. } => 9,
            Self::RefusedByServer(_) => 10,
            Self::ConfigurationChanged => 11,
        }
    }

    pub(in crate::relay) fn limit(&self) -> Option<Limit> {
        match self {
            Self::TooManyViews { .. } => Some(Limit::Views),
            Self::TooManyViewsOfConnection { .. } => Some(Limit::ViewsPerConnection),
            Self::TooManyViewsOfIdentity { .. } => Some(Limit::ViewsPerIdentity),
            Self::TooManyViewsOfTenant { .. } => Some(Limit::ViewsPerTenant),
            Self::TooManyStreamsOfTenant { .. } => Some(Limit::StreamsPerTenant),
            // Counted by the component that refuses it.
            Self::NoNode
            | Self::BadNode
            | Self::Denied(_)
            | Self::RefusedByServer(_)
            | Self::Stopping
            | Self::ConfigurationChanged
            | Self::NoMemory(_) => None,
        }
    }
}

fn beside(split: &Option<Split>) -> String {
    split.as_ref().map(|split| format!("; {split}")).unwrap_or_default()
}

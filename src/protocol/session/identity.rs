//! The identity of a stream's client. Clients send the node in the first request, and some in every request (TRN-11, SOTW-10).

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::xds::{Denied, KeyRule, NodeError, Peer, Permissions, Permit, SharingKey};

/// The key of a stream's first node, what its client may have, and what is needed to judge a later node.
#[derive(Debug, Clone)]
pub struct Identity {
    rule: Arc<KeyRule>,
    permissions: Permissions,
    peer: Arc<Peer>,
    key: SharingKey,
    permit: Option<Arc<Permit>>,
    /// The hash of the last node: Envoy repeats 61 kB of it with each request, and equal bytes are not parsed again.
    seen: u128,
}

impl Identity {
    /// Judges a stream's first node and computes its key.
    pub fn of(
        rule: Arc<KeyRule>,
        permissions: Permissions,
        peer: Arc<Peer>,
        node: &[u8],
    ) -> Result<Self, IdentityError> {
        let (key, permit) = judge(&rule, &permissions, &peer, node)?;
        Ok(Self { rule, permissions, peer, key, permit: permit.map(Arc::new), seen: xxh3_128(node) })
    }

    pub(crate) fn key(&self) -> &SharingKey {
        &self.key
    }

    /// Returns what the client may have, if there are rules.
    pub(crate) fn permit(&self) -> Option<&Arc<Permit>> {
        self.permit.as_ref()
    }

    /// Whether a later node still has the same key (KEY-14). An unreadable one does not. Fails if the client may not be that node.
    pub(crate) fn still_is(&mut self, node: &[u8]) -> Result<bool, Denied> {
        let hash = xxh3_128(node);
        if hash == self.seen {
            return Ok(true);
        }
        self.seen = hash;
        match judge(&self.rule, &self.permissions, &self.peer, node) {
            Ok((key, _)) => Ok(key == self.key),
            Err(IdentityError::Node(_)) => Ok(false),
            Err(IdentityError::Denied(denied)) => Err(denied),
        }
    }
}

/// Returns the key of a node, and what its client may have, if it may be that node.
fn judge(
    rule: &KeyRule,
    permissions: &Permissions,
    peer: &Peer,
    node: &[u8],
) -> Result<(SharingKey, Option<Permit>), IdentityError> {
    match permissions.judge(peer, node)? {
        None => Ok((rule.key(node)?, None)),
        Some(permit) => Ok((rule.key_of_tenant(node, permit.tenant.as_deref())?, Some(permit))),
    }
}

/// Why a client has no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Its node cannot be read.
    #[error("{0}")]
    Node(NodeError),
    /// It may not be what it says.
    #[error("{0}")]
    Denied(Denied),
}

impl From<NodeError> for IdentityError {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl From<Denied> for IdentityError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Node(error) => Self::Node(error),
            denied => Self::Denied(denied),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::node::Node;
    use crate::xds::{IdentityPattern, KeyField, Network, NodeField, PermissionRule, Template};

    fn node(id: &str, cluster: &str) -> Vec<u8> {
        Node { id: id.into(), cluster: cluster.into(), ..Node::default() }.encode_to_vec()
    }

    #[test]
    fn key_14_another_key_is_another_client_and_another_id_is_not() {
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let mut identity = Identity::of(Arc::default(), Permissions::default(), peer, &node("1", "web")).unwrap();
        assert_eq!(identity.still_is(&node("1", "web")), Ok(true));
        assert_eq!(identity.still_is(&node("2", "web")), Ok(true), "the id is not in the key");
        assert_eq!(identity.still_is(&node("2", "other")), Ok(false));
        assert_eq!(identity.still_is(&[0x0a, 9]), Ok(false));
    }

    #[test]
    fn a_later_node_is_judged_before_its_key_is_compared() {
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let rule = PermissionRule {
            name: "local".into(),
            identities: vec![IdentityPattern::Network(Network::parse("127.0.0.0/8").unwrap())],
            node: vec![NodeField { field: KeyField::Id, values: vec![Template::parse("own-*").unwrap()] }],
            types: None,
            names: Vec::new(),
            secrets: Vec::new(),
            tenant: None,
            relays_for: Vec::new(),
            client_status: false,
        };
        let permissions = Permissions::of(vec![rule]);
        let judged = Identity::of(Arc::default(), permissions.clone(), peer.clone(), &node("other", "web"));
        assert!(matches!(judged, Err(IdentityError::Denied(_))));
        let mut identity = Identity::of(Arc::default(), permissions, peer, &node("own-1", "web")).unwrap();
        assert_eq!(identity.still_is(&node("own-2", "web")), Ok(true));
        let lie = identity.still_is(&node("other", "web")).unwrap_err();
        assert!(lie.to_string().starts_with("node.id is \"other\""), "its key is the same, and it is a lie: {lie}");
    }
}

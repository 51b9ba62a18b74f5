//! The identity of a stream's client. Clients send the node in the first request, and some in every request (TRN-11, SOTW-10).

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::xds::{KeyRule, NodeError, SharingKey};

/// The key of a stream's first node, and what is needed to compare a later node.
#[derive(Debug, Clone)]
pub struct Identity {
    rule: Arc<KeyRule>,
    key: SharingKey,
    /// The hash of the last node: Envoy repeats 61 kB of it with each request, and equal bytes are not parsed again.
    seen: u128,
}

impl Identity {
    /// Computes the key of a stream's first node. Fails if the node cannot be read or must not share.
    pub fn of(rule: Arc<KeyRule>, node: &[u8]) -> Result<Self, NodeError> {
        let key = rule.key(node)?;
        Ok(Self { rule, key, seen: xxh3_128(node) })
    }

    pub(crate) fn key(&self) -> &SharingKey {
        &self.key
    }

    /// Whether a later node still has the same key (KEY-14). An unreadable one does not.
    pub(crate) fn still_is(&mut self, node: &[u8]) -> bool {
        let hash = xxh3_128(node);
        if hash == self.seen {
            return true;
        }
        self.seen = hash;
        self.rule.key(node).is_ok_and(|key| key == self.key)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::node::Node;

    fn node(id: &str, cluster: &str) -> Vec<u8> {
        Node { id: id.into(), cluster: cluster.into(), ..Node::default() }.encode_to_vec()
    }

    #[test]
    fn key_14_another_key_is_another_client_and_another_id_is_not() {
        let mut identity = Identity::of(Arc::default(), &node("1", "web")).unwrap();
        assert!(identity.still_is(&node("1", "web")));
        assert!(identity.still_is(&node("2", "web")), "the id is not in the key");
        assert!(!identity.still_is(&node("2", "other")));
        assert!(!identity.still_is(&[0x0a, 9]));
    }
}

//! The node of one client, which servers are shown on behalf of all clients of its key (`views.node: member`).

use bytes::Bytes;
use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::{TRANSPORT_FEATURES, relay_features, tenant};
use crate::proto::node::Node;
use crate::proto::node::node::UserAgentVersionType;
use crate::xds::wire::{self, Value};

/// The node of one client in the form that servers are shown. It differs from the client's own node in two things: the relay's client
/// features replace those that concern transport, and the tenant is that of the client's key, whatever the client states. Its key is the
/// client's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberNode {
    /// What may differ from client to client.
    own: Bytes,
    /// The fields with the extensions: most of an Envoy's node, and the same for all of one build.
    extensions: Bytes,
}

impl MemberNode {
    /// Returns the node as it is sent.
    pub fn encoded(&self) -> Bytes {
        if self.extensions.is_empty() { self.own.clone() } else { [&*self.own, &*self.extensions].concat().into() }
    }

    /// Returns how many bytes the node has without the extensions, which it mostly shares with other nodes.
    pub fn own_bytes(&self) -> usize {
        self.own.len()
    }

    /// Returns a hash of the whole node.
    pub(crate) fn digest(&self) -> u128 {
        xxh3_128(&[&self.own, &self.extensions].map(|part| xxh3_128(part).to_le_bytes()).concat())
    }

    /// Returns the part that is mostly the same for all clients of a key.
    pub(crate) fn extensions(&self) -> &Bytes {
        &self.extensions
    }

    /// Replaces the extensions with another copy of the same bytes, so that the old copy can be freed.
    pub(crate) fn share_extensions(&mut self, same: Bytes) {
        debug_assert_eq!(self.extensions, same);
        self.extensions = same;
    }
}

/// Returns the node that servers are shown for a client, if `node` is a readable message. `tenant` is that of the client's key. Fields stay
/// as they were sent, also those that this build does not know, with three exceptions: client features, metadata with a tenant, and the
/// order in maps. Maps are written sorted, because some clients write theirs in another order each time (KEY-4).
pub(super) fn member_node(node: &[u8], tenant: Option<&str>) -> Option<MemberNode> {
    let mut sorted = maps(node)?;
    tenant::take(&mut sorted);
    if let Some(tenant) = tenant {
        tenant::set(&mut sorted, tenant);
    }
    let (mut own, mut extensions) = (Vec::new(), Vec::new());
    for field in wire::fields(node) {
        let field = field?;
        match (field.number, field.value) {
            (EXTENSIONS, _) => extensions.extend_from_slice(field.raw),
            (METADATA | USER_AGENT_BUILD_VERSION | DYNAMIC_PARAMETERS, _) => {}
            (CLIENT_FEATURES, Value::Bytes(feature)) if is_of_transport(feature) => {}
            _ => own.extend_from_slice(field.raw),
        }
    }
    own.extend(Node { client_features: relay_features(), ..sorted }.encode_to_vec());
    Some(MemberNode { own: own.into_boxed_slice().into(), extensions: extensions.into_boxed_slice().into() })
}

/// Reads only those fields of an encoded node that have maps.
fn maps(node: &[u8]) -> Option<Node> {
    let mut encoded = Vec::new();
    for field in wire::fields(node) {
        let field = field?;
        if matches!(field.number, METADATA | USER_AGENT_VERSION | USER_AGENT_BUILD_VERSION | DYNAMIC_PARAMETERS) {
            encoded.extend_from_slice(field.raw);
        }
    }
    let mut maps = Node::decode(&*encoded).ok()?;
    // If there are two versions, the last one counts. A version that is text has no map.
    maps.user_agent_version_type.take_if(|version| matches!(version, UserAgentVersionType::UserAgentVersion(_)));
    Some(maps)
}

fn is_of_transport(feature: &[u8]) -> bool {
    TRANSPORT_FEATURES.iter().any(|known| known.as_bytes() == feature)
}

const METADATA: u32 = 3;
const USER_AGENT_VERSION: u32 = 7;
const USER_AGENT_BUILD_VERSION: u32 = 8;
const EXTENSIONS: u32 = 9;
const CLIENT_FEATURES: u32 = 10;
const DYNAMIC_PARAMETERS: u32 = 12;

#[cfg(test)]
mod tests;

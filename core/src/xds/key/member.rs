//! The node of one client as servers are shown it for all clients of its key (`views.node: member`).

use bytes::Bytes;
use prost::Message;
use prost_types::Struct;

use super::{TRANSPORT_FEATURES, relay_features, tenant};
use crate::proto::node::Node;
use crate::xds::wire::{self, Value};

/// The node of one client as servers are shown it: its own, with the relay's client features in place of those that concern transport, and
/// with the tenant of its key, whatever it states itself. Its key is the one that the client has.
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

    /// Returns how many bytes it has beside those that are mostly shared with others.
    pub fn own_bytes(&self) -> usize {
        self.own.len()
    }

    /// Returns the part that is mostly the same for all clients of a key.
    pub(crate) fn extensions(&self) -> &Bytes {
        &self.extensions
    }

    /// Uses another copy of the same part, so that this one is free.
    pub(crate) fn share_extensions(&mut self, same: Bytes) {
        debug_assert_eq!(self.extensions, same);
        self.extensions = same;
    }
}

/// Returns the node that is shown for a client of a key with this tenant, or none; `None` if it is no readable message. All fields stay as
/// they were sent, those too that this build does not know, but for the client features and for metadata with a tenant.
pub(super) fn member_node(node: &[u8], tenant: Option<&str>) -> Option<MemberNode> {
    let mut judged = Node { metadata: metadata(node)?, ..Node::default() };
    let is_judged = tenant::take(&mut judged).is_some() || tenant.is_some();
    if let Some(tenant) = tenant {
        tenant::set(&mut judged, tenant);
    }
    let (mut own, mut extensions) = (Vec::new(), Vec::new());
    for field in wire::fields(node) {
        let field = field?;
        match (field.number, field.value) {
            (EXTENSIONS, _) => extensions.extend_from_slice(field.raw),
            (METADATA, _) if is_judged => {}
            (CLIENT_FEATURES, Value::Bytes(feature)) if is_of_transport(feature) => {}
            _ => own.extend_from_slice(field.raw),
        }
    }
    let added = Node { client_features: relay_features(), ..if is_judged { judged } else { Node::default() } };
    own.extend(added.encode_to_vec());
    Some(MemberNode { own: own.into_boxed_slice().into(), extensions: extensions.into_boxed_slice().into() })
}

/// Returns the metadata of an encoded node, if it has any.
fn metadata(node: &[u8]) -> Option<Option<Struct>> {
    let mut has_any = false;
    for field in wire::fields(node) {
        has_any |= field?.number == METADATA;
    }
    if !has_any {
        return Some(None);
    }
    Struct::decode(&*wire::merged(node, METADATA)?).ok().map(Some)
}

fn is_of_transport(feature: &[u8]) -> bool {
    TRANSPORT_FEATURES.iter().any(|known| known.as_bytes() == feature)
}

const METADATA: u32 = 3;
const EXTENSIONS: u32 = 9;
const CLIENT_FEATURES: u32 = 10;

#[cfg(test)]
mod tests;

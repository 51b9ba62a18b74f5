//! The canonical form of a resource's metadata: map order on the wire is random, and a version must not depend on it.

use prost::Message;

use crate::proto::node::Metadata;

/// Returns the same bytes for equal metadata, whatever the order of its maps. Bytes that do not parse are returned unchanged.
pub(crate) fn canonical(encoded: &[u8]) -> Vec<u8> {
    match Metadata::decode(encoded) {
        Ok(metadata) => metadata.encode_to_vec(),
        Err(_) => encoded.to_vec(),
    }
}

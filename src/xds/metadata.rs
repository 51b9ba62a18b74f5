//! A resource's metadata in one canonical form: map order on the wire is random, and a version must not be.

use prost::Message;

use crate::proto::node::Metadata;

/// The same bytes for the same metadata, however its maps were ordered. Bytes that are no metadata stand for themselves.
pub(crate) fn canonical(encoded: &[u8]) -> Vec<u8> {
    match Metadata::decode(encoded) {
        Ok(metadata) => metadata.encode_to_vec(),
        Err(_) => encoded.to_vec(),
    }
}

//! The bytes of a resource, never changed.

use std::sync::OnceLock;

use bytes::Bytes;

use super::name::Name;
use super::references::{self, LeadsTo};
use super::types::Type;
use super::version::ContentHash;

/// The bytes of a resource and the hash of type and bytes.
#[derive(Debug)]
pub struct Body {
    hash: ContentHash,
    bytes: Bytes,
    /// Computed on first use, and not under the lock of the store.
    leads_to: OnceLock<Option<Box<LeadsTo>>>,
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, &self.bytes) == (other.hash, &other.bytes)
    }
}

impl Eq for Body {}

impl Body {
    /// Copies the bytes: a slice would keep the whole receive buffer alive as long as the resource.
    pub(super) fn copied(hash: ContentHash, bytes: &[u8]) -> Self {
        Self { hash, bytes: Bytes::copy_from_slice(bytes), leads_to: OnceLock::new() }
    }

    /// Returns what the body leads to. `kind` is the type of the body.
    pub fn leads_to(&self, kind: &Type) -> Option<&LeadsTo> {
        if !references::may_lead(kind) {
            return None;
        }
        self.leads_to.get_or_init(|| references::leads_to(kind, &self.bytes)).as_deref()
    }

    /// Returns the clusters that it leads to, sorted.
    pub fn clusters(&self, kind: &Type) -> &[Name] {
        self.leads_to(kind).map_or(&[], |found| &found.clusters)
    }

    pub(crate) fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

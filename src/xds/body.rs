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
    /// Looked for when first asked, not while others wait for the store.
    leads_to: OnceLock<Option<Box<LeadsTo>>>,
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, &self.bytes) == (other.hash, &other.bytes)
    }
}

impl Eq for Body {}

impl Body {
    /// Copies: a slice of a receive buffer would keep the whole buffer alive for as long as the resource lives.
    pub(super) fn copied(hash: ContentHash, bytes: &[u8]) -> Self {
        Self { hash, bytes: Bytes::copy_from_slice(bytes), leads_to: OnceLock::new() }
    }

    /// What it leads to, as a body of this type, which is the only one that it is of.
    pub fn leads_to(&self, kind: &Type) -> Option<&LeadsTo> {
        if !references::may_lead(kind) {
            return None;
        }
        self.leads_to.get_or_init(|| references::leads_to(kind, &self.bytes)).as_deref()
    }

    /// The clusters among that, sorted.
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

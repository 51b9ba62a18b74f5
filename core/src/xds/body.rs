//! The bytes of a resource, never changed.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::name::Name;
use super::references::{self, ClusterReferences};
use super::types::Type;
use super::version::ContentHash;

/// The bytes of a resource and the hash of type and bytes.
pub struct Body {
    hash: ContentHash,
    bytes: Bytes,
    /// The type URL of the body, if it differs from the type of its resource.
    type_url: Option<Box<str>>,
    /// The bytes of all bodies in the store, these included.
    total: Arc<AtomicUsize>,
    /// Computed on first use, and not under the lock of the store.
    cluster_references: OnceLock<Option<Box<ClusterReferences>>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Body");
        out.field("hash", &self.hash).field("type_url", &self.type_url).field("bytes", &self.bytes).finish()
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, &self.bytes, &self.type_url) == (other.hash, &other.bytes, &other.type_url)
    }
}

impl Eq for Body {}

impl Drop for Body {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Body {
    /// Copies the bytes: a slice would keep the whole receive buffer alive as long as the resource.
    pub(super) fn copied(hash: ContentHash, type_url: Option<&str>, bytes: &[u8], total: &Arc<AtomicUsize>) -> Self {
        total.fetch_add(bytes.len(), Ordering::Relaxed);
        let (bytes, type_url) = (Bytes::copy_from_slice(bytes), type_url.map(Into::into));
        Self { hash, bytes, type_url, total: total.clone(), cluster_references: OnceLock::new() }
    }

    /// Returns the type URL of the body, if it differs from the type of its resource.
    pub fn type_url(&self) -> Option<&str> {
        self.type_url.as_deref()
    }

    /// Returns what the body refers to. `kind` is the type of the body.
    pub fn cluster_references(&self, kind: &Type) -> Option<&ClusterReferences> {
        if !references::may_refer(kind) {
            return None;
        }
        self.cluster_references.get_or_init(|| references::cluster_references(kind, &self.bytes)).as_deref()
    }

    /// Returns the clusters that the body refers to, sorted.
    pub fn clusters(&self, kind: &Type) -> &[Name] {
        self.cluster_references(kind).map_or(&[], |found| &found.clusters)
    }

    /// Whether this body, an endpoint assignment, has a host that may take traffic.
    pub(crate) fn has_usable_host(&self) -> bool {
        references::has_usable_host(&self.bytes)
    }

    pub(crate) fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

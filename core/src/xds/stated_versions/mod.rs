//! What clients state that they hold (`initial_resource_versions`). Clients that state the same share one copy.

mod entries;
mod ledger;
mod store;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

pub use self::entries::StatedEntries;
use self::ledger::HoldId;
pub use self::store::StatedVersionsStore;
use super::name::Name;
use super::version::ContentHash;

/// Names that a client states that it holds, each with its content. A version that no relay has made matches no content, so only its name
/// is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct StatedVersions {
    /// Ordered by name.
    entries: Box<[(Name, Option<ContentHash>)]>,
}

impl StatedVersions {
    /// Returns how many names are stated.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is stated.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the index of a name in the order of all names, if it is stated.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|(stated, _)| stated.as_str().cmp(name)).ok()
    }

    /// Returns the content that is stated at an index.
    pub(crate) fn content(&self, place: usize) -> Option<ContentHash> {
        self.entries.get(place)?.1
    }

    /// Returns the names in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.iter().map(|(name, _)| name)
    }

    /// Returns each name with its content, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, Option<ContentHash>)> {
        self.entries.iter().map(|(name, content)| (name, *content))
    }

    /// Returns about how much memory the versions take.
    fn bytes(&self) -> usize {
        let texts: usize = self.names().map(|name| name.as_str().len() + NAME_OVERHEAD).sum();
        texts + self.entries.len() * size_of::<(Name, Option<ContentHash>)>() + OVERHEAD
    }
}

/// One stream's share in stated versions, until they are judged. Dropping it returns the memory if no other stream shares it.
#[derive(Debug)]
pub struct HeldVersions {
    versions: Arc<StatedVersions>,
    share: Option<Share>,
}

/// Where a share is in its store.
#[derive(Debug)]
struct Share {
    store: Weak<StatedVersionsStore>,
    limit: usize,
    id: HoldId,
    refused: Arc<AtomicBool>,
}

impl HeldVersions {
    /// Returns versions that no store counts, for clients within the process.
    pub(crate) fn uncounted(entries: StatedEntries) -> Self {
        Self { versions: Arc::new(entries.into_versions()), share: None }
    }

    /// Returns the limit of the store in bytes, if the store has refused the share to make room for others. The stream then has to end.
    pub(crate) fn refused_above(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        self.share.as_ref().filter(|share| share.refused.load(Ordering::SeqCst)).map(|share| share.limit)
    }
}

impl std::ops::Deref for HeldVersions {
    type Target = StatedVersions;

    fn deref(&self) -> &StatedVersions {
        &self.versions
    }
}

impl Drop for HeldVersions {
    fn drop(&mut self) {
        if let Some(share) = &self.share
            && let Some(store) = share.store.upgrade()
        {
            store.release(share.id);
        }
    }
}

/// What the text of a name takes besides its bytes: two counts, and what the allocator adds.
const NAME_OVERHEAD: usize = 32;
/// What a copy takes besides its entries.
const OVERHEAD: usize = 256;

//! How many views may exist because of one connection.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::xds::SharingKey;

/// The views that one connection made, joined by other clients or not, for as long as they exist.
///
/// Clients without an authenticated identity are bounded by connection. A client with one would bring the quota of its identity instead.
#[derive(Debug, Default)]
pub(crate) struct ViewQuota {
    /// Changed only under the lock of the views.
    made: Mutex<HashSet<SharingKey>>,
}

impl ViewQuota {
    pub(super) fn made(&self) -> MutexGuard<'_, HashSet<SharingKey>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

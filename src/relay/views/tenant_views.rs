//! The views of each tenant, whichever client made them.

use std::collections::HashMap;
use std::sync::Arc;

use weir_core::xds::SharingKey;

use super::quotas::MadeViews;

#[derive(Default)]
pub(super) struct TenantViews {
    of: HashMap<Arc<str>, Arc<MadeViews>>,
}

impl TenantViews {
    /// Returns the views of the tenant of a key, if that has one and there are any.
    pub(super) fn beside(&self, key: &SharingKey) -> Option<Arc<MadeViews>> {
        self.of.get(&key.tenant()?).cloned()
    }

    pub(super) fn add(&mut self, key: &SharingKey) {
        if let Some(tenant) = key.tenant() {
            self.of.entry(tenant).or_default().add(key);
        }
    }

    pub(super) fn remove(&mut self, key: &SharingKey) {
        let Some(tenant) = key.tenant() else { return };
        let Some(made) = self.of.get(&tenant) else { return };
        made.remove(key);
        if made.count() == 0 {
            self.of.remove(&tenant);
        }
    }
}

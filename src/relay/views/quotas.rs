//! How many views one client may make.

use std::sync::Arc;

use super::map::ViewMap;
use super::{ClientInfo, Split, Views};
use crate::relay::admission::AdmissionError;
use crate::relay::view_quota::{MadeViews, ViewQuota};

impl Views {
    /// Returns what counts the views of a new connection.
    pub(crate) fn quota(&self, identity: Option<&str>) -> Arc<ViewQuota> {
        let identity = identity.filter(|_| self.max_views_per_identity > 0);
        Arc::new(identity.map(|identity| self.identity_quotas.quota(identity)).unwrap_or_default())
    }

    /// Checks that a client may make another view.
    pub(super) fn check_quota(&self, views: &mut ViewMap, by: &ClientInfo) -> Result<(), AdmissionError> {
        let limit = self.max_views_per_connection;
        let room = self.find_room(views, by.quota.of_connection(), limit);
        room.map_err(|split| AdmissionError::TooManyViewsOfConnection { limit, split })?;
        let Some(of_identity) = by.quota.of_identity() else { return Ok(()) };
        let limit = self.max_views_per_identity;
        let room = self.find_room(views, of_identity, limit);
        room.map_err(|split| AdmissionError::TooManyViewsOfIdentity { limit, split })
    }

    /// Finds room for another view beside these, one of which may have to go. `Err`: there is none, and this field splits them most.
    fn find_room(&self, views: &mut ViewMap, made: &MadeViews, limit: usize) -> Result<(), Option<Split>> {
        let is_full = || limit > 0 && made.count() >= limit;
        if is_full() {
            views.make_room_of(made);
        }
        if is_full() { Err(self.widest(&views.values_of(made))) } else { Ok(()) }
    }
}

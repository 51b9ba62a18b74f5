//! The running views, and which of them makes room for another.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::xds::{KeyRule, SharingKey};

use super::ViewHandle;
use super::lines::ViewLines;
use crate::memory::costs;
use crate::relay::admission::AdmissionError;
use crate::relay::views::quotas::{MadeBy, MadeViews, ViewLimits, ViewQuota};
use crate::relay::views::split::{FieldValues, Split};
use crate::relay::views::tenant_views::TenantViews;

#[derive(Default)]
pub(in crate::relay::views) struct RunningViews {
    pub(super) views: HashMap<SharingKey, ViewHandle>,
    pub(super) values: FieldValues,
    of_tenants: TenantViews,
    pub(super) lines: ViewLines,
}

/// The views of a replaced configuration end together.
impl Drop for RunningViews {
    fn drop(&mut self) {
        self.views.iter().for_each(|(key, view)| view.maker.views().remove(key));
    }
}

impl RunningViews {
    /// Finds room for another view of a client. At the limit of the client or of all clients, another view may have to end.
    pub(in crate::relay::views) fn find_room(
        &mut self,
        limits: &ViewLimits,
        key: &SharingKey,
        quota: &ViewQuota,
        rule: &KeyRule,
    ) -> Result<(), AdmissionError> {
        let of_tenant = self.of_tenants.beside(key);
        let made = MadeBy { of_tenant: of_tenant.as_deref(), ..quota.views() };
        limits.find_room(made, |made, limit| self.find_room_of(made, limit, key, rule))?;
        let limit = limits.views;
        if self.views.len() >= limit {
            self.make_room(limit, quota);
        }
        if self.views.len() >= limit {
            // This is for the next attempt: the wanted view has room only after streams of another client have ended.
            quota.account().inspect(|account| account.want_view(limit));
            return Err(AdmissionError::TooManyViews { limit, split: Split::of(&self.values, rule) });
        }
        let room = quota.account().map_or(Ok(()), |account| account.admit(costs::VIEW + costs::SESSION));
        room.map_err(AdmissionError::NoMemory)
    }

    /// Finds room for a key among these views. `Err` if there is none, with the field of the key that splits them most.
    fn find_room_of(
        &mut self,
        made: &MadeViews,
        limit: usize,
        key: &SharingKey,
        rule: &KeyRule,
    ) -> Result<(), Option<Split>> {
        if made.are_full(limit, key, |other| self.views.contains_key(other)) {
            self.make_room_of(made);
        }
        let are_full = made.are_full(limit, key, |other| self.views.contains_key(other));
        if are_full { Err(Split::of(&self.values_of(made), rule)) } else { Ok(()) }
    }

    /// Returns the views whose tasks are running.
    pub(super) fn running(&self) -> impl Iterator<Item = (&SharingKey, &ViewHandle)> {
        self.views.iter().filter(|(_, view)| view.is_running())
    }

    pub(super) fn insert(&mut self, key: SharingKey, view: ViewHandle) {
        self.remove(&key);
        self.values.add(&view.values);
        self.of_tenants.add(&key);
        view.maker.views().add(&key);
        self.views.insert(key, view);
    }

    pub(super) fn remove(&mut self, key: &SharingKey) {
        if let Some(view) = self.views.remove(key) {
            self.values.remove(&view.values);
            self.of_tenants.remove(key);
            view.maker.views().remove(key);
        }
    }

    /// Removes idle views. A view task ends when the last sender of its commands is dropped.
    pub(super) fn retire(&mut self, after: Duration) {
        let now = Instant::now();
        let over = self.views.iter().filter_map(|(key, view)| {
            let retired = view.is_over(after, now);
            if retired {
                self.lines.removed_idle(key);
            }
            (retired || !view.is_running()).then(|| key.clone())
        });
        for key in over.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    /// Removes one view without sessions to make room for a client's new one. It takes the view whose maker is furthest above its part of the
    /// limit; among these, the one that was in use for the shortest time. Interest in it may linger.
    ///
    /// It removes none if the client is itself above its part, and others have had no room a moment ago; or if the client is further above its
    /// part than all those makers, and others have had no room for a while.
    fn make_room(&mut self, limit: usize, wanted_by: &ViewQuota) {
        let now = Instant::now();
        let unused = self.views.iter().filter(|(_, view)| view.stay.is_last());
        let ranked = unused.map(|(key, view)| {
            let above = view.maker.part_of_views(0, limit).max(WHOLE_PART);
            ((above, Reverse(view.usage.used(now))), key)
        });
        let Some(((above, _), key)) = ranked.max_by_key(|(rank, _)| *rank) else { return };
        let has_most = wanted_by.part_of_views(1, limit) > WHOLE_PART && wanted_by.part_of_views(0, limit) > above;
        // A view that was just given up for others must not go to a client above its part.
        let is_for_others = wanted_by
            .account()
            .is_some_and(|account| account.yields_view(limit) || has_most && account.are_views_wanted());
        if !is_for_others {
            self.evict(Some(key.clone()));
        }
    }

    /// The same among the views that one connection or identity made.
    fn make_room_of(&mut self, made: &MadeViews) {
        let shortest =
            made.look(|keys| shortest_used(keys.keys().filter_map(|key| Some((key, self.views.get(key)?)))).cloned());
        self.evict(shortest);
    }

    /// Returns how the fields of the views differ that one connection or identity made. They are few.
    fn values_of(&self, made: &MadeViews) -> FieldValues {
        let mut values = FieldValues::default();
        made.look(|keys| {
            keys.keys().filter_map(|key| self.views.get(key)).for_each(|view| values.add(&view.values));
        });
        values
    }

    fn evict(&mut self, key: Option<SharingKey>) {
        let Some(key) = key else { return };
        self.lines.removed_for_another(&key);
        self.remove(&key);
    }
}

/// The part of a limit that a client has, in thousandths.
const WHOLE_PART: usize = 1000;

/// Returns the view that was in use for the shortest time, of those without sessions.
fn shortest_used<'a>(views: impl Iterator<Item = (&'a SharingKey, &'a ViewHandle)>) -> Option<&'a SharingKey> {
    let now = Instant::now();
    let unused = views.filter(|(_, view)| view.stay.is_last());
    unused.min_by_key(|(_, view)| view.usage.used(now)).map(|(key, _)| key)
}

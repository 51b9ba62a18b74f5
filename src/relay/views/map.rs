//! The views by their keys, with what is known of all of them: how their fields differ, and who made them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::field_values::FieldValues;
use super::handles::ViewHandle;
use crate::relay::view_quota::MadeViews;
use crate::xds::SharingKey;

#[derive(Default)]
pub(super) struct ViewMap {
    views: HashMap<SharingKey, ViewHandle>,
    values: FieldValues,
}

/// The views of a configuration that is replaced go together.
impl Drop for ViewMap {
    fn drop(&mut self) {
        self.views.iter().for_each(|(key, view)| view.maker.remove(key));
    }
}

impl ViewMap {
    pub(crate) fn len(&self) -> usize {
        self.views.len()
    }

    pub(crate) fn get(&self, key: &SharingKey) -> Option<&ViewHandle> {
        self.views.get(key)
    }

    pub(crate) fn values(&self) -> &FieldValues {
        &self.values
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ViewHandle> {
        self.views.values()
    }

    /// Returns the views whose tasks are running.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&SharingKey, &ViewHandle)> {
        self.views.iter().filter(|(_, view)| view.is_running())
    }

    pub(crate) fn insert(&mut self, key: SharingKey, view: ViewHandle) {
        self.remove(&key);
        self.values.add(&view.values);
        view.maker.add(&key);
        self.views.insert(key, view);
    }

    pub(crate) fn remove(&mut self, key: &SharingKey) {
        if let Some(view) = self.views.remove(key) {
            self.values.remove(&view.values);
            view.maker.remove(key);
        }
    }

    /// Removes idle views. A view task ends when the last sender of its commands is dropped.
    pub(crate) fn retire(&mut self, after: Duration) {
        let now = Instant::now();
        let over = self.views.iter().filter_map(|(key, view)| {
            let retired = view.is_over(after, now);
            if retired {
                tracing::info!(view = %key, "view removed; it was idle");
            }
            (retired || !view.is_running()).then(|| key.clone())
        });
        for key in over.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    /// Removes one view without sessions, the one that was in use for the shortest time. Its interest may linger.
    pub(crate) fn make_room(&mut self) {
        let now = Instant::now();
        let unused = self.views.iter().filter(|(_, view)| view.stay.is_last());
        let shortest = unused.min_by_key(|(_, view)| view.usage.used(now)).map(|(key, _)| key.clone());
        self.evict(shortest);
    }

    /// The same among the views that one connection or identity made.
    pub(crate) fn make_room_of(&mut self, made: &MadeViews) {
        let now = Instant::now();
        let keys = made.keys();
        let unused = keys.keys().filter_map(|key| Some((key, self.views.get(key).filter(|view| view.stay.is_last())?)));
        let shortest = unused.min_by_key(|(_, view)| view.usage.used(now)).map(|(key, _)| key.clone());
        drop(keys);
        self.evict(shortest);
    }

    /// Returns how the fields of the views differ that one connection or identity made. They are few.
    pub(crate) fn values_of(&self, made: &MadeViews) -> FieldValues {
        let mut values = FieldValues::default();
        made.keys().keys().filter_map(|key| self.views.get(key)).for_each(|view| values.add(&view.values));
        values
    }

    fn evict(&mut self, key: Option<SharingKey>) {
        let Some(key) = key else { return };
        tracing::info!(view = %key, "view removed to make room; it has no clients");
        self.remove(&key);
    }
}

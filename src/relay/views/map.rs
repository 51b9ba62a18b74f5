//! The views by their keys, with what is known of all of them: how their fields differ, and who made them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::saved::FromDisk;
use crate::relay::command::Command;
use crate::relay::nack_watch::NackWatch;
use crate::relay::published::Published;
use crate::relay::view_quota::{MadeViews, ViewQuota};
use crate::relay::view_usage::{Stay, ViewUsage};
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

/// The handle of one view.
pub(super) struct ViewHandle {
    pub(crate) published: Arc<Published>,
    pub(crate) nacks: Arc<NackWatch>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, by its place in the plan.
    pub(crate) active: Arc<AtomicUsize>,
    pub(crate) stay: Stay,
    /// The values of the fields of its key.
    pub(crate) values: ViewValues,
    /// What counts it for the client because of which it was created.
    pub(crate) maker: Arc<ViewQuota>,
    /// Whether a relay was its first client. A relay has a view for each of its own, so that such views say nothing of how clients share.
    pub(crate) of_relay: bool,
    /// What it began with.
    pub(crate) from_disk: FromDisk,
}

/// What a session needs to join a view. The view stays until the session has left it, or did not join.
pub(super) struct Entrance {
    pub(crate) published: Arc<Published>,
    pub(crate) nacks: Arc<NackWatch>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) stay: Stay,
}

impl ViewHandle {
    pub(crate) fn enter(&self) -> Entrance {
        let (published, commands) = (self.published.clone(), self.commands.clone());
        Entrance { published, nacks: self.nacks.clone(), commands, stay: self.stay.clone() }
    }

    /// Whether the view task is running. It is not after a panic.
    pub(crate) fn is_running(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the view had no session and no interest for long enough, and no session is about to join it. Sessions look a view up under the
    /// same lock, so none can join a view that is no longer in the map.
    pub(crate) fn is_over(&self, after: Duration, now: Instant) -> bool {
        self.stay.is_last() && self.usage.is_over(after, now)
    }
}

/// Pure books: a view is added when it is created, and taken out when it is removed. Texts are kept as hashes.
#[derive(Debug, Default)]
pub(super) struct FieldValues {
    /// For each field of the key, in its order: how many views have each value.
    fields: Vec<HashMap<u64, usize>>,
}

/// The values of one view: a hash for each field of the key, in its order.
pub(super) type ViewValues = Box<[u64]>;

/// The field of the key that splits some views most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) field: String,
    /// How many values it has over those views.
    pub(crate) values: usize,
}

pub(super) fn view_values<'a>(texts: impl Iterator<Item = &'a str>) -> ViewValues {
    texts.map(|text| xxh3_64(text.as_bytes())).collect()
}

impl FieldValues {
    pub(crate) fn add(&mut self, view: &ViewValues) {
        self.fields.resize_with(self.fields.len().max(view.len()), HashMap::new);
        for (values, value) in self.fields.iter_mut().zip(view) {
            *values.entry(*value).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, view: &ViewValues) {
        for (values, value) in self.fields.iter_mut().zip(view) {
            let Some(count) = values.get_mut(value) else { continue };
            *count -= 1;
            if *count == 0 {
                values.remove(value);
            }
        }
    }

    /// Returns how many values each field has.
    pub(crate) fn counts(&self) -> impl Iterator<Item = usize> {
        self.fields.iter().map(HashMap::len)
    }

    /// Returns the field with the most values, by its place, and how many they are. Of several the first; none if no field has two.
    pub(crate) fn widest(&self) -> Option<(usize, usize)> {
        let counts = self.counts().enumerate().filter(|(_, values)| *values > 1);
        counts.min_by_key(|(_, values)| std::cmp::Reverse(*values))
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} splits them most, with {} values (views.key)", self.field, self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(views: &[[&str; 3]]) -> FieldValues {
        let mut all = FieldValues::default();
        views.iter().for_each(|view| all.add(&view_values(view.iter().copied())));
        all
    }

    #[test]
    fn the_field_with_the_most_values_splits_most_and_of_several_the_first() {
        assert_eq!(values(&[]).widest(), None);
        assert_eq!(values(&[["web", "eu", "1"]]).widest(), None, "one view is not split");
        let views = [["web", "eu", "1"], ["web", "eu", "2"], ["db", "eu", "3"], ["db", "us", "4"]];
        assert_eq!(values(&views).widest(), Some((2, 4)));
        assert_eq!(values(&views).counts().collect::<Vec<_>>(), [2, 2, 4]);
        assert_eq!(values(&[["a", "1", "x"], ["b", "2", "x"]]).widest(), Some((0, 2)));
    }

    #[test]
    fn views_that_are_removed_no_longer_count() {
        let mut all = values(&[["web", "eu", "1"], ["web", "eu", "2"], ["db", "eu", "2"]]);
        all.remove(&view_values(["web", "eu", "1"].into_iter()));
        assert_eq!(all.counts().collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!(all.widest(), Some((0, 2)));
        for view in [["web", "eu", "2"], ["db", "eu", "2"]] {
            all.remove(&view_values(view.into_iter()));
        }
        assert_eq!(all.counts().collect::<Vec<_>>(), [0, 0, 0]);
    }
}

//! Which field of the key splits views most, and whether nearly every client has its own view, so that sharing saves nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use weir_core::xds::KeyRule;

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
    pub(super) fn add(&mut self, view: &ViewValues) {
        self.fields.resize_with(self.fields.len().max(view.len()), HashMap::new);
        for (values, value) in self.fields.iter_mut().zip(view) {
            *values.entry(*value).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, view: &ViewValues) {
        for (values, value) in self.fields.iter_mut().zip(view) {
            let Some(count) = values.get_mut(value) else { continue };
            *count -= 1;
            if *count == 0 {
                values.remove(value);
            }
        }
    }

    /// Returns how many values each field has.
    pub(super) fn counts(&self) -> impl Iterator<Item = usize> {
        self.fields.iter().map(HashMap::len)
    }

    /// Returns the field with the most values, by its place, and their number. Of equal fields the first counts. `None` if no field has two values.
    fn widest(&self) -> Option<(usize, usize)> {
        let counts = self.counts().enumerate().filter(|(_, values)| *values > 1);
        counts.min_by_key(|(_, values)| std::cmp::Reverse(*values))
    }
}

impl Split {
    pub(super) fn of(values: &FieldValues, rule: &KeyRule) -> Option<Self> {
        let (place, values) = values.widest()?;
        Some(Self { field: rule.fields().get(place)?.to_string(), values })
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} splits them most, with {} values (views.key)", self.field, self.values)
    }
}

/// Checked at intervals. A warning needs many checks in a row, since most views have had only one client while a fleet connects.
#[derive(Debug, Default)]
pub(super) struct SplitWatch {
    /// How many checks in a row found too many views.
    looks: Mutex<u32>,
}

impl SplitWatch {
    /// Notes how many views and connections of clients there are. Returns true once for each time that most clients have a view of their own.
    pub(super) fn look(&self, views: usize, connections: usize) -> bool {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_split = views >= FEWEST_VIEWS && views.saturating_mul(2) > connections;
        *looks = if is_split { looks.saturating_add(1) } else { 0 };
        *looks == LOOKS
    }
}

/// Fewer views than this cost little.
const FEWEST_VIEWS: usize = 50;
/// One minute, where looks are five seconds apart.
const LOOKS: u32 = 12;

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

    /// How many warnings there are if this is seen so often.
    fn warnings(watch: &SplitWatch, looks: u32, views: usize, connections: usize) -> u32 {
        (0..looks).map(|_| u32::from(watch.look(views, connections))).sum()
    }

    #[test]
    fn there_is_one_warning_for_each_time_that_most_clients_have_a_view_of_their_own() {
        let watch = SplitWatch::default();
        assert_eq!(warnings(&watch, 11, 3000, 3000), 0, "it may be that clients are still connecting");
        assert_eq!(warnings(&watch, 1, 3000, 3000), 1);
        assert_eq!(warnings(&watch, 1000, 3100, 3000), 0, "the same time");
        assert_eq!(warnings(&watch, 1, 100, 3000), 0, "it is over");
        assert_eq!(warnings(&watch, 12, 1501, 3000), 1);
    }

    #[test]
    fn there_is_none_for_few_views_or_many_clients_to_each() {
        let watch = SplitWatch::default();
        assert_eq!(warnings(&watch, 1000, 49, 49), 0);
        assert_eq!(warnings(&watch, 1000, 1500, 3000), 0);
        assert_eq!(warnings(&watch, 12, 50, 99), 1);
    }
}

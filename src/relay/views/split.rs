//! Which field of the key splits the views most, and whether that leaves nothing to share.

use super::Views;
use super::field_values::{FieldValues, Split};

impl Views {
    /// Warns if most clients have a view of their own.
    pub(super) fn watch_split(&self) {
        let views = self.lock();
        let count = views.iter().filter(|view| !view.of_relay).count();
        let connections = self.counters.connections();
        if self.split_watch.look(count, connections)
            && let Some(Split { field, values }) = self.widest(views.values())
        {
            drop(views);
            tracing::warn!(
                views = count,
                connections,
                field,
                values,
                "most clients have a view of their own; weir key shows what views.key could leave out"
            );
        }
    }

    pub(super) fn widest(&self, values: &FieldValues) -> Option<Split> {
        let (place, values) = values.widest()?;
        Some(Split { field: self.rule.fields().get(place)?.to_string(), values })
    }

    /// Returns how many values each field of the key has over all views.
    pub(crate) fn values_by_field(&self) -> Vec<(String, usize)> {
        let counts: Vec<_> =
            self.lock().values().counts().chain(std::iter::repeat(0)).take(self.rule.fields().len()).collect();
        self.rule.fields().iter().map(ToString::to_string).zip(counts).collect()
    }
}

//! Which field of the key splits the views most, and whether nearly every client has a view of its own, so that sharing saves nothing.

use std::sync::{Mutex, PoisonError};

use super::Views;
use super::map::{FieldValues, Split};

/// Looked at now and then. A warning needs many looks in a row: while a fleet connects, most views have had one client only.
#[derive(Debug, Default)]
pub(super) struct SplitWatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Looks in a row that found too many views.
    looks: u32,
}

impl SplitWatch {
    /// Notes how many views and connections of clients there are. Returns true once for each time that most clients have a view of their own.
    pub(crate) fn look(&self, views: usize, connections: usize) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_split = views >= FEWEST_VIEWS && views.saturating_mul(2) > connections;
        state.looks = if is_split { state.looks.saturating_add(1) } else { 0 };
        state.looks == LOOKS
    }
}

/// Fewer views cost little.
const FEWEST_VIEWS: usize = 50;
/// One minute, where looks are five seconds apart.
const LOOKS: u32 = 12;

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

#[cfg(test)]
mod tests {
    use super::*;

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

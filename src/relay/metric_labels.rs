//! Which views have series of their own in the metrics. The number is limited, and a view keeps or lacks its label for life. The others are
//! summed, and their counts stay in the sum when they are removed, since a counter must not fall.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::report::ViewMetrics;

#[derive(Debug)]
pub(super) struct MetricLabels {
    free: AtomicUsize,
    /// The counters of removed views without a label.
    retired: Mutex<ViewMetrics>,
}

/// The label of one view, returned when the view is removed.
#[derive(Debug)]
pub(super) struct MetricLabel {
    labels: Arc<MetricLabels>,
    name: Option<Arc<str>>,
}

impl MetricLabels {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(limit), retired: Mutex::default() })
    }

    /// Gives a view a label if one is left.
    pub(crate) fn assign(self: &Arc<Self>, view: &str) -> MetricLabel {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok();
        MetricLabel { labels: self.clone(), name: taken.then(|| view.into()) }
    }

    /// Returns the metrics with labels, and the sum of all others if there ever were any.
    pub(crate) fn merge(&self, views: Vec<ViewMetrics>) -> Vec<ViewMetrics> {
        let (mut merged, others): (Vec<_>, Vec<_>) = views.into_iter().partition(|view| view.label.is_some());
        let mut sum = self.retired.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let any = !others.is_empty() || sum != ViewMetrics::default();
        others.into_iter().for_each(|view| sum.absorb(view));
        merged.extend(any.then_some(sum));
        merged
    }
}

impl MetricLabel {
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.name.clone()
    }

    /// Ends a view; its counters are kept if they are part of the sum.
    pub(crate) fn retire(&self, last: ViewMetrics) {
        if self.name.is_none() {
            let mut retired = self.labels.retired.lock().unwrap_or_else(PoisonError::into_inner);
            retired.absorb(last);
            *retired = std::mem::take(&mut *retired).into_counters();
        }
    }
}

impl Drop for MetricLabel {
    fn drop(&mut self) {
        if self.name.is_some() {
            self.labels.free.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ladder::Switches;
    use crate::relay::report::{LadderMetrics, ServerMetrics, Totals};

    fn metrics(label: &MetricLabel, opened: u64) -> ViewMetrics {
        let totals = Totals { opened, ..Totals::default() };
        let ladder =
            LadderMetrics { switches: Switches { down: 1, up: 0 }, state: "active", ..LadderMetrics::default() };
        ViewMetrics {
            label: label.name(),
            sessions: 1,
            ladders: vec![ladder],
            servers: vec![ServerMetrics {
                server: "one".into(),
                streams: 1,
                connected: 1,
                last_response: None,
                totals,
            }],
            ..ViewMetrics::default()
        }
    }

    #[test]
    fn views_beyond_the_limit_are_summed_and_a_label_is_free_again_when_its_view_goes() {
        let labels = MetricLabels::new(1);
        let (first, second, third) = (labels.assign("a"), labels.assign("b"), labels.assign("c"));
        let merged = labels.merge(vec![metrics(&first, 1), metrics(&second, 2), metrics(&third, 3)]);
        assert_eq!(merged.iter().map(|view| view.label.as_deref()).collect::<Vec<_>>(), [Some("a"), None]);
        assert_eq!((merged[1].sessions, merged[1].servers[0].totals.opened), (2, 5));
        drop(first);
        assert_eq!(labels.assign("d").name().as_deref(), Some("d"));
        assert_eq!(third.name(), None, "it is decided for the life of a view");
    }

    #[test]
    fn what_a_summed_view_has_counted_stays_when_it_goes_and_nothing_else_does() {
        let labels = MetricLabels::new(0);
        let view = labels.assign("a");
        assert!(labels.merge(Vec::new()).is_empty(), "without such views there is no sum");
        view.retire(metrics(&view, 7));
        let merged = labels.merge(Vec::new());
        assert_eq!(merged[0].servers[0].totals.opened, 7);
        assert_eq!((merged[0].sessions, merged[0].servers[0].streams, merged[0].ladders[0].switches.down), (0, 0, 1));
    }
}

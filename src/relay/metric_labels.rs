//! Which views have series of their own in the metrics. The number is limited, and a view keeps or lacks its label for life. The others are
//! summed, and their counts stay in the sum when they are removed, since a counter must not fall.
//!
//! While a configuration replaces another, a key may have two views: they are one in the metrics, and what the first has counted stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::report::ViewMetrics;

#[derive(Debug)]
pub(super) struct MetricLabels {
    limit: AtomicUsize,
    state: Mutex<LabelledViews>,
}

#[derive(Debug, Default)]
struct LabelledViews {
    labelled: BTreeMap<Arc<str>, Labelled>,
    /// The counters of removed views without a label.
    retired: ViewMetrics,
}

/// The views with one label.
#[derive(Debug, Default)]
struct Labelled {
    views: usize,
    /// The counters of removed views with the label.
    retired: ViewMetrics,
}

/// The label of one view, returned when the view is removed.
#[derive(Debug)]
pub(super) struct MetricLabel {
    labels: Arc<MetricLabels>,
    name: Option<Arc<str>>,
}

impl MetricLabels {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.into(), state: Mutex::default() })
    }

    /// Sets the number of labels to that of `other`, for views that come from now on.
    pub(crate) fn limit_like(&self, other: &Self) {
        self.limit.store(other.limit.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Gives a view a label if its key has one, or if one is left.
    pub(crate) fn assign(self: &Arc<Self>, view: &str) -> MetricLabel {
        let mut state = self.state();
        let is_left = state.labelled.len() < self.limit.load(Ordering::Relaxed);
        let name = match state.labelled.get_key_value(view) {
            Some((name, _)) => Some(name.clone()),
            None => is_left.then(|| view.into()),
        };
        if let Some(name) = &name {
            state.labelled.entry(name.clone()).or_default().views += 1;
        }
        drop(state);
        MetricLabel { labels: self.clone(), name }
    }

    /// Returns the metrics with labels, and the sum of all others if there ever were any. Of two views with one label, the states of ladders are
    /// those of the first.
    pub(crate) fn merge(&self, views: Vec<ViewMetrics>) -> Vec<ViewMetrics> {
        let state = self.state();
        let (mut merged, mut sum) = (Vec::<ViewMetrics>::new(), state.retired.clone());
        let mut places = BTreeMap::<Arc<str>, usize>::new();
        let mut any = sum != ViewMetrics::default();
        for view in views {
            match view.label.clone() {
                None => {
                    any = true;
                    sum.absorb(view);
                }
                Some(label) => match places.get(&label) {
                    Some(at) => merged[*at].absorb_earlier(view),
                    None => {
                        places.insert(label, merged.len());
                        merged.push(view);
                    }
                },
            }
        }
        for (label, at) in places {
            let retired = state.labelled.get(&label).map(|of| of.retired.clone());
            merged[at].absorb_earlier(retired.unwrap_or_default());
        }
        merged.extend(any.then_some(sum));
        merged
    }

    fn state(&self) -> MutexGuard<'_, LabelledViews> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricLabel {
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.name.clone()
    }

    /// Ends a view; its counters are kept if they are part of a sum.
    pub(crate) fn retire(&self, last: ViewMetrics) {
        let mut state = self.labels.state();
        let retired = match &self.name {
            None => Some(&mut state.retired),
            Some(name) => state.labelled.get_mut(name).filter(|of| of.views > 1).map(|of| &mut of.retired),
        };
        if let Some(retired) = retired {
            retired.absorb(last);
            *retired = std::mem::take(retired).into_counters();
        }
    }
}

impl Drop for MetricLabel {
    fn drop(&mut self) {
        let Some(name) = &self.name else { return };
        let mut state = self.labels.state();
        if let Some(of) = state.labelled.get_mut(name) {
            of.views -= 1;
            if of.views == 0 {
                state.labelled.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::protocol::ladder::Switches;

    use super::*;
    use crate::relay::report::{LadderMetrics, ServerMetrics, Totals};

    fn metrics(label: &MetricLabel, opened: u64) -> ViewMetrics {
        let totals = Totals { opened, ..Totals::default() };
        let ladder =
            LadderMetrics { switches: Switches { down: 2, up: 1 }, state: "active", ..LadderMetrics::default() };
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
        assert_eq!((merged[0].sessions, merged[0].servers[0].streams), (0, 0));
        assert_eq!(merged[0].ladders[0].switches, Switches { down: 2, up: 1 });
    }

    #[test]
    fn two_views_of_one_key_are_one_and_their_counters_do_not_fall() {
        let labels = MetricLabels::new(1);
        let earlier = labels.assign("a");
        let later = labels.assign("a");
        assert_eq!(labels.assign("b").name(), None, "there is one label");
        let both = labels.merge(vec![metrics(&later, 1), metrics(&earlier, 5)]);
        assert_eq!(both.len(), 1);
        assert_eq!((both[0].sessions, both[0].servers[0].totals.opened), (2, 6));
        assert_eq!((both[0].ladders.len(), both[0].ladders[0].switches), (1, Switches { down: 4, up: 2 }));
        earlier.retire(metrics(&earlier, 5));
        drop(earlier);
        let one = labels.merge(vec![metrics(&later, 1)]);
        assert_eq!((one[0].sessions, one[0].servers[0].totals.opened), (1, 6));
        assert_eq!(one[0].servers[0].streams, 1);
        drop(later);
        assert_eq!(labels.assign("b").name().as_deref(), Some("b"));
        labels.limit_like(&MetricLabels::new(2));
        assert_eq!(labels.assign("c").name(), Some("c".into()), "the label of b was returned, and there are two");
    }

    #[test]
    fn of_views_that_are_summed_the_latest_response_of_a_server_counts() {
        let labels = MetricLabels::new(0);
        let at = |seconds| Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        let responded = |last_response| {
            let mut of_view = metrics(&labels.assign("a"), 1);
            of_view.servers[0].last_response = last_response;
            of_view
        };
        let latest = |all: Vec<ViewMetrics>| labels.merge(all)[0].servers[0].last_response;
        for times in [[at(5), at(9), None], [at(9), None, at(5)], [None, at(5), at(9)]] {
            assert_eq!(latest(times.map(responded).into()), at(9));
        }
        // Of a view that has ended too: a time must not go back.
        labels.assign("a").retire(responded(at(9)));
        assert_eq!(latest(vec![responded(at(5))]), at(9));
    }
}

//! The page of metrics for one scrape.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::metric::{AnyFamily, Gauge, Kind, Labels, Metric};
use super::table::ROWS;

/// The families of the metrics, each at the index of its row. A metric without a series is `None`.
pub(super) struct Page([Option<AnyFamily>; ROWS.len()]);

impl Page {
    pub(crate) fn new() -> Self {
        Self([const { None }; ROWS.len()])
    }

    /// Adds a value to a series, which starts at zero.
    pub(crate) fn add<K: Kind, const N: usize>(&mut self, metric: Metric<K, N>, labels: [&str; N], value: K::Value) {
        let labels = Labels { names: ROWS[metric.place].labels, values: labels.map(str::to_owned).into() };
        K::add(&mut self.0[metric.place], labels, value);
    }

    /// Adds a number to a gauge.
    pub(crate) fn count<const N: usize>(&mut self, metric: Metric<Gauge, N>, labels: [&str; N], count: usize) {
        self.add(metric, labels, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Returns the page in the text format of OpenMetrics, in the order of the table.
    pub(crate) fn text(self) -> String {
        let mut registry = Registry::default();
        for (family, row) in self.0.into_iter().zip(&ROWS) {
            if let Some(family) = family {
                family.register(&mut registry, row, row.help());
            }
        }
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(_) => String::new(), // writing to a string does not fail
        }
    }
}

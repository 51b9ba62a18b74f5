//! A histogram whose counts are kept elsewhere and set once.

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::relay::deliveries::HistogramCounts;

#[derive(Debug, Clone, Default)]
pub(super) struct CountedHistogram(Arc<OnceLock<HistogramCounts>>);

impl CountedHistogram {
    /// Sets the counts. Further calls have no effect.
    pub(super) fn set(&self, counts: HistogramCounts) {
        self.0.get_or_init(|| counts);
    }
}

impl TypedMetric for CountedHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for CountedHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let none = HistogramCounts::default();
        let counts = self.0.get().unwrap_or(&none);
        let buckets: Vec<_> = counts.buckets().map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), count)).collect();
        encoder.encode_histogram::<NoLabelSet>(counts.sum(), counts.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

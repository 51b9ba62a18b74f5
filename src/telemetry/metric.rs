//! The rows of the table of metrics, and the kinds of metrics.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter as Counting;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as Level;
use prometheus_client::registry::Registry;

use super::histogram::CountedHistogram;
use crate::relay::deliveries::HistogramCounts;

/// A metric of this kind with `N` labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric<K, const N: usize> {
    pub(super) place: usize,
    kind: PhantomData<K>,
}

/// The row of a metric in the table.
#[derive(Debug)]
pub(super) struct Row {
    /// The name of its series; those of a histogram have further suffixes.
    pub(crate) name: &'static str,
    pub(crate) labels: &'static [&'static str],
    /// The first paragraph is the help text; the documentation pages have all paragraphs.
    pub(crate) doc: &'static str,
    #[cfg(test)]
    pub(crate) kind: &'static str,
    /// The first version of the program that has it.
    #[cfg(test)]
    pub(crate) since: &'static str,
}

/// Declares the metrics. Each has a comment, a name in the program, a kind, the name of its series, its labels, and its first version.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $metric:ident: $kind:ident = $name:literal [$($label:literal),*], $since:literal;)+) => {
        /// The rows, each at its index.
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum RowIndex {
            $($metric),+
        }

        $(
            $(#[doc = $doc])+
            pub(super) const $metric: $crate::telemetry::metric::Metric<
                $crate::telemetry::metric::$kind,
                { <[&str]>::len(&[$($label),*]) },
            > = $crate::telemetry::metric::Metric::at(RowIndex::$metric as usize);
        )+

        pub(super) static ROWS: [$crate::telemetry::metric::Row; <[&str]>::len(&[$($name),+])] = [$(
            $crate::telemetry::metric::Row {
                name: $name,
                labels: &[$($label),*],
                doc: concat!($($doc, "\n"),+),
                #[cfg(test)]
                kind: stringify!($kind),
                #[cfg(test)]
                since: $since,
            }
        ),+];
    };
}
pub(super) use metrics;

/// A kind of metric: how its values are added, and which variant of [`AnyFamily`] has its series.
pub(super) trait Kind {
    type Value;

    fn add(family: &mut Option<AnyFamily>, labels: Labels, value: Self::Value);
}

type Of<M> = Family<Labels, M>;

/// The series of one metric.
pub(super) enum AnyFamily {
    Gauge(Of<Level>),
    Highest(Of<Level>),
    FloatGauge(Of<Level<f64, AtomicU64>>),
    Counter(Of<Counting>),
    FloatCounter(Of<Counting<f64, AtomicU64>>),
    Histogram(Of<CountedHistogram>),
}

/// Declares a kind by its metric in the library, the type of its values, and how a value is added.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $value:ty, |$metric:ident, $added:ident| $add:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub(super) struct $kind;

            impl Kind for $kind {
                type Value = $value;

                fn add(family: &mut Option<AnyFamily>, labels: Labels, $added: $value) {
                    if let AnyFamily::$kind(family) = family.get_or_insert_with(|| AnyFamily::$kind(Family::default())) {
                        let $metric = family.get_or_create(&labels);
                        $add;
                    }
                }
            }
        )+

        impl AnyFamily {
            pub(super) fn register(self, registry: &mut Registry, row: &Row, help: String) {
                let name = row.name.strip_suffix("_total").unwrap_or(row.name); // the library adds it
                match self {
                    $(
                        Self::$kind(family) if row.labels.is_empty() => {
                            let metric = family.get_or_create_owned(&Labels { names: &[], values: Vec::new() });
                            registry.register(name, help, metric);
                        }
                        Self::$kind(family) => registry.register(name, help, family),
                    )+
                }
            }
        }
    };
}

kinds! {
    /// A level.
    Gauge: i64, |gauge, value| gauge.inc_by(value);
    /// A level of which the highest value counts, such as the latest time.
    Highest: i64, |gauge, value| gauge.set(value.max(gauge.get()));
    /// A level that may be a fraction.
    FloatGauge: f64, |gauge, value| gauge.inc_by(value);
    /// A count that never falls.
    Counter: u64, |counter, value| counter.inc_by(value);
    /// A sum that never falls.
    FloatCounter: f64, |counter, value| counter.inc_by(value);
    /// A distribution of sizes. Each series is set only once.
    Histogram: HistogramCounts, |histogram, counts| histogram.set(counts);
}

/// The values of the labels of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    pub(super) names: &'static [&'static str],
    pub(super) values: Vec<String>,
}

/// Hashes only the values: all labels of one metric have the same names.
impl std::hash::Hash for Labels {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        let labels = self.names.iter().copied().zip(self.values.iter().map(String::as_str));
        labels.into_iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

impl<K, const N: usize> Metric<K, N> {
    pub(super) const fn at(place: usize) -> Self {
        Self { place, kind: PhantomData }
    }
}

impl Row {
    pub(crate) fn help(&self) -> String {
        let lines = self.doc.lines().map(str::trim).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }
}

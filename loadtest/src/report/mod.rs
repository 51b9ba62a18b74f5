//! What a benchmark found: as a table, as JSON, as a page with plots and for a document; and two of them compared.

mod compare;
mod html;
mod load;
mod markdown;
mod model;
mod plot;
mod table;

pub use compare::compare;
pub use load::{Measures, measured, percentiles};
pub use model::{Cell, GateResult, Machine, Point, Report, Sample, Verdict};
pub use table::short;

use crate::measure::Latencies;

/// How many in a hundred have a change after how many milliseconds.
pub fn fan_out(received: &Latencies) -> Vec<(f64, f64)> {
    (0..=100).map(|percent| (received.percentile(f64::from(percent)).as_secs_f64() * 1e3, f64::from(percent))).collect()
}

//! The results of a benchmark as a table, as JSON, as a page with plots and for a document; and comparisons of two results.

mod compare;
mod html;
mod load;
mod load_table;
mod markdown;
mod model;
mod plot;
mod sample;
mod section;
mod table;

pub use compare::compare;
pub use load::{Measures, measured, percentiles};
pub use markdown::markdown;
pub use model::{Cell, Machine, Report};
pub use sample::{Point, Sample};
pub use table::short;

use std::path::Path;

use anyhow::Context;

use crate::measure::Latencies;

/// Writes JSON and a page with plots to these files.
pub fn write(report: &Report, json: Option<&Path>, html: Option<&Path>) -> anyhow::Result<()> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = json {
        write(path, serde_json::to_string_pretty(report)?)?;
    }
    html.map_or(Ok(()), |path| write(path, html::page(report)))
}

/// Returns the percentage of clients that have a change, by milliseconds after it. Empty if no change was received.
pub fn fan_out(received: &Latencies) -> Vec<(f64, f64)> {
    let point = |percent: f64| (received.percentile(percent).as_secs_f64() * 1e3, percent);
    let percents = if received.count() > 0 { 0..101 } else { 0..0 };
    percents.map(f64::from).map(point).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_that_nobody_received_has_no_fan_out() {
        let mut received = Latencies::default();
        assert!(fan_out(&received).is_empty());
        received.record(Duration::from_millis(7));
        let points = fan_out(&received);
        assert_eq!((points.len(), points[100].1), (101, 100.0));
        assert!(points[0].0 > 0.0);
    }
}

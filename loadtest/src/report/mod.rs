//! The results of a benchmark: as a table, as JSON, as a page with plots and for a document; and comparisons of two.

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

/// Returns the percentage of clients that have a change, by milliseconds.
pub fn fan_out(received: &Latencies) -> Vec<(f64, f64)> {
    (0..=100).map(|percent| (received.percentile(f64::from(percent)).as_secs_f64() * 1e3, f64::from(percent))).collect()
}

//! What a benchmark found, as a table and as JSON.

mod model;
mod table;

pub use model::{Cell, GateResult, Machine, Point, Report, Sample, Verdict};
pub use table::short;

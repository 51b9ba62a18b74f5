//! What a benchmark found: as a table, as JSON and as a page with plots; and two of them compared.

mod compare;
mod html;
mod model;
mod plot;
mod table;

pub use compare::compare;
pub use model::{Cell, GateResult, Machine, Point, Report, Sample, Verdict};
pub use table::short;

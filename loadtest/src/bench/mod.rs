//! Benchmarks: the relay and its baselines in turn, as separate processes, in one run.

mod arrival;
mod clients;
mod command;
mod encode;
mod fanout;
mod gate;
mod origin;
mod peers;
mod resources;
mod run;
mod size;
mod stage;
mod subject;

use std::collections::BTreeMap;

use crate::report::Point;

pub use command::{Options, command};
pub use encode::{framed, response};
pub use gate::{Gate, Plausible};
pub use origin::Origin;
pub use resources::{Kind, Resources};
pub use run::run;
pub use subject::{Programs, Subject};

/// What one subject gave in one repetition.
pub struct Scene {
    /// By name, which has the unit.
    pub figures: BTreeMap<String, f64>,
    pub timeline: Vec<Point>,
}

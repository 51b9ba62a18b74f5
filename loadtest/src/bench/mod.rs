//! Benchmarks: they run the relay and its baselines in turn, as separate processes.

mod apart;
mod arrival;
mod clients;
mod connect;
mod encode;
mod encrypted;
mod fanout;
mod front;
mod gate;
mod idle;
mod ingest;
mod mixed;
mod neighbour;
mod options;
mod origin;
mod own_thread;
mod parameters;
mod peers;
mod reconnect;
mod resources;
mod restart;
mod rows;
mod run;
mod scale;
pub mod size;
mod stage;
mod stall;
mod storm;
pub(crate) mod subject;

use std::collections::BTreeMap;
use std::pin::Pin;

use crate::report::Point;

pub use encode::{framed, response};
pub use gate::{Gate, GateResult, Plausible, Verdict};
pub use options::Options;
pub use origin::Origin;
pub use resources::{Kind, Resources};
pub use run::{command, run};
pub use subject::{Programs, Subject};

/// A benchmark with its parameters.
pub trait Bench {
    fn name(&self) -> String;
    fn subjects(&self) -> Vec<Subject>;
    fn gates(&self) -> Vec<Gate>;
    fn plausible(&self) -> Option<Plausible> {
        None
    }
    /// Measures one subject once.
    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a>;
}

pub type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Scene>> + 'a>>;

/// The result of one subject in one repetition.
pub struct Scene {
    /// The figures by name. The name includes the unit.
    pub figures: BTreeMap<String, f64>,
    pub timeline: Vec<Point>,
    /// Pairs of milliseconds after a change and the percentage of clients that have it by then.
    pub fan_out: Vec<(f64, f64)>,
}

impl Scene {
    /// Returns a result with figures only.
    pub fn of(figures: BTreeMap<String, f64>) -> Self {
        Self { figures, timeline: Vec::new(), fan_out: Vec::new() }
    }
}

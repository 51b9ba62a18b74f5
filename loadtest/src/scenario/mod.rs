//! Runs of clients, origin and relay that a file describes.

pub mod command;
pub mod duration;
mod file;
mod relay;
mod report;
mod run;

pub use file::{Relay, Scenario, Step};
pub use report::Report;
pub use run::run;

//! Scenarios: files that describe runs of clients, origin and relay.

mod balancer;
pub mod command;
pub mod duration;
pub mod file;
pub mod relay;
mod report;
mod run;

pub use file::{Relay, Scenario, Step};
pub use report::Report;
pub use run::run;

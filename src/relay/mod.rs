//! The owners: a task for each unit that holds its state, and the places where sessions sit.
//!
//! An owner never waits for a client. It applies what sources say and what sessions want, publishes, and wakes whom it concerns.

mod clock;
mod found;
mod health;
mod hub;
mod link;
mod links;
mod loads;
mod measures;
mod owner;
mod published;
mod report;
mod seat;
mod tally;
mod views;

pub use clock::Clock;
pub use found::Found;
pub use hub::HubConnector;
pub use link::{Connector, Link, LinkEvent, LinkId, LinkReport, SharedConnector};
pub use loads::{LoadConnector, LoadEnd, LoadLink, Loads, LoadsMode};
pub use measures::{LadderMeasures, ServerMeasures, Totals, UnitMeasures};
pub use report::UnitReport;
pub use seat::{Seat, SeatReport, Sitting};
pub use tally::Tally;
pub use views::{Refused, Views, ViewsOptions, Visit};

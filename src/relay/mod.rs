//! The owners: a task for each unit that holds its state, and the places where sessions sit.
//!
//! An owner never waits for a client. It applies what sources say and what sessions want, publishes, and wakes whom it concerns.

mod clock;
mod dangling;
mod found;
mod health;
mod hub;
mod incidents;
mod link;
mod links;
mod loads;
mod measures;
mod member;
mod missing;
mod owner;
mod published;
mod readiness;
mod rejected;
mod report;
mod seat;
mod supervision;
mod tally;
mod views;

pub use clock::Clock;
pub use found::LookupReport;
pub use hub::HubConnector;
pub use incidents::Incidents;
pub use link::{Connector, Link, LinkEvent, LinkId, LinkReport, SharedConnector};
pub use loads::{LoadConnector, LoadEnd, LoadLink, Loads, LoadsMode};
pub use measures::{LadderMetrics, OrderMetrics, ServerMetrics, Totals, ViewMetrics};
pub use readiness::{LadderPlace, NotReady, Readiness};
pub use report::ViewReport;
pub use seat::{ClientReport, SessionGuard, SessionHandle};
pub use tally::ProcessCounters;
pub use views::{AdmissionError, ClientInfo, Views, ViewsOptions};

//! The owners: a task for each unit that holds its state, and the places where sessions sit.
//!
//! An owner never waits for a client. It applies what sources say and what sessions want, publishes, and wakes whom it concerns.

mod clock;
mod counters;
mod dangling;
mod hub;
mod incidents;
mod link;
mod links;
mod loads;
mod lookup;
mod member;
mod metrics;
mod missing;
mod published;
mod reachability;
mod readiness;
mod rejected;
mod report;
mod session_handle;
mod supervision;
mod view_task;
mod views;

pub use clock::Clock;
pub use counters::ProcessCounters;
pub use hub::HubConnector;
pub use incidents::Incidents;
pub use link::{Connector, Link, LinkEvent, LinkId, LinkReport, SharedConnector};
pub use loads::{LoadConnector, LoadEnd, LoadLink, Loads, LoadsMode};
pub use lookup::LookupReport;
pub use metrics::{LadderMetrics, OrderMetrics, ServerMetrics, Totals, ViewMetrics};
pub use readiness::{LadderPlace, NotReady, Readiness};
pub use report::ViewReport;
pub use session_handle::{ClientReport, SessionGuard, SessionHandle};
pub use views::{AdmissionError, ClientInfo, Views, ViewsOptions};

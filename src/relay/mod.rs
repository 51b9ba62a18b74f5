//! A task for each view, which owns its state, and the handles of its sessions.
//!
//! The task of a view never waits for a client. It applies what sources say and what sessions want, publishes, and wakes whom it concerns.

mod admission;
mod client_log;
mod clock;
mod command;
mod counters;
mod hub;
mod incidents;
mod link;
mod links;
mod loads;
mod member;
mod metric_labels;
mod published;
mod reachability;
mod readiness;
mod report;
mod server_log;
mod session_handle;
mod stay;
mod view_task;
mod views;

pub use admission::AdmissionError;
pub use clock::Clock;
pub use counters::ProcessCounters;
pub use hub::HubConnector;
pub use incidents::Incidents;
pub use link::{Connector, Link, LinkEvent, LinkId, LinkReport, SharedConnector};
pub use loads::{LoadConnector, LoadEnd, LoadLink, Loads, LoadsMode};
pub use readiness::{LadderPlace, NotReady, Readiness};
pub use report::{
    ClientReport, Dangling, LadderMetrics, OrderMetrics, ResourcePage, ResourceQuery, ResourceReport, ServerMetrics,
    Totals, ViewMetrics, ViewReport,
};
pub use session_handle::{SessionGuard, SessionHandle};
pub use views::{ClientInfo, Views, ViewsOptions};

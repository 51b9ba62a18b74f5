//! A task for each view, which owns its state, and the handles of its sessions.
//!
//! A view task never waits for a client. It applies updates and changes of interest, publishes snapshots, and wakes the sessions concerned.

mod admission;
mod audit;
mod background_threads;
mod brakes;
mod client_log;
mod clients;
mod clock;
mod command;
mod counters;
pub(crate) mod deliveries;
pub(crate) mod heavy;
mod hub;
mod incidents;
mod inspection;
mod key_headers;
mod link;
mod link_channel;
mod links;
mod live_permissions;
mod loads;
mod member;
mod metric_labels;
mod nack_watch;
mod newest;
mod published;
pub(crate) mod questions;
mod quotes;
mod reachability;
mod readiness;
mod redaction;
mod reopenings;
pub(crate) mod report;
mod response_reader;
mod server_log;
mod server_paces;
mod server_places;
mod session_handle;
mod shared;
mod shown_values;
mod state_load;
mod subscriber;
pub(crate) mod taps;
mod tenants;
pub(crate) mod traces;
mod troubles;
mod view_task;
mod view_usage;
mod view_watch;
mod views;
mod wakes;

pub(crate) use admission::AdmissionError;
#[cfg(test)]
pub(crate) use audit::AuditDifference;
pub(crate) use audit::{AuditBoard, AuditReport, audit_views};
pub(crate) use background_threads::have_little_weight;
pub(crate) use brakes::BrakeWatch;
pub(crate) use clock::Clock;
pub(crate) use counters::{CompressionCounters, ProcessCounters, ProxyFault};
pub(crate) use deliveries::TypePlace;
pub(crate) use hub::HubConnector;
#[cfg(test)]
pub(crate) use incidents::AnsweringViews;
pub(crate) use incidents::{Incidents, WaitWatch};
pub use key_headers::KeyHeaders;
pub(crate) use key_headers::{HeaderHasher, UnfitHeaders};
pub(crate) use link::UnreadableCompressed;
pub use link::{Connector, Link, LinkEvent, LinkId, LinkReport, SharedConnector, TypeTrial};
pub use link_channel::{ReceiverGone, ReportReceiver, ReportSender, report_channel};
pub(crate) use live_permissions::LivePermissions;
pub use live_permissions::NeedsRestart;
pub(crate) use loads::{LoadConnector, LoadEnd, LoadLink, LoadStreamLimits, Loads, LoadsMode};
pub(crate) use newest::Newest;
pub(crate) use published::NotedBrakes;
pub(crate) use readiness::{Readiness, StartReport, StartSource};
pub(crate) use redaction::Redaction;
pub use reopenings::REOPENINGS;
#[cfg(test)]
pub(crate) use report::{AuthorityReport, MissingReport, StreamReport, TypeReport};
pub(crate) use report::{
    Census, ClientHoldings, ClientQuery, ExplainQuery, LAGS, LadderMetrics, NackQuery, RejectedReport, ReleaseQuery,
    Released, ResourceQuery, ServerMetrics, Spread, StateCounts, Totals, UnknownState, ViewMetrics, ViewReport,
    ViewSnapshot, WaitKey, WaitReport,
};
pub use response_reader::{ResponseReader, Turn};
pub(crate) use server_places::ServerPlaces;
#[cfg(test)]
pub(crate) use session_handle::send_one_by_one;
pub(crate) use session_handle::{
    Applied, Blocker, SessionGuard, SessionHandle, SessionThread, Unmade, fetch_reply, glance_at_reply, is_tapped,
    replies_go_one_by_one, reply_is_late, reply_waits, session_changed, step_apart, tap_end, tap_reply, tap_request,
    tap_unchanged, unread_names, until_session_is_free,
};
pub(crate) use shared::ViewsOptions;
pub(crate) use shown_values::{InUse, ShownValues};
pub(crate) use state_load::StateLoad;
pub(crate) use tenants::{TenantLimits, TenantStream};
#[cfg(test)]
pub(crate) use troubles::{AwayServer, TroubleWatch, ViewTroubles};
pub(crate) use troubles::{ServedInstead, WatchedView};
pub(crate) use view_watch::retire_idle;
#[cfg(test)]
pub(crate) use views::tests::{views_to, views_to_all, views_to_lists};
pub(crate) use views::{ClientInfo, SavedView, ViewQuota, ViewToSave, Views, open_session, open_session_after};

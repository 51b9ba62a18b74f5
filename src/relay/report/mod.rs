//! What views and sessions tell about themselves, as plain data: made by those who know, read by whoever asks.

mod clients;
mod dangling;
mod lookup;
mod metrics;
mod upstreams;

pub use clients::{ClientReport, ClientTypeReport};
pub use dangling::{Dangling, DanglingClusters};
pub use lookup::{ResourcePage, ResourceQuery, ResourceReport, ViewSnapshot};
pub use metrics::{LadderMetrics, OrderMetrics, ServerMetrics, Totals, ViewMetrics};
pub use upstreams::{AuthorityReport, MissingReport, RejectedReport, StreamReport, TypeReport, ViewReport};

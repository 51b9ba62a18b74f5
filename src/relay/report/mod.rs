//! The reports of views and sessions, as plain data.

mod brakes;
mod census;
mod clients;
mod dangling;
mod explain;
mod lookup;
mod metrics;
mod nacks;
mod upstreams;
mod waits;

pub(crate) use brakes::{BrakesReport, ReleaseQuery, Released, SetBrakeReport};
pub(crate) use census::{Census, LAGS, Spread, StateCounts, TypeGlance};
pub(crate) use clients::{
    ClientHoldings, ClientPage, ClientQuery, ClientReport, ClientTypeReport, DifferenceReport, HoldingsSource,
    SyncState, TypeDifference, UnknownState,
};
pub(crate) use dangling::{Dangling, DanglingClusters};
pub(crate) use explain::{
    Around, Books, ExplainQuery, Explanation, LadderExplanation, OtherViews, Reason, Search, ServerExplanation,
    SessionExplanation, SetExplanation, ViewExplanation,
};
pub(crate) use lookup::{ResourcePage, ResourceQuery, ViewSnapshot};
pub(crate) use metrics::{LadderMetrics, OrderMetrics, RemovalMetrics, ServerMetrics, Totals, TypeSize, ViewMetrics};
pub(crate) use nacks::{AnswersSource, NackCounts, NackPage, NackQuery, NackReport, ViewSessions};
pub(crate) use upstreams::{
    AuthorityReport, FromDiskReport, MissingReport, RejectedReport, StreamReport, TypeReport, ViewReport,
    completeness_name,
};
pub(crate) use waits::{ViewWaits, WaitKey, WaitReport, WaitRow};

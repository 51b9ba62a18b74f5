//! What `/clients` shows.

use serde::Serialize;

/// One session in a report.
#[derive(Debug, Serialize)]
pub(crate) struct ClientReport {
    pub(crate) session: u64,
    pub(crate) peer: String,
    pub(crate) node: String,
    pub(crate) view: String,
    pub(crate) variant: &'static str,
    /// Requests for types that are not served here. They get no reply.
    pub(crate) unsupported_requests: usize,
    pub(crate) types: Vec<ClientTypeReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ClientTypeReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    pub(crate) pending: usize,
    /// The text of the latest NACK, and whether nothing was ACKed since.
    pub(crate) last_nack: Option<String>,
    pub(crate) nacked: bool,
}

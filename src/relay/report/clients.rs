//! What `/clients` shows.

use serde::Serialize;

/// One session in a report.
#[derive(Debug, Serialize)]
pub struct ClientReport {
    pub session: u64,
    pub peer: String,
    pub node: String,
    pub view: String,
    pub variant: &'static str,
    /// Requests for types that are not served here, left unanswered.
    pub unsupported_requests: usize,
    pub types: Vec<ClientTypeReport>,
}

#[derive(Debug, Serialize)]
pub struct ClientTypeReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub pending: usize,
    /// The text of the latest refusal, and whether nothing was accepted since.
    pub last_nack: Option<String>,
    pub nacked: bool,
}

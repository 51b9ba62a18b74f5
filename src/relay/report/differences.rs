//! What `/diff` shows.

use serde::Serialize;

use crate::protocol::session::Names;

/// What one client was sent and has accepted, against what there is for it.
#[derive(Debug, Serialize)]
pub(crate) struct DifferenceReport {
    pub(crate) session: u64,
    pub(crate) node: String,
    pub(crate) view: String,
    pub(crate) types: Vec<TypeDifference>,
}

/// Names are the first hundred of each list, in order.
#[derive(Debug, Serialize)]
pub(crate) struct TypeDifference {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// They exist, and the client was not sent them.
    pub(crate) missing: NameList,
    /// The client was sent an earlier version.
    pub(crate) outdated: NameList,
    /// They do not exist, and the client was not sent the removal.
    pub(crate) surplus: NameList,
    /// The client subscribes to them, and nothing is known of them.
    pub(crate) unknown: NameList,
    /// The version of a reply that the client has not answered.
    pub(crate) unacked_version: Option<String>,
    /// The version that it rejected, if it has accepted nothing newer, and the resources that its reason quotes.
    pub(crate) nacked_version: Option<String>,
    pub(crate) suspected: Vec<String>,
    /// The version that it accepted last.
    pub(crate) acked_version: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct NameList {
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
}

impl From<Names> for NameList {
    fn from(Names { first, count }: Names) -> Self {
        Self { count, names: first.iter().map(ToString::to_string).collect() }
    }
}

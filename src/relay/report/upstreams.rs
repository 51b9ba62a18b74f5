//! What `/upstreams` shows: each view, its ladders, its streams, and what it cannot use.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct ViewReport {
    pub(crate) view: String,
    /// The fields of its clients' nodes that made the key.
    pub(crate) key_fields: BTreeMap<String, String>,
    pub(crate) clients: usize,
    /// How many cached resources came from each server.
    pub(crate) cached: BTreeMap<String, usize>,
    pub(crate) authorities: Vec<AuthorityReport>,
    pub(crate) streams: Vec<StreamReport>,
}

/// Which server serves an authority, and since when.
#[derive(Debug, Serialize)]
pub(crate) struct AuthorityReport {
    /// Empty for `*` and old-style names.
    pub(crate) authority: String,
    /// idle, trying, active, held (unreachable, and the cache serves) or down.
    pub(crate) state: &'static str,
    pub(crate) server: Option<String>,
    pub(crate) state_seconds: u64,
    /// Why a server further up does not serve: what last went wrong with the one before.
    pub(crate) reason: Option<String>,
    /// What clients wait for that is not cached, in part, and how much of that there is. It lets the ladder move on.
    pub(crate) missing: Vec<MissingReport>,
    pub(crate) missing_count: usize,
    /// Moves to the next server, and back to one further up.
    pub(crate) fallbacks: u64,
    pub(crate) returns: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct StreamReport {
    pub(crate) server: String,
    pub(crate) connected: bool,
    pub(crate) variant: &'static str,
    pub(crate) responses: u64,
    pub(crate) last_error: Option<String>,
    /// Whether the server answered the last call that asked whether it is there: answered or pending, null without one.
    pub(crate) liveness_call: Option<&'static str>,
    pub(crate) types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TypeReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    pub(crate) cached: usize,
    /// How much of the wildcard set is known: unknown, arriving, first_response, settled or complete.
    pub(crate) completeness: Option<&'static str>,
    /// Names that are requested of the server a second time, since clients hold them and it did not mention them.
    pub(crate) requested_again: usize,
    /// Resources whose body goes by another name than they came under.
    pub(crate) name_mismatches: u64,
    /// What the server sent and cannot be used, up to a number, and how much of that there is.
    pub(crate) rejected: Vec<RejectedReport>,
    pub(crate) rejected_count: usize,
}

/// Something that clients want and the cache cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MissingReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `*` for the complete set.
    pub(crate) name: String,
}

/// A resource that a server sent and the relay cannot use. What was held before under its name stays.
#[derive(Debug, Serialize)]
pub(crate) struct RejectedReport {
    /// None where the name could not be read.
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) reason: String,
}

//! What `/upstreams` shows: each view, its ladders, its streams, and what it cannot use.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct ViewReport {
    pub view: String,
    /// The fields of its clients' nodes that made the key.
    pub key_fields: BTreeMap<String, String>,
    pub clients: usize,
    /// How many cached resources came from each server.
    pub cached: BTreeMap<String, usize>,
    pub authorities: Vec<AuthorityReport>,
    pub streams: Vec<StreamReport>,
}

/// Which server serves an authority, and since when.
#[derive(Debug, Serialize)]
pub struct AuthorityReport {
    /// Empty for `*` and old-style names.
    pub authority: String,
    /// idle, trying, active, held (out of reach, and the cache serves) or down.
    pub state: &'static str,
    pub server: Option<String>,
    pub state_seconds: u64,
    /// Why a server further up does not serve: what last went wrong with the one before.
    pub reason: Option<String>,
    /// What clients wait for that is not cached, in part, and how much of that there is. It lets the ladder move on.
    pub missing: Vec<MissingReport>,
    pub missing_count: usize,
    /// Moves to the next server, and back to one further up.
    pub fallbacks: u64,
    pub returns: u64,
}

#[derive(Debug, Serialize)]
pub struct StreamReport {
    pub server: String,
    pub connected: bool,
    pub variant: &'static str,
    pub responses: u64,
    pub last_error: Option<String>,
    /// Whether the server answered the last call that asked whether it is there: answered or pending, null without one.
    pub liveness_call: Option<&'static str>,
    pub types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub struct TypeReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub cached: usize,
    /// How much of the wildcard set is known: unknown, arriving, first_response, settled or complete.
    pub completeness: Option<&'static str>,
    /// Names that the server is asked for a second time, since clients hold them and it did not mention them.
    pub requested_again: usize,
    /// Resources whose body goes by another name than they came under.
    pub name_mismatches: u64,
    /// What the server sent and cannot be used, up to a number, and how much of that there is.
    pub rejected: Vec<RejectedReport>,
    pub rejected_count: usize,
}

/// Something that clients want and the cache cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingReport {
    #[serde(rename = "type")]
    pub kind: String,
    /// `*` for the whole set.
    pub name: String,
}

/// A resource that a server sent and the relay cannot use. What was held before under its name stays.
#[derive(Debug, Serialize)]
pub struct RejectedReport {
    /// None where the name could not be read.
    pub name: Option<String>,
    pub version: Option<String>,
    pub reason: String,
}

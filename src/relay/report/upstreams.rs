//! What `/upstreams` shows: each view, its ladders, its streams, and the resources that it rejected.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_core::protocol::view::Completeness;

use crate::relay::audit::AuditReport;

#[derive(Debug, Serialize)]
pub(crate) struct ViewReport {
    pub(crate) view: String,
    /// The node fields that form the sharing key.
    pub(crate) key_fields: BTreeMap<String, String>,
    /// The encoded node that servers are shown, in base64. Empty if it is that of a client, because this page does not show metadata of clients.
    pub(crate) node: String,
    /// A stream of the client that servers are shown, while it is there.
    pub(crate) shown_client: Option<u64>,
    pub(crate) clients: usize,
    /// How many cached resources came from each server.
    pub(crate) cached: BTreeMap<String, usize>,
    /// What was loaded from disk or inherited from an earlier configuration, until servers have confirmed all of it.
    pub(crate) from_disk: Option<FromDiskReport>,
    pub(crate) authorities: Vec<AuthorityReport>,
    pub(crate) streams: Vec<StreamReport>,
    /// What the last audit of the view has found, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<AuditReport>,
}

/// Resources of an earlier process that no server has confirmed.
#[derive(Debug, Serialize)]
pub(crate) struct FromDiskReport {
    pub(crate) resources: usize,
    /// For how long they have been served.
    pub(crate) seconds: u64,
    /// For how long their servers had not been heard when they were loaded; null if that is not known.
    pub(crate) unheard_seconds: Option<u64>,
}

/// The active server of an authority, and since when.
#[derive(Debug, Serialize)]
pub(crate) struct AuthorityReport {
    /// Empty for `*` and old-style names.
    pub(crate) authority: String,
    /// idle, trying, active, cached (unreachable, and the cache is served) or down.
    pub(crate) state: &'static str,
    pub(crate) server: Option<String>,
    pub(crate) state_seconds: u64,
    /// Why a server further up is not active: the last error of the server before the active one.
    pub(crate) reason: Option<String>,
    /// The first few names that clients wait for and that are not cached, and how many there are. They let the ladder move on.
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
    /// Whether the server answered the last liveness call: answered or pending; null if none was made.
    pub(crate) liveness_call: Option<&'static str>,
    /// Why liveness calls show nothing of the server, if they do not: a hung one looks like a silent one then.
    pub(crate) liveness_unrouted: Option<String>,
    pub(crate) types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TypeReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// REQUESTED, NOT_ASKED (the type is tried on a stream of its own first) or REFUSED.
    pub(crate) state: &'static str,
    /// The status by which the server refuses the type.
    pub(crate) refusal: Option<String>,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    /// Wanted names that are not requested, since a request has no room for them.
    pub(crate) names_left_out: usize,
    pub(crate) cached: usize,
    /// How much of the wildcard set is known: unknown, arriving, first_response, settled or complete.
    pub(crate) completeness: Option<&'static str>,
    /// Names that were requested from the server a second time, because clients hold them and it did not mention them.
    pub(crate) requested_again: usize,
    /// Resources whose body has another name than the wrapper or the subscription.
    pub(crate) name_mismatches: u64,
    /// The first few resources of the server that were rejected, and how many there are.
    pub(crate) rejected: Vec<RejectedReport>,
    pub(crate) rejected_count: usize,
}

/// A name that clients want and that is not cached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MissingReport {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `*` for the complete set.
    pub(crate) name: String,
}

/// A resource that a server sent and the relay rejected. The cached resource of that name stays.
#[derive(Debug, Serialize)]
pub(crate) struct RejectedReport {
    /// None if the name could not be read.
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) reason: String,
}

/// Returns the word for a completeness.
pub(crate) fn completeness_name(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::Unknown => "unknown",
        Completeness::Arriving => "arriving",
        Completeness::FirstResponse => "first_response",
        Completeness::Settled => "settled",
        Completeness::Complete => "complete",
    }
}

//! One downstream stream: its subscriptions, what it has been sent, and what to send next.
//!
//! Owns subscriptions, cursors, pending names, and the order of replies. It never keeps a resource or a finished reply.
//! Invariants: what it keeps is bounded by what its client requested; a reply is made only when the transport has accepted the
//! last one; what it sends of one snapshot goes out in rank order, additions before removals (I7).
//!
//! ```text
//!             newest state                                    nothing left on it
//!   idle ───────────────────▶ additions ──▶ removals ──▶ idle ◀───────────────┐
//!                               │    ▲                                         │
//!                               │    └── restart on the newest state ──────────┤
//!                               └─ blocked (ACK, hold, incomplete) or revoked ─┘
//! ```

mod acks;
mod additions;
mod alias_targets;
mod beginning;
mod burst;
pub(crate) mod carried;
mod client;
mod client_snapshot;
mod client_stream;
mod delays;
mod explain;
mod full_state;
mod holdings;
mod interest_changes;
mod longer_lives;
mod nack_reason;
mod names;
mod options;
mod pending;
mod rejections;
mod removals;
pub(crate) mod reply;
mod reports;
mod requested_names;
mod requests;
mod sent_state;
mod standing_nack;
mod stated;
mod subscription;
mod uncounted;
mod wildcard;
mod wildcard_additions;

use std::sync::Arc;

pub use acks::{Ack, AnswerEffect, NackChange, TypeAnswers};
pub use carried::ReplyLag;
pub use client::{Client, Identity, IdentityError, Variant};
pub use client_stream::Session;
pub use delays::{Delay, DelayReason};
pub use explain::{AckState, CountedNames, Differences, LastSent, NameBook, NameInView, Obstacle, similar_to};
pub use holdings::{HeldState, Holding, Holdings};
pub use nack_reason::{clean as shown_reason, names_quoted_by};
pub use options::{OnRefusedType, SessionOptions};
pub use rejections::RejectedReply;
pub use reply::{Heartbeat, Reply};
pub use reports::{Estimate, Footprint, Summary};
pub use requested_names::Authorities;
pub use sent_state::KeptNames;
pub use standing_nack::{InRejected, Nacked, StandingNack};

use super::moment::Moment;
use super::server_status::ServerStatus;
use crate::xds::Denied;

/// What the caller of [`Session::poll`] is to do next.
#[derive(Debug)]
pub enum Step {
    /// Send this, and poll again when the transport has accepted it.
    Reply(Box<Reply>),
    /// Nothing now: poll again when woken, or at this time.
    Idle(Option<Moment>),
    /// End the stream.
    End(CloseReason),
}

/// The result of [`Session::fetch`].
#[derive(Debug)]
pub enum FetchResult {
    /// Something is not known yet: fetch again when woken, or at this time.
    Waiting(Option<Moment>),
    /// The response.
    Reply(Box<Reply>),
    /// This was the last attempt, and not enough is known.
    Unknown,
    /// The request cannot be served.
    End(CloseReason),
}

/// Why the relay ends a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Removals that the client was not sent are forgotten. When it reconnects, it states what it holds.
    #[error("removal history expired; reconnect with initial_resource_versions")]
    HistoryExpired,
    /// The node changed to another key. When the client reconnects, it is served under that key (SOTW-11, KEY-14).
    #[error("node changed to another sharing key; reconnect")]
    KeyChanged,
    /// No server is reachable, nothing that this client wants is cached, and the client may have another server (XLAT-36).
    #[error("no server is reachable and nothing requested is cached")]
    NoUpstream,
    /// The view's task ended; on reconnecting, the client gets a new view.
    #[error("internal error in the view of this client; reconnect")]
    ViewFailed,
    /// The server ends streams that request this stream's type.
    #[error("the control plane ends streams that request this type: {0}")]
    TypeRefused(Box<ServerStatus>),
    /// The server refuses the headers of this client, and the client is a relay or has had no reply yet.
    #[error("the control plane refuses the headers of this client: {0}")]
    Refused(Box<ServerStatus>),
    /// The client broke the protocol or a limit.
    #[error("{0}")]
    BadRequest(BadRequest),
    /// A later node is one that permissions do not let the client be.
    #[error("{0}")]
    Denied(Box<Denied>),
}

/// Why a request ends its stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// An aggregated stream needs a type in each request.
    #[error("request without type_url on an aggregated stream")]
    NoType,
    /// The type is not the one that the service serves.
    #[error("invalid type_url {requested}: this stream serves {served}")]
    OtherType {
        /// The URL in the request.
        requested: String,
        /// The type that the service serves.
        served: String,
    },
    /// The permissions for this client do not list the type.
    #[error("type {kind} is not permitted: rule {rule} of permissions lists others")]
    TypeNotPermitted {
        /// The full name of the type.
        kind: String,
        /// The rule that applies to this client.
        rule: Arc<str>,
    },
    /// The request is of the other variant.
    #[error("invalid request: SotW and delta cannot be mixed on a stream")]
    Variant,
    /// The stream subscribes to more types than this limit.
    #[error("too many types on one stream: limit {0} (limits.types_per_stream)")]
    TooManyTypes(usize),
    /// The stream subscribes to more names of a type than this limit.
    #[error("too many names of one type on one stream: limit {0} (limits.names_per_type)")]
    TooManyNames(usize),
    /// The stream subscribes to, and states that it holds, more names of all types than this limit.
    #[error(
        "too many names on one stream, with those in initial_resource_versions: limit {0} (limits.names_per_stream)"
    )]
    TooManyNamesOnStream(usize),
    /// The versions that all clients state exceed this limit in bytes, and this stream states most of them.
    #[error(
        "too many versions in initial_resource_versions: the limit for all clients is {0} bytes \
         (limits.stated_versions_bytes); retry later"
    )]
    TooManyStatedVersions(usize),
}

#[cfg(test)]
mod tests;

//! Errors of single resources.

use crate::proto::code::{NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED};

/// An error of one resource, as upstream reported it (TP3) or as the relay found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedError {
    /// A gRPC status code.
    pub code: i32,
    /// The text for the client.
    pub message: String,
}

impl NamedError {
    pub(crate) fn not_found() -> Self {
        Self { code: NOT_FOUND, message: "there is no such resource".into() }
    }

    /// The view has no room for the name.
    pub(crate) fn no_room(limit: usize) -> Self {
        let message =
            format!("too many names for the clients that share a view: the limit is {limit} (limits.names_per_view)");
        Self { code: RESOURCE_EXHAUSTED, message }
    }

    pub(crate) fn not_allowed() -> Self {
        Self { code: PERMISSION_DENIED, message: "not for this client".into() }
    }

    /// Whether it concerns the resource itself, as opposed to a transient error (UP-44).
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(self.code, NOT_FOUND | PERMISSION_DENIED)
    }
}

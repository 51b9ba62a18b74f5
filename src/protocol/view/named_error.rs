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

    pub(crate) fn not_allowed() -> Self {
        Self { code: PERMISSION_DENIED, message: "not for this client".into() }
    }

    /// Whether it concerns the resource itself, as opposed to a transient error (UP-44).
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(self.code, NOT_FOUND | PERMISSION_DENIED)
    }
}

/// Why there is no room for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoRoom {
    /// Its view has as many names as it may have.
    InView(usize),
    /// All resources together take as many bytes as they may.
    InCache(usize),
    /// A request to the control plane has as many bytes as it may have.
    InRequest(usize),
}

impl NoRoom {
    pub(crate) fn error(self) -> NamedError {
        let message = match self {
            Self::InView(limit) => {
                format!(
                    "too many names for the clients that share a view: the limit is {limit} (limits.names_per_view)"
                )
            }
            Self::InCache(limit) => {
                format!("too many bytes of resources are cached: the limit is {limit} (limits.cached_bytes)")
            }
            Self::InRequest(limit) => {
                format!("there is no room for the name in a request to the control plane (max_request_bytes: {limit})")
            }
        };
        NamedError { code: RESOURCE_EXHAUSTED, message }
    }
}

//! Errors of single resources.

use crate::proto::code::{NOT_FOUND, PERMISSION_DENIED};

/// What is wrong with one resource, as upstream reported it (TP3) or as the relay found out.
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

    /// Whether it speaks of the resource itself, and not of a passing trouble (UP-44).
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(self.code, NOT_FOUND | PERMISSION_DENIED)
    }
}

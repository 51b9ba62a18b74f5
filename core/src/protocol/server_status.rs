//! The status by which a server has ended a stream.

use std::fmt;

/// What a server said when it ended a stream. A lost connection has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// The number of the gRPC status.
    pub code: i32,
    /// The text that the server wrote with it.
    pub message: String,
}

impl ServerStatus {
    /// Whether the status may be about what was requested. Other statuses are about the server, its load or the connection, or are no error.
    pub fn may_concern_request(&self) -> bool {
        !matches!(
            self.name(),
            "OK" | "CANCELLED" | "DEADLINE_EXCEEDED" | "RESOURCE_EXHAUSTED" | "ABORTED" | "UNAVAILABLE"
        )
    }

    /// Returns the name of the status in gRPC.
    pub fn name(&self) -> &'static str {
        let at = usize::try_from(self.code).unwrap_or(usize::MAX);
        NAMES.get(at).copied().unwrap_or("UNKNOWN")
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.is_empty() {
            true => to.write_str(self.name()),
            false => write!(to, "{}: {}", self.name(), self.message),
        }
    }
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_the_server_s_state_says_nothing_of_a_request() {
        let concerns = |code| ServerStatus { code, message: String::new() }.may_concern_request();
        let not: Vec<_> = (0..20).filter(|code| !concerns(*code)).collect();
        assert_eq!(not, [0, 1, 4, 8, 10, 14]);
        let status = ServerStatus { code: 16, message: "no token".into() };
        assert_eq!(status.to_string(), "UNAUTHENTICATED: no token");
    }
}

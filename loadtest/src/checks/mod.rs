//! What must hold for everything that a client receives, from any server.

mod convergence;
mod history;
mod nacks;
mod nonces;
mod order;
mod sets;
mod truth;

use std::fmt;

pub use convergence::difference;
pub use history::{History, Note};
pub use nacks::Nacked;
pub use nonces::Nonces;
pub use order::missing_cluster;
pub use sets::{duplicate, incomplete, regression, unasked};
pub use truth::Truth;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Each response can be read, and its resources are of its type.
    Readable,
    /// Each response of a stream has a nonce, and one of its own.
    Nonce,
    /// Responses have a type and names that the client subscribes to.
    Unasked,
    /// No response has a name twice.
    Duplicate,
    /// No resource is older than the one that the client holds. Needs the origin's stamps.
    Regression,
    /// A SotW set of listeners or clusters has everything that existed at the update of its newest resource; for a client of names, what
    /// the client holds of that. Needs the origin.
    Completeness,
    /// No route of the client refers to a cluster that it does not hold.
    MakeBeforeBreak,
    /// What the client has NACKed is not sent again before it has changed.
    ResendAfterNack,
    /// At rest, the client holds exactly what it subscribes to, in its last version. Needs the origin.
    Convergence,
}

impl Check {
    pub const ALL: [Self; 9] = [
        Self::Readable,
        Self::Nonce,
        Self::Unasked,
        Self::Duplicate,
        Self::Regression,
        Self::Completeness,
        Self::MakeBeforeBreak,
        Self::ResendAfterNack,
        Self::Convergence,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Readable => "readable",
            Self::Nonce => "nonce",
            Self::Unasked => "unasked",
            Self::Duplicate => "duplicate",
            Self::Regression => "regression",
            Self::Completeness => "completeness",
            Self::MakeBeforeBreak => "make-before-break",
            Self::ResendAfterNack => "resend-after-nack",
            Self::Convergence => "convergence",
        }
    }

    /// Whether the check needs the tool's own origin in the same process.
    pub fn needs_origin(self) -> bool {
        matches!(self, Self::Completeness | Self::Convergence)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A check that failed, with the messages before it.
#[derive(Debug, Clone)]
pub struct Violation {
    pub client: usize,
    pub behaviour: String,
    pub check: Check,
    pub what: String,
    pub history: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: client {} ({}): {}", self.check, self.client, self.behaviour, self.what)?;
        self.history.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

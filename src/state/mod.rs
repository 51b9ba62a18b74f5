//! What the relay has, on disk: a relay that starts while its servers are away serves what it served before.
//!
//! The edge to the disk, in a thread of its own. It reads a file once, for which streams wait while the disk answers (`relay/state_load.rs`), and
//! then writes what changes: a slow disk delays nothing but the file. What the loaded resources are worth is decided in `protocol` (`view/saved.rs`, `session/client_snapshot.rs`).

mod asked_disk;
mod brakes;
mod common;
mod counters;
mod file;
pub(crate) mod inputs;
mod load;
pub(crate) mod offline;
mod portable;
mod records;
mod save;
mod sealing;
#[cfg(test)]
mod tests;
#[allow(clippy::disallowed_methods, reason = "a thread of its own, which is sent one message")]
mod writer;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::counters::StateCounters;
pub(crate) use self::sealing::SealingKey;
pub(crate) use self::writer::StateWriter;

/// Where the state is kept, and what may be served from it.
#[derive(Debug, Clone)]
pub(crate) struct StateOptions {
    pub(crate) path: PathBuf,
    /// A file with the key that encrypts the state. Without it, secrets are not written.
    pub(crate) key: Option<PathBuf>,
    /// For how long the servers of a view may not have been heard.
    pub(crate) max_age: Option<Duration>,
    pub(crate) when_older: WhenOlder,
    /// Views whose secrets are not in the file are used.
    pub(crate) serve_without_secrets: bool,
    /// How long a loaded view waits for its first client.
    pub(crate) keep: Duration,
}

/// What happens with a view whose servers were not heard for longer than the maximum age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenOlder {
    Serve,
    /// It is served, and does not count for readiness.
    NotReady,
    /// It is not used.
    Refuse,
}

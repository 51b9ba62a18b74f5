//! The relay's resources on disk: a relay that starts while its servers are away serves what it served before.
//!
//! The only part with access to this file, in a thread of its own. It reads the file once, for which streams wait while the disk answers
//! (`relay/state_load.rs`), and then writes changes: a slow disk delays only the file. `protocol` decides what the loaded resources are worth
//! (`view/saved.rs`, `session/client_snapshot.rs`).

mod asked_disk;
mod brakes;
mod common;
mod counters;
mod file;
pub(crate) mod inputs;
mod load;
mod lowest;
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

/// Where the state is saved, and which parts of it may be served.
#[derive(Debug, Clone)]
pub(crate) struct StateOptions {
    pub(crate) path: PathBuf,
    /// A file with the key that encrypts the state. Without it, secrets are not written.
    pub(crate) key: Option<PathBuf>,
    /// Time since the servers of a view were last heard, above which `when_older` applies.
    pub(crate) max_age: Option<Duration>,
    pub(crate) when_older: WhenOlder,
    /// Whether views are used although their secrets are not in the file.
    pub(crate) serve_without_secrets: bool,
    /// How long a loaded view waits for its first client.
    pub(crate) keep: Duration,
}

/// What happens with a view whose servers have not been heard for longer than the maximum age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenOlder {
    Serve,
    /// The view is served, and the relay is not ready because of it.
    NotReady,
    /// The view is not used.
    Refuse,
}

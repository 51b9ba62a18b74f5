//! The faults of an origin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Leaves a cluster out of a complete set.
    DropFromFullSet,
    /// Sends a resource's previous body after its newest.
    OlderVersion,
    /// Uses the nonce of the last response again.
    RepeatNonce,
    /// Leaves the nonce empty.
    EmptyNonce,
    /// Adds a resource that the client does not subscribe to.
    UnaskedName,
    /// Responds with a type that the client does not subscribe to.
    WrongType,
    /// Has a resource twice in one response.
    DuplicateResource,
    /// Removes a cluster before the routes leave it.
    BreakBeforeMake,
    /// Sends the routes to a new cluster before the cluster.
    RouteBeforeCluster,
    /// Sends a response again after its NACK.
    ResendAfterNack,
    /// Never sends one change to one client.
    ForgetChange,
    /// Never sends removals (delta).
    ForgetRemoval,
    /// Stops in the middle of a response, and leaves the stream open.
    HangMidMessage,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = clap::ValueEnum::to_possible_value(self);
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}

/// The fault of an origin, if it has one.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    fault: Option<Fault>,
    is_spent: Arc<AtomicBool>,
}

impl Faults {
    pub fn new(fault: Option<Fault>) -> Self {
        Self { fault, is_spent: Arc::default() }
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether this is the configured fault and no stream has shown it yet.
    pub fn is_first(&self, fault: Fault) -> bool {
        self.has(fault) && !self.is_spent.swap(true, Ordering::Relaxed)
    }
}

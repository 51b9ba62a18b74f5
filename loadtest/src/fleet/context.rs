//! What the connections of a fleet share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::counters::Counters;
use crate::link::{Link, LinkError, LinkOptions, Target};
use crate::observe::Observer;

/// The phase in which all connections are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Nothing changes any more. Clients behave, and report when they have the same resources as the origin.
    Settling,
    /// The run ends. `judged`: clients that do not have the same resources as the origin are reported.
    Stopping {
        judged: bool,
    },
}

/// What all connections share.
#[derive(Clone)]
pub struct Context {
    pub targets: Arc<[Target]>,
    pub link: LinkOptions,
    pub period: Duration,
    pub started: Instant,
    pub phase: watch::Receiver<Phase>,
    pub counters: Arc<Counters>,
    pub observer: Arc<dyn Observer>,
    /// Limits concurrent handshakes.
    pub handshakes: Arc<Semaphore>,
}

impl Context {
    /// Opens a connection to one of the servers.
    pub async fn connect(&self, target: usize) -> Result<Link, String> {
        let target = self.target(target).ok_or("no server")?;
        let _permit = self.handshakes.acquire().await;
        match timeout(CONNECT_TIMEOUT, Link::open(target.clone(), &self.link)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(LinkError::Connect(error))) => Err(without_number(&error.to_string())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }

    /// Counts why a connection or a stream to one of the servers ended, or why a client lacks something.
    pub fn count_error(&self, target: usize, reason: &str) {
        match self.target(target) {
            Some(target) => self.counters.errors.count(&format!("{reason} ({target})")),
            None => self.counters.errors.count(reason),
        }
    }

    /// Waits for the end of the run. A fleet that was dropped has ended too.
    pub async fn stopped(&self) {
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Stopping { .. })).await;
    }

    fn target(&self, target: usize) -> Option<&Target> {
        self.targets.get(target.checked_rem(self.targets.len())?)
    }
}

/// Returns the text of a system error without its number.
fn without_number(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

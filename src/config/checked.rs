//! The configuration in types that cannot be invalid.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::diagnostic::Diagnostic;
use crate::downstream::{self, DrainTimes, ListenOptions, RestOptions};
use crate::relay::{LoadsMode, ViewsOptions};
use crate::state::StateOptions;
use crate::transcode::Transcoder;
use crate::upstream::Plan;

/// Where operators connect. Without an address and a socket they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminOptions {
    /// For reading.
    pub address: Option<SocketAddr>,
    /// A Unix socket, for reading and for changes.
    pub socket: Option<PathBuf>,
    /// Names that may lead to the address.
    pub hosts: Vec<Box<str>>,
}

/// Everything that a relay needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses for clients.
    pub listen: Vec<ListenOptions>,
    /// Where operators connect.
    pub admin: AdminOptions,
    /// The servers, and the lists of each authority.
    pub upstream: Plan,
    /// The transcoder with an operator's descriptors. None means the embedded ones, which may never be needed.
    pub(crate) transcoder: Option<Arc<Transcoder>>,
    /// Options of all views.
    pub views: ViewsOptions,
    /// Options of the hub, if there are shared authorities.
    pub hub: Option<ViewsOptions>,
    pub(crate) views_idle: Duration,
    /// The longest resource file.
    pub(crate) file_bytes: usize,
    pub(crate) downstream: downstream::Options,
    pub(crate) drain: DrainTimes,
    pub(crate) loads: LoadsMode,
    /// None if REST is not served.
    pub(crate) rest: Option<RestOptions>,
    /// None if nothing is kept.
    pub(crate) state: Option<StateOptions>,
    /// What is valid, but probably not intended.
    pub warnings: Vec<Diagnostic>,
}

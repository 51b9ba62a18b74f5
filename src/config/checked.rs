//! The configuration in types that cannot be invalid.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::diagnostic::Diagnostic;
use super::shown::ShownConfig;
use super::yaml::Node;
use crate::downstream::{self, DrainTimes, ListenOptions, RestOptions};
use crate::relay::{LoadsMode, ViewsOptions};
use crate::state::StateOptions;
use crate::tls::ListenTls;
use crate::transcode::Transcoder;
use crate::upstream::Plan;
use crate::xds::IdentityPattern;

/// Where operators connect, and who of them may do what. Without an address and a socket they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminOptions {
    /// For reading, and with TLS also for changes.
    pub address: Option<SocketAddr>,
    /// A Unix socket, for reading and for changes.
    pub socket: Option<PathBuf>,
    /// Names that may lead to the address.
    pub hosts: Vec<Box<str>>,
    /// TLS of the address.
    pub(crate) tls: Option<AdminTls>,
}

/// TLS towards operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminTls {
    pub(crate) tls: ListenTls,
    /// Who may read.
    pub(crate) may_read: Vec<IdentityPattern>,
    /// Who may read and change.
    pub(crate) may_change: Vec<IdentityPattern>,
}

/// How a file that changes is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReloadOptions {
    /// Whether the file is looked at again and again.
    pub(crate) watch: bool,
}

/// Everything that a relay needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses for clients.
    pub listen: Vec<ListenOptions>,
    /// Where operators connect.
    pub admin: AdminOptions,
    /// Where probes and scrapers of metrics connect.
    pub probes: Option<SocketAddr>,
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
    /// The file as it was written.
    pub(super) tree: Node,
    pub(crate) reload: ReloadOptions,
    /// As operators are shown it.
    pub(crate) shown: ShownConfig,
    /// What is valid, but probably not intended.
    pub warnings: Vec<Diagnostic>,
}

//! The APIs for operators and for probes.
//!
//! `pages` has the table of paths. A new path is a line there and a function in the file of its subject.

mod answer;
mod brakes;
mod caller;
mod certs;
mod client_status;
mod clients;
mod connection;
mod dump;
mod files;
mod grpc;
mod guard;
mod listener;
mod live;
mod logs;
mod nacks;
mod open;
mod page;
mod pages;
mod places;
mod probe_thread;
mod probe_values;
mod probes;
mod problems;
mod query;
mod resources;
mod server_info;
mod tap;
mod upstreams;
mod waits;

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::FromRef;
use futures_util::FutureExt;
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::caller::AdminSurface;
pub(crate) use self::certs::ServerCertificates;
use self::connection::Serving;
pub(crate) use self::dump::places as dump_places;
pub(crate) use self::guard::Rules;
pub(crate) use self::listener::AdminSocket;
use self::listener::{DetachedSocket, Listener};
pub(crate) use self::live::Live;
pub(crate) use self::open::{open_sockets, rules_of};
use self::probe_thread::ProbeThread;
pub(crate) use self::probe_values::ProbeValues;
pub(crate) use self::server_info::{ListenerInfo, ServerInfo, instance_of};
use crate::client_status::ClientStatus;
use crate::config_status::ConfigStatus;
use crate::downstream::RestService;
use crate::open_files::SpareFiles;
use crate::relay::Views;
use crate::telemetry::LogControl;
use crate::tls::ListenerTls;
use crate::transcode::Descriptors;
use crate::upstream::FilesSource;

/// What the handlers read.
#[derive(Clone)]
pub(crate) struct AdminContext {
    pub(crate) views: Arc<Views>,
    pub(crate) files: Arc<[FilesSource]>,
    /// `None` if REST is not served.
    pub(crate) rest: Option<Arc<RestService>>,
    pub(crate) log: LogControl,
    /// Who may make which requests.
    pub(crate) rules: Arc<Rules>,
    pub(crate) info: Arc<ServerInfo>,
    pub(crate) config: Arc<ConfigStatus>,
    pub(crate) reload: ReloadCall,
    /// The TLS of every listener.
    pub(crate) tls: Arc<[Arc<ListenerTls>]>,
    pub(crate) server_certificates: Arc<[ServerCertificates]>,
    pub(crate) descriptors: Descriptors,
    /// The pictures that all watchers share.
    pub(crate) live: Arc<Live>,
    /// Limits how many dumps are made at a time.
    pub(crate) dumps: Arc<Semaphore>,
    pub(crate) client_status: Arc<ClientStatus>,
}

/// Returns the context of the configuration that is in use when a request arrives.
#[derive(Clone)]
pub(crate) struct CurrentContext {
    pub(crate) shown: Arc<dyn Fn() -> AdminContext + Send + Sync>,
    pub(crate) probes: ProbeValues,
}

impl FromRef<CurrentContext> for AdminContext {
    fn from_ref(now: &CurrentContext) -> Self {
        (now.shown)()
    }
}

impl FromRef<CurrentContext> for ProbeValues {
    fn from_ref(now: &CurrentContext) -> Self {
        now.probes.clone()
    }
}

/// Reads the configuration file again, and returns what that has changed, or why it has changed nothing. A dry call only returns what would change.
pub(crate) type ReloadCall =
    Arc<dyn Fn(Dry) -> Pin<Box<dyn Future<Output = Result<Json, String>> + Send>> + Send + Sync>;

/// Whether a reload only reports and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dry(pub(crate) bool);

/// Serves without end. Probes are served on a thread of their own, at once if their socket is open; operators are served while this future is
/// polled. Dropping it closes all connections.
pub(crate) fn serve(
    sockets: Vec<AdminSocket>,
    spare: Arc<SpareFiles>,
    rules: Arc<Rules>,
    shown: CurrentContext,
) -> impl Future<Output = ()> {
    let of_probes = pages::of_probes(rules.clone(), shown.probes.clone().at_another_address());
    let of_operators = pages::of_operators(rules, shown);
    let (probes, operators): (Vec<_>, Vec<_>) =
        sockets.into_iter().partition(|socket| socket.via() == AdminSurface::Probes);
    let of_thread = spare.clone();
    let start = move |socket: std::io::Result<DetachedSocket>| {
        let started = socket.and_then(|it| ProbeThread::start(it, of_probes.clone(), of_thread.clone(), CONNECTIONS));
        started.inspect_err(|error| tracing::error!(%error, "cannot start the thread of probes")).ok()
    };
    let (mut threads, mut late) = (Vec::new(), Vec::new());
    for socket in probes {
        match socket.detach().now_or_never() {
            Some(detached) => threads.extend(start(detached)),
            None => late.push(socket),
        }
    }
    async move {
        let listeners = operators.into_iter().map(|socket| {
            Serving::new(&socket, of_operators.clone(), CONNECTIONS).serve(Listener::new(socket, spare.clone()))
        });
        let _until_dropped = (threads, listeners.collect::<JoinSet<_>>());
        let mut late_threads = Vec::new();
        for socket in late {
            late_threads.extend(start(socket.detach().await));
        }
        pending().await
    }
}

/// The limit of connections to each address and to the socket. Idle connections give way to new ones.
const CONNECTIONS: usize = 32;

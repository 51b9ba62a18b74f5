//! The surfaces for operators and for probes.
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
mod page;
mod pages;
mod places;
mod probes;
mod query;
mod resources;
mod server_info;
mod upstreams;
mod waits;

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::FromRef;
use serde_json::Value as Json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::caller::Via;
pub(crate) use self::certs::ServerCertificates;
use self::connection::Serving;
pub(crate) use self::dump::places as dump_places;
pub(crate) use self::guard::Rules;
pub(crate) use self::listener::AdminSocket;
use self::listener::Listener;
pub(crate) use self::live::Live;
pub(crate) use self::server_info::{ListenerInfo, ServerInfo};
use crate::client_status::ClientStatus;
use crate::config_status::ConfigStatus;
use crate::downstream::Rest;
use crate::open_files::Spare;
use crate::relay::Views;
use crate::telemetry::{Exposition, LogControl};
use crate::tls::ListenerTls;
use crate::transcode::Descriptors;
use crate::upstream::FilesSource;

/// The sources of what is shown.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) views: Arc<Views>,
    pub(crate) files: Arc<[FilesSource]>,
    /// None if REST is not served.
    pub(crate) rest: Option<Arc<Rest>>,
    pub(crate) metrics: Exposition,
    pub(crate) log: LogControl,
    /// Who may do what.
    pub(crate) rules: Arc<Rules>,
    pub(crate) info: Arc<ServerInfo>,
    pub(crate) config: Arc<ConfigStatus>,
    pub(crate) reload: ReloadCall,
    /// TLS of every listener.
    pub(crate) tls: Arc<[Arc<ListenerTls>]>,
    pub(crate) server_certificates: Arc<[ServerCertificates]>,
    pub(crate) descriptors: Descriptors,
    /// What those who watch share.
    pub(crate) live: Arc<Live>,
    /// How many dumps may be made at a time.
    pub(crate) dumps: Arc<Semaphore>,
    pub(crate) client_status: Arc<ClientStatus>,
}

/// What is shown now: each request sees the configuration that is in use when it comes.
#[derive(Clone)]
pub(crate) struct ShownNow(pub(crate) Arc<dyn Fn() -> Shown + Send + Sync>);

impl FromRef<ShownNow> for Shown {
    fn from_ref(now: &ShownNow) -> Self {
        (now.0)()
    }
}

/// Reads the configuration file again, and returns what that has changed, or why it has not.
pub(crate) type ReloadCall = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Json, String>> + Send>> + Send + Sync>;

/// Serves for ever. Dropping the future closes all connections.
pub(crate) async fn serve(sockets: Vec<AdminSocket>, spare: Arc<Spare>, rules: Arc<Rules>, shown: ShownNow) {
    let of_operators = pages::of_operators(rules.clone(), shown.clone());
    let of_probes = pages::of_probes(rules, shown);
    let listeners = sockets.into_iter().map(|socket| {
        let pages = if socket.via() == Via::Probes { &of_probes } else { &of_operators };
        Serving::new(&socket, pages.clone(), CONNECTIONS).serve(Listener::new(socket, spare.clone()))
    });
    listeners.collect::<JoinSet<_>>().join_all().await;
}

/// Connections at a time, to each address and to the socket. The idle ones give way to others.
const CONNECTIONS: usize = 32;

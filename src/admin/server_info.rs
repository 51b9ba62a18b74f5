//! What this process is, and its configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::answer::{json, text};
use super::{AdminContext, Dry};
use crate::build_facts;
use crate::downstream::AwaitedAddress;
use crate::relay::Readiness;

/// The facts of the process that no configuration has.
pub(crate) struct ServerInfo {
    pub(crate) started: SystemTime,
    pub(crate) since: Instant,
    pub(crate) listeners: Vec<ListenerInfo>,
    pub(crate) shards: usize,
    /// A reload may change it.
    pub(crate) max_connections: Box<dyn Fn() -> usize + Send + Sync>,
}

/// An address or socket on which the relay listens.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ListenerInfo {
    /// `clients`, `operators` or `probes`.
    #[serde(rename = "for")]
    pub(crate) whom: &'static str,
    pub(crate) address: String,
    pub(crate) tls: bool,
    /// False while the previous process still has the address.
    #[serde(serialize_with = "now")]
    pub(crate) open: Arc<AtomicBool>,
}

impl ServerInfo {
    /// Marks the listeners that are not open yet.
    pub(crate) fn awaiting(mut self, awaited: &[AwaitedAddress]) -> Self {
        for listener in &mut self.listeners {
            if let Some(awaited) = awaited.iter().find(|awaited| awaited.to_string() == listener.address) {
                listener.open = awaited.opened();
            }
        }
        self
    }
}

impl ListenerInfo {
    /// Returns a listener that is open.
    pub(crate) fn open(whom: &'static str, address: String, tls: bool) -> Self {
        Self { whom, address, tls, open: Arc::new(AtomicBool::new(true)) }
    }
}

fn now<S: Serializer>(flag: &AtomicBool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(flag.load(Ordering::Relaxed))
}

pub(super) async fn server_info(State(shown): State<AdminContext>) -> Response {
    let (info, config) = (&shown.info, shown.config.get());
    json(&json!({
        "version": build_facts::VERSION,
        "build": {
            "commit": build_facts::COMMIT,
            "profile": build_facts::PROFILE,
            "target": build_facts::TARGET,
            "allocator": build_facts::ALLOCATOR,
        },
        "pid": std::process::id(),
        "started": humantime::format_rfc3339_seconds(info.started).to_string(),
        "uptime_seconds": info.since.elapsed().as_secs(),
        "state": state(shown.views.readiness()),
        "config": { "file": config.file, "sha256": config.sha256 },
        "listeners": info.listeners,
        "workers": tokio::runtime::Handle::current().metrics().num_workers(),
        "shards": info.shards,
        "max_connections": (info.max_connections)(),
    }))
}

/// Returns a text that distinguishes this process from earlier ones.
pub(crate) fn instance_of(started: SystemTime) -> String {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", since.as_millis(), std::process::id())
}

/// Returns the state that the readiness probe reports.
pub(super) fn state(readiness: &Readiness) -> &'static str {
    match (readiness.is_draining(), readiness.is_ready()) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not_ready",
    }
}

pub(super) async fn config(State(shown): State<AdminContext>) -> Response {
    let facts = shown.config.get();
    json(&json!({
        "file": facts.file,
        "sha256": facts.sha256,
        "read": humantime::format_rfc3339_seconds(facts.read).to_string(),
        "pending": facts.pending,
        "error": facts.error,
        "bootstrap_sha256": facts.bootstrap,
        "command_line": facts.command_line,
        "config": *facts.config,
    }))
}

/// Reads the file again. If it has faults, they are in the response, and nothing has changed.
pub(super) async fn reload(State(shown): State<AdminContext>) -> Response {
    reloaded(&shown, Dry(false)).await
}

/// Returns what a reload would change, or why it would change nothing.
pub(super) async fn foretell(State(shown): State<AdminContext>) -> Response {
    reloaded(&shown, Dry(true)).await
}

async fn reloaded(shown: &AdminContext, dry: Dry) -> Response {
    match (shown.reload)(dry).await {
        Ok(report) => json(&report),
        Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, &error),
    }
}

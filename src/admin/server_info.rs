//! What this process is, and with which configuration it runs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::Shown;
use super::answer::json;
use crate::build_facts;
use crate::relay::Readiness;

/// What stays the same for as long as the process runs.
pub(crate) struct ServerInfo {
    pub(crate) started: SystemTime,
    pub(crate) since: Instant,
    pub(crate) config_file: PathBuf,
    pub(crate) config_sha256: String,
    pub(crate) listeners: Vec<ListenerInfo>,
    pub(crate) max_connections: usize,
    /// The configuration; SIGHUP replaces a part of it.
    pub(crate) config: Arc<Mutex<Json>>,
    /// What the command line says in place of the file.
    pub(crate) command_line: Json,
}

/// A place where the relay listens.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ListenerInfo {
    /// `clients`, `operators` or `probes`.
    #[serde(rename = "for")]
    pub(crate) whom: &'static str,
    pub(crate) address: String,
    pub(crate) tls: bool,
}

pub(super) async fn server_info(State(shown): State<Shown>) -> Response {
    let info = &shown.info;
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
        "config": { "file": info.config_file, "sha256": info.config_sha256 },
        "listeners": info.listeners,
        "workers": tokio::runtime::Handle::current().metrics().num_workers(),
        "max_connections": info.max_connections,
    }))
}

/// As the probe for readiness sees it.
fn state(readiness: &Readiness) -> &'static str {
    match (readiness.is_draining(), readiness.is_ready()) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not_ready",
    }
}

pub(super) async fn config(State(shown): State<Shown>) -> Response {
    let info = &shown.info;
    let config = info.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
    json(&json!({
        "file": info.config_file,
        "sha256": info.config_sha256,
        "command_line": info.command_line,
        "config": config,
    }))
}

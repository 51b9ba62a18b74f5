//! The certificates in use: those of listeners, and those that servers are shown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;

use super::AdminContext;
use super::answer::{json, text};
use crate::file_access;
use crate::tls::{CertificateReport, ShownCertificate, certificates, describe};

/// Files of certificates for one server. They are read for each connection, and so also for each report.
#[derive(Debug, Clone)]
pub(crate) struct ServerCertificates {
    pub(crate) server: String,
    /// The tenants for whose clients it is used, as patterns. `None`: for all clients.
    pub(crate) tenants: Option<Vec<String>>,
    /// The certificate that the server is shown.
    pub(crate) own: Option<PathBuf>,
    /// The CAs that may sign the server's certificate.
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    listeners: Vec<ListenerReport>,
    upstreams: Vec<ServerReport>,
}

#[derive(Serialize)]
struct ListenerReport {
    address: String,
    /// Whether the files on disk cannot be used, so that an earlier version is in use.
    outdated: bool,
    certificates: Vec<ShownCertificate>,
}

#[derive(Serialize)]
struct ServerReport {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenants: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<FileReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    chain: Vec<CertificateReport>,
}

pub(super) async fn certs(State(shown): State<AdminContext>) -> Response {
    let made = tokio::task::spawn_blocking(move || Report {
        listeners: shown
            .tls
            .iter()
            .map(|tls| {
                let report = tls.report();
                ListenerReport { address: report.listener, outdated: report.is_outdated, certificates: tls.described() }
            })
            .collect(),
        upstreams: shown.server_certificates.iter().map(of_server).collect(),
    });
    match made.await {
        Ok(report) => json(&report),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the report could not be made"),
    }
}

fn of_server(of: &ServerCertificates) -> ServerReport {
    let ServerCertificates { server, tenants, own, ca } = of.clone();
    ServerReport { server, tenants, certificate: own.map(read), ca: ca.map(read) }
}

fn read(file: PathBuf) -> FileReport {
    match chain_in(&file) {
        Ok(chain) => FileReport { file, error: None, chain },
        Err(error) => FileReport { file, error: Some(error), chain: Vec::new() },
    }
}

/// How long the report waits for a disk that hangs.
const FILE_LIMIT: Duration = Duration::from_secs(2);

/// Reads only the certificates of a file that may also have a key.
fn chain_in(file: &Path) -> Result<Vec<CertificateReport>, String> {
    let bytes = file_access::read_blocking(file, FILE_LIMIT).map_err(|error| error.to_string())?;
    certificates(file, &bytes).map(|chain| describe(&chain)).map_err(|error| error.to_string())
}

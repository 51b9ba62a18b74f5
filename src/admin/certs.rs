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
use crate::known_files::KnownFiles;
use crate::tls::{CertificateReport, OwnCertificate, ShownCertificate, TlsFileError, certificates, describe};

/// Files of certificates for one server. They are read for each connection, and so also for each report.
#[derive(Debug, Clone)]
pub(crate) struct ServerCertificates {
    pub(crate) server: String,
    /// The tenants for whose clients it is used, as patterns. `None`: for all clients.
    pub(crate) tenants: Option<Vec<String>>,
    /// The certificate that the server is shown.
    pub(crate) own: Option<OwnCertificate>,
    /// The CAs that may sign the server's certificate.
    pub(crate) ca: Option<PathBuf>,
    /// What connections to the server last read.
    pub(crate) known: KnownFiles,
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
    let ServerCertificates { server, tenants, own, ca, known } = of.clone();
    ServerReport { server, tenants, certificate: own.map(|own| in_use(own, &known)), ca: ca.map(read) }
}

/// Describes the certificate that new connections show: what its file has, or had before its key no longer belonged to it.
fn in_use(own: OwnCertificate, known: &KnownFiles) -> FileReport {
    let file = own.certificate.clone();
    let Some(kept) = known.kept_certificate([&file, &own.key]) else { return read(file) };
    let chain = certificates(&file, &kept).map(|chain| describe(&chain)).unwrap_or_default();
    let error = format!("{}; what they had before is used", TlsFileError::OtherKey(own));
    FileReport { file, error: Some(error), chain }
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_certificate_whose_key_is_of_another_is_reported_with_what_connections_show_in_its_place() {
        let folder = std::env::temp_dir().join(format!("weir-certs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = OwnCertificate { certificate: folder.join("own.pem"), key: folder.join("own.key") };
        let known = KnownFiles::default();
        let paths = [own.certificate.as_path(), own.key.as_path()];
        let renew = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            std::fs::write(&own.certificate, made.cert.pem()).unwrap();
            [made.cert.pem(), made.signing_key.serialize_pem()].map(Into::into)
        };
        let reported = || {
            let (server, own) = ("https://one".to_owned(), Some(own.clone()));
            let of = ServerCertificates { server, tenants: None, own, ca: None, known: known.clone() };
            let FileReport { file, error, chain } = of_server(&of).certificate.unwrap();
            assert_eq!(file, paths[0]);
            (chain[0].names.clone(), error)
        };
        known.belong_together(paths, renew("first"), Instant::now());
        assert_eq!(reported(), (vec!["dns:first".into()], None));
        let second = renew("second");
        assert_eq!(reported(), (vec!["dns:second".into()], None), "no connection has read it yet");
        let later = Instant::now() + FILE_LIMIT;
        known.last_together(paths, later).unwrap();
        let (names, error) = reported();
        assert_eq!(names, ["dns:first"]);
        let error = error.unwrap();
        assert!(
            error.contains("own.key does not belong to the certificate in ") && error.ends_with("is used"),
            "{error}"
        );
        known.belong_together(paths, second, later);
        assert_eq!(reported(), (vec!["dns:second".into()], None));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! The names of a certificate as they are matched with the server name of a client.

use rustls::pki_types::CertificateDer;

use super::certificate::{self, CertificateContent};

/// The DNS names that a certificate is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerNames {
    /// Names of one host, in lower case.
    pub(super) hosts: Vec<String>,
    /// The parts after the `*.` of names with a wildcard, which stands for one label.
    pub(super) parents: Vec<String>,
}

/// Returns the DNS names that a certificate is for, if it can be read.
pub(crate) fn server_names(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    certificate::read(certificate).map(|content| ServerNames::of(content).all())
}

impl ServerNames {
    pub(super) fn of(certificate: CertificateContent) -> Self {
        Self { hosts: certificate.dns, parents: certificate.wildcards }
    }

    /// Returns the names as the certificate has them.
    pub(super) fn all(&self) -> Vec<String> {
        let wildcards = self.parents.iter().map(|parent| format!("*.{parent}"));
        self.hosts.iter().cloned().chain(wildcards).collect()
    }
}

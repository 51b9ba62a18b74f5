//! What operators are shown of certificates. Keys are never read for it.

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::certificate;

/// One certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CertificateReport {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// In hexadecimal.
    pub(crate) serial: String,
    /// Subject alternative names, each with its kind: `dns:`, `uri:`, `ip:`.
    pub(crate) names: Vec<String>,
    pub(crate) not_before: String,
    pub(crate) not_after: String,
}

/// Describes a chain, the leaf first. A certificate that cannot be read has empty fields.
pub(crate) fn describe(chain: &[CertificateDer<'_>]) -> Vec<CertificateReport> {
    chain.iter().map(|der| described(der).unwrap_or_else(unreadable)).collect()
}

fn described(der: &[u8]) -> Option<CertificateReport> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate::read(der)?.validity;
    let time = |time| humantime::format_rfc3339_seconds(time).to_string();
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.into_iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!("dns:{name}")),
        GeneralName::URI(uri) => Some(format!("uri:{uri}")),
        GeneralName::IPAddress(bytes) => Some(format!("ip:{}", ip(bytes)?)),
        _ => None,
    });
    Some(CertificateReport {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        serial: certificate.raw_serial_as_string(),
        names: names.collect(),
        not_before: time(validity.from),
        not_after: time(validity.until),
    })
}

fn ip(bytes: &[u8]) -> Option<std::net::IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(Into::into);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(Into::into)).ok()
}

fn unreadable() -> CertificateReport {
    let nothing = String::new;
    CertificateReport {
        subject: "unreadable".into(),
        issuer: nothing(),
        serial: nothing(),
        names: Vec::new(),
        not_before: nothing(),
        not_after: nothing(),
    }
}

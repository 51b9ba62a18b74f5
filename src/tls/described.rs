//! Descriptions of certificates for operators. Keys are never read for them.

use std::path::PathBuf;

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
    /// The serial number in hexadecimal.
    pub(crate) serial: String,
    /// Subject alternative names, each with its kind: `dns:`, `uri:`, `ip:`.
    pub(crate) names: Vec<String>,
    pub(crate) not_before: String,
    pub(crate) not_after: String,
}

/// One of the certificates that a listener presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ShownCertificate {
    pub(crate) file: PathBuf,
    /// The server names for which clients get it. The first certificate of a listener is also for all other names.
    pub(crate) server_names: Vec<String>,
    /// Whether its present files cannot be used, so that an earlier version is presented.
    pub(crate) outdated: bool,
    pub(crate) chain: Vec<CertificateReport>,
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, SerialNumber};

    use super::*;

    #[test]
    fn each_certificate_of_a_chain_is_described_with_all_of_its_names() {
        let mut params = CertificateParams::new(["relay.example".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://a/b".try_into().unwrap()));
        for ip in ["10.0.0.1", "::1"] {
            params.subject_alt_names.push(SanType::IpAddress(ip.parse().unwrap()));
        }
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "own");
        params.serial_number = Some(SerialNumber::from(0x1a2b_u64));
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        let [readable, other] = &describe(&[certificate, vec![1, 2].into()])[..] else { panic!() };
        let expected = CertificateReport {
            subject: "CN=own".into(),
            issuer: "CN=own".into(),
            serial: "1a:2b".into(),
            names: ["dns:relay.example", "uri:spiffe://a/b", "ip:10.0.0.1", "ip:::1"].map(String::from).to_vec(),
            not_before: "2020-01-01T00:00:00Z".into(),
            not_after: "2040-01-01T00:00:00Z".into(),
        };
        assert_eq!(*readable, expected);
        assert_eq!((other.subject.as_str(), other.not_after.as_str()), ("unreadable", ""));
    }
}

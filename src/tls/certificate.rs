//! The content of a certificate: names, validity, and whether it may sign others. Nothing here is verified.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_BASIC_CONSTRAINTS;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

/// The parts of a certificate that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateContent {
    /// All URIs, including invalid ones.
    pub(super) uris: Vec<String>,
    /// The DNS names of a single host, in lower case.
    pub(super) dns: Vec<String>,
    /// The parts after the `*.` of DNS names with a wildcard, in lower case.
    pub(super) wildcards: Vec<String>,
    /// Whether it may sign certificates or revocation lists.
    pub(super) is_issuer: bool,
    pub(super) validity: Validity,
}

/// The time in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
}

/// Reads a certificate; `None` if any part of interest cannot be read, since other programs could interpret it in another way.
pub(super) fn read(der: &[u8]) -> Option<CertificateContent> {
    let (_, certificate) = X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty())?;
    let (mut uris, mut dns, mut wildcards) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(names) = certificate.subject_alternative_name().ok()? {
        for name in &names.value.general_names {
            match name {
                GeneralName::URI(uri) => uris.push(uri.to_string()),
                GeneralName::DNSName(name) => match name.strip_prefix("*.") {
                    Some(parent) => wildcards.extend(host(parent)),
                    None => dns.extend(host(name)),
                },
                GeneralName::Invalid(..) => return None,
                _ => {}
            }
        }
    }
    let is_ca = match certificate.get_extension_unique(&OID_X509_EXT_BASIC_CONSTRAINTS).ok()? {
        None => false,
        Some(extension) => match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) => constraints.ca,
            _ => return None,
        },
    };
    let usage = certificate.key_usage().ok()?;
    let signs = usage.is_some_and(|usage| usage.value.key_cert_sign() || usage.value.crl_sign());
    let validity = certificate.validity();
    let validity = Validity { from: time(validity.not_before), until: time(validity.not_after) };
    Some(CertificateContent { uris, dns, wildcards, is_issuer: is_ca || signs, validity })
}

/// The parts of a revocation list that are read.
pub(super) struct ListContent {
    pub(super) issuer: Vec<u8>,
    pub(super) issuer_text: String,
    /// When the next list is due.
    pub(super) due: Option<SystemTime>,
}

pub(super) fn read_list(der: &[u8]) -> Option<ListContent> {
    let (_, list) = CertificateRevocationList::from_der(der).ok().filter(|(rest, _)| rest.is_empty())?;
    let issuer = list.issuer();
    let due = list.next_update().map(time);
    Some(ListContent { issuer: issuer.as_raw().to_vec(), issuer_text: issuer.to_string(), due })
}

/// Returns the time in which all certificates of a chain are valid.
pub(crate) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<Validity> {
    let all = chain.iter().map(|der| read(der).map(|content| content.validity));
    let common =
        |one: Validity, other: Validity| Validity { from: one.from.max(other.from), until: one.until.min(other.until) };
    all.collect::<Option<Vec<_>>>()?.into_iter().reduce(common)
}

/// Returns the name in lower case if it is the name of a single host, without a wildcard.
fn host(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let labels = name.split('.').all(|label| !label.is_empty() && label.bytes().all(plain));
    (labels && name.len() <= LONGEST_HOST).then(|| name.to_ascii_lowercase())
}

/// Whether a URI has only visible ASCII characters, as URIs must.
pub(super) fn is_plain(uri: &str) -> bool {
    !uri.is_empty() && uri.bytes().all(|byte| byte.is_ascii_graphic())
}

fn time(time: ASN1Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

impl Validity {
    /// Returns the time before the end in which a renewal is late: the last third of the lifetime, but at most thirty days.
    pub(crate) fn late(&self) -> Range<SystemTime> {
        let life = self.until.duration_since(self.from).unwrap_or_default();
        let late = (life / 3).min(LATE);
        self.until.checked_sub(late).unwrap_or(self.until)..self.until
    }
}

/// The longest name that DNS allows.
const LONGEST_HOST: usize = 253;
const LATE: Duration = Duration::from_secs(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, IsCa, KeyPair, KeyUsagePurpose};

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn made(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["A.Example".to_owned(), "*.b.example".to_owned()]).unwrap();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn what_may_sign_certificates_or_lists_is_an_issuer_and_nothing_else_is() {
        type Change = fn(&mut CertificateParams);
        let rows: [(Change, bool); 5] = [
            (|_| {}, false),
            (|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature], false),
            (|params| params.is_ca = IsCa::ExplicitNoCa, false),
            (|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign], true),
            (|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained), true),
        ];
        for (number, (change, is_issuer)) in rows.into_iter().enumerate() {
            assert_eq!(read(&made(change)).unwrap().is_issuer, is_issuer, "row {number}");
        }
    }

    #[test]
    fn names_are_of_one_host_in_lower_case_and_bytes_after_a_certificate_make_it_unreadable() {
        let certificate = made(|_| {});
        let content = read(&certificate).unwrap();
        assert_eq!(content.dns, ["a.example"], "a wildcard names no host");
        assert_eq!(content.wildcards, ["b.example"]);
        assert_eq!(read(&[&certificate[..], &[0]].concat()), None);
        let label = "a".repeat(62);
        let longest = format!("{}.a", [label.as_str(); 4].join("."));
        assert_eq!((longest.len(), host(&longest)), (253, Some(longest.clone())));
        for not in [&format!("{longest}a"), "a..b", "a.", ".a", "", "a b", "*.a", "ä.example"] {
            assert_eq!(host(not), None, "{not}");
        }
    }

    #[test]
    fn a_chain_is_valid_while_each_of_its_certificates_is() {
        let certificate = |from: u64, until: u64| {
            made(|params| {
                params.not_before = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(from);
                params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(until);
            })
        };
        let chain = [certificate(100, 900), certificate(300, 700), certificate(200, 800)];
        assert_eq!(of_chain(&chain), Some(Validity { from: at(300), until: at(700) }));
        assert_eq!(of_chain(&[chain[0].clone(), vec![1, 2, 3].into()]), None, "of one nothing is known");
        assert_eq!(of_chain(&[]), None);
    }

    #[test]
    fn a_renewal_is_late_in_the_last_third_and_never_more_than_thirty_days_before_the_end() {
        let day = 24 * 3600;
        let late = |from: u64, until: u64| Validity { from: at(from), until: at(until) }.late();
        assert_eq!(late(3 * day, 12 * day), at(9 * day)..at(12 * day));
        assert_eq!(late(0, 90 * day), at(60 * day)..at(90 * day));
        assert_eq!(late(0, 365 * day), at(335 * day)..at(365 * day));
        assert!(late(9 * day, 3 * day).is_empty(), "it never was valid");
    }
}

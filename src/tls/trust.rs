//! Which certificates of clients are accepted, and which names they prove.
//!
//! A certificate with a SPIFFE id counts by that id alone, and only the bundle of the id's own trust domain can vouch for it: the CAs of other
//! domains could sign any id and any DNS name. The CAs of `client_ca` vouch for all other certificates.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, Der, TrustAnchor, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DistinguishedName, OtherError, RootCertStore};
use weir_core::xds::CertificateNames;

use super::certificate::{self, CertificateContent, Validity, is_plain};
use super::pem::{TlsFileError, provider};
use super::spiffe::{SpiffeId, claims_to_be_one};

/// The CAs and revocation lists, as they were read at one time.
#[derive(Debug)]
pub(super) struct Trust {
    by_ca: Option<Issuers>,
    domains: BTreeMap<Box<str>, Issuers>,
    hints: Vec<DistinguishedName>,
}

/// CAs of one file.
#[derive(Debug)]
struct Issuers {
    verifier: Arc<dyn ClientCertVerifier>,
    path: PathBuf,
}

/// The CAs of one file, as read.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) path: PathBuf,
    pub(super) certificates: Arc<RootCertStore>,
}

/// Why a client's certificate is rejected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rejection {
    /// The client has presented none, but must.
    NoCertificate,
    Unreadable,
    Expired,
    NotYetValid,
    Revoked,
    /// No CA in the file has signed it.
    OtherCa(PathBuf),
    /// It has no SPIFFE id, and no other names are accepted.
    NoSpiffeId,
    InvalidSpiffeId(String),
    /// It has several URIs, or another URI beside its SPIFFE id.
    SeveralUris,
    UnknownDomain(String),
    /// The bundle of the id's own trust domain has not verified it.
    OtherDomain(String, PathBuf),
    /// It is a certificate that may sign others.
    Issuer,
    Unverified(CertificateError),
}

impl Trust {
    pub(super) fn new(
        by_ca: Option<&Roots>,
        domains: &BTreeMap<Box<str>, Roots>,
        lists: &[CertificateRevocationListDer<'static>],
        lists_path: Option<&Path>,
    ) -> Result<Self, TlsFileError> {
        let issuers = |roots: &Roots| {
            let builder = WebPkiClientVerifier::builder_with_provider(roots.certificates.clone(), provider());
            // Lists apply to the whole chain, for each CA that has one. An expired list still revokes its entries.
            let built = builder.with_crls(lists.iter().cloned()).allow_unknown_revocation_status().build();
            let path = lists_path.unwrap_or(&roots.path).to_owned();
            let verifier = built.map_err(|source| TlsFileError::UnusableList { path, source })?;
            Ok(Issuers { verifier, path: roots.path.clone() })
        };
        let mut hints = Vec::new();
        for subject in by_ca.into_iter().chain(domains.values()).flat_map(|roots| roots.certificates.subjects()) {
            let is_known = |hint: &DistinguishedName| hint.as_ref() == subject.as_ref();
            if !hints.iter().any(is_known) {
                hints.push(subject);
            }
        }
        let by_ca = by_ca.map(issuers).transpose()?;
        let domains = domains.iter().map(|(name, roots)| Ok((name.clone(), issuers(roots)?)));
        Ok(Self { by_ca, domains: domains.collect::<Result<_, TlsFileError>>()?, hints })
    }

    /// Checks that lists can be used, independent of the CAs.
    pub(super) fn check_lists(
        lists: &[CertificateRevocationListDer<'static>],
        path: &Path,
    ) -> Result<(), TlsFileError> {
        let nobody = TrustAnchor {
            subject: Der::from_slice(&[]),
            subject_public_key_info: Der::from_slice(&[]),
            name_constraints: None,
        };
        let nobody = Roots { path: path.into(), certificates: Arc::new(RootCertStore { roots: vec![nobody] }) };
        Self::new(Some(&nobody), &BTreeMap::new(), lists, Some(path)).map(|_| ())
    }

    /// The names of all CAs, by which clients may select a certificate.
    pub(super) fn hints(&self) -> &[DistinguishedName] {
        &self.hints
    }

    /// Verifies a chain, and returns the names that it proves.
    pub(super) fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<CertificateNames, Rejection> {
        let content = certificate::read(leaf).ok_or(Rejection::Unreadable)?;
        if content.uris.iter().any(|uri| claims_to_be_one(uri)) && !self.domains.is_empty() {
            return self.judge_spiffe(&content, leaf, others, now);
        }
        let issuers = self.by_ca.as_ref().ok_or(Rejection::NoSpiffeId)?;
        issuers.verify(leaf, others, now).map_err(|error| match error {
            error if is_of_another_ca(&error) => Rejection::OtherCa(issuers.path.clone()),
            error => error.into(),
        })?;
        let CertificateContent { uris, dns, .. } = content;
        let uris = uris.into_iter().filter(|uri| is_plain(uri) && !claims_to_be_one(uri));
        Ok(CertificateNames {
            spiffe: None,
            uris: uris.map(String::into_boxed_str).collect(),
            dns: dns.into_iter().map(String::into_boxed_str).collect(),
        })
    }

    fn judge_spiffe(
        &self,
        content: &CertificateContent,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<CertificateNames, Rejection> {
        let [uri] = content.uris.as_slice() else { return Err(Rejection::SeveralUris) };
        let id = SpiffeId::parse(uri).ok_or_else(|| Rejection::InvalidSpiffeId(shown(uri)))?;
        let issuers = self.domains.get(id.domain).ok_or_else(|| Rejection::UnknownDomain(id.domain.to_owned()))?;
        if content.is_issuer {
            return Err(Rejection::Issuer);
        }
        issuers.verify(leaf, others, now).map_err(|error| match error {
            error if is_of_another_ca(&error) => Rejection::OtherDomain(uri.clone(), issuers.path.clone()),
            error => error.into(),
        })?;
        // Its DNS names do not count: each trust domain could claim names of the others.
        Ok(CertificateNames { spiffe: Some(uri.as_str().into()), uris: Vec::new(), dns: Vec::new() })
    }
}

impl Issuers {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> Result<(), CertificateError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match self.verifier.verify_client_cert(leaf, others, UnixTime::since_unix_epoch(now)) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(error)) => Err(error),
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error)))),
        }
    }
}

/// Whether another CA has signed the certificate. A bad signature comes from another CA of the same name.
fn is_of_another_ca(error: &CertificateError) -> bool {
    matches!(error, CertificateError::UnknownIssuer | CertificateError::BadSignature)
}

/// Returns when the first certificate of a chain that is still valid expires: then the chain has to be judged again.
pub(super) fn next_end(chain: &[CertificateDer<'_>], now: SystemTime) -> Option<SystemTime> {
    let all = chain.iter().filter_map(|der| certificate::read(der)).map(|content| content.validity);
    let ends = all.map(|Validity { until, .. }| until + SECOND); // the last second counts
    ends.filter(|end| *end > now).min()
}

const SECOND: Duration = Duration::from_secs(1);

impl From<CertificateError> for Rejection {
    fn from(error: CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::Revoked => Self::Revoked,
            error => Self::Unverified(error),
        }
    }
}

impl Rejection {
    /// Returns the error from which the alert to the client is made.
    pub(super) fn for_client(&self) -> rustls::Error {
        rustls::Error::InvalidCertificate(match self {
            Self::Unreadable => CertificateError::BadEncoding,
            Self::Expired => CertificateError::Expired,
            Self::NotYetValid => CertificateError::NotValidYet,
            Self::Revoked => CertificateError::Revoked,
            Self::OtherCa(_) | Self::OtherDomain(..) | Self::UnknownDomain(_) => CertificateError::UnknownIssuer,
            Self::NoCertificate | Self::NoSpiffeId | Self::InvalidSpiffeId(_) | Self::SeveralUris | Self::Issuer => {
                CertificateError::ApplicationVerificationFailure
            }
            Self::Unverified(error) => error.clone(),
        })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("no client certificate"),
            Self::Unreadable => f.write_str("client certificate cannot be read"),
            Self::Expired => f.write_str("client certificate expired"),
            Self::NotYetValid => f.write_str("client certificate not valid yet"),
            Self::Revoked => f.write_str("client certificate revoked"),
            Self::OtherCa(ca) => write!(f, "client certificate not signed by any CA in {}", ca.display()),
            Self::NoSpiffeId => f.write_str("client certificate without a SPIFFE id, and client_ca is not set"),
            Self::InvalidSpiffeId(id) => write!(f, "client certificate with an invalid SPIFFE id, {id}"),
            Self::SeveralUris => f.write_str("client certificate with several URIs: expected one SPIFFE id alone"),
            Self::UnknownDomain(domain) => {
                write!(f, "client certificate of trust domain {domain}, which is not in trust_domains")
            }
            Self::OtherDomain(id, bundle) => {
                write!(
                    f,
                    "client certificate of {id} not signed by any CA of its trust domain, in {}",
                    bundle.display()
                )
            }
            Self::Issuer => f.write_str("client certificate that may sign others: expected one that may not"),
            Self::Unverified(error) => write!(f, "client certificate not accepted: {error}"),
        }
    }
}

/// Returns a peer's text, shortened and without control characters.
fn shown(text: &str) -> String {
    text.chars().take(100).map(|letter| if letter.is_ascii_graphic() { letter } else { '?' }).collect()
}

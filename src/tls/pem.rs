//! PEM files: certificates, keys and revocation lists, and their errors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

/// A certificate of the relay with its chain, and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// An error of the relay's own TLS files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFileError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is no PEM file", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("there is no certificate in {}", .0.display())]
    NoCertificate(PathBuf),
    #[error("there is no private key in {}", .0.display())]
    NoKey(PathBuf),
    #[error("a certificate in {} cannot be used", path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the key in {} does not belong to the certificate in {}", .0.key.display(), .0.certificate.display())]
    OtherKey(OwnCertificate),
    #[error("there is no revocation list in {}", .0.display())]
    NoList(PathBuf),
    #[error("a revocation list in {} cannot be used", path.display())]
    UnusableList {
        path: PathBuf,
        #[source]
        source: VerifierBuilderError,
    },
    #[error("a revocation list in {} cannot be read", .0.display())]
    UnreadableList(PathBuf),
    #[error("two revocation lists in {} are of one issuer, {issuer}: expected one for each", path.display())]
    TwoLists { path: PathBuf, issuer: String },
    #[error("the system has no certificates that it trusts; say tls.ca")]
    NoSystemRoots,
    #[error("the certificates that the system trusts cannot be read within {}; say tls.ca", humantime::format_duration(*.0))]
    LateSystemRoots(Duration),
    #[error("aws-lc offers no TLS")]
    Provider(#[source] rustls::Error),
    #[error("{}", in_one_line(.0))]
    Several(Vec<TlsFileError>),
}

impl TlsFileError {
    /// Returns all errors as one, if there are any.
    pub(super) fn all(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Several(errors)),
        }
    }
}

/// Returns the errors, each with its cause.
fn in_one_line(errors: &[TlsFileError]) -> String {
    let with_cause = |error: &TlsFileError| match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    errors.iter().map(with_cause).collect::<Vec<_>>().join("; ")
}

/// Reads the certificates of a file. There is at least one.
pub(crate) fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let all = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| TlsFileError::Pem { path: path.into(), source })?;
    if all.is_empty() { Err(TlsFileError::NoCertificate(path.into())) } else { Ok(all) }
}

/// Reads the private key of a file.
pub(crate) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsFileError::NoKey(path.into()),
        source => TlsFileError::Pem { path: path.into(), source },
    })
}

/// Reads a file of CAs. There is at least one.
pub(crate) fn roots(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, bytes)? {
        roots.add(certificate).map_err(|source| TlsFileError::Unusable { path: path.into(), source })?;
    }
    Ok(roots)
}

/// Reads the revocation lists of a file. There is at least one.
pub(super) fn lists(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
    let all = CertificateRevocationListDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| TlsFileError::Pem { path: path.into(), source })?;
    if all.is_empty() { Err(TlsFileError::NoList(path.into())) } else { Ok(all) }
}

/// Reads a certificate with its key, which has to belong to it.
pub(super) fn pair(own: &OwnCertificate, certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsFileError> {
    let (chain, key) = (certificates(&own.certificate, certificate)?, private_key(&own.key, key)?);
    let pair = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
    pair.map_err(|source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFileError::OtherKey(own.clone()),
        source => TlsFileError::Unusable { path: own.certificate.clone(), source },
    })
}

/// The cryptography of all TLS in the relay.
pub(super) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

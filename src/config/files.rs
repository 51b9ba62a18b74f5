//! Checks the files that a configuration names: whether they exist and have the right content.

use std::io;
use std::path::{Path, PathBuf};

use ::aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use crate::file_access::{self, LIMIT};
use crate::state::SealingKey;
use crate::tls::{self, Validity};
use crate::upstream::{header_value, valid_credentials};

#[derive(Debug, thiserror::Error)]
pub(super) enum FileFault {
    #[error("cannot read {}: {}", path.display(), cause(error))]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("invalid file {}: expected {expected}", path.display())]
    Content { path: PathBuf, expected: &'static str },
    #[error("the revocation lists in {} {reason}", path.display())]
    List { path: PathBuf, reason: String },
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    OtherKey { certificate: PathBuf, key: PathBuf },
}

pub(super) fn text(path: &Path) -> Result<String, FileFault> {
    let no_text = |_| io::Error::from(io::ErrorKind::InvalidData);
    String::from_utf8(bytes(path)?).map_err(|error| FileFault::Unreadable { path: path.into(), error: no_text(error) })
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, FileFault> {
    let read = file_access::read_blocking(path, LIMIT);
    read.map(Into::into).map_err(|error| FileFault::Unreadable { path: path.into(), error })
}

/// Checks a PEM file of certificates.
pub(super) fn look_at_certificates(path: &Path) -> Result<(), FileFault> {
    let expected = "certificates in PEM";
    if certificates(path)?.is_empty() { Err(FileFault::Content { path: path.into(), expected }) } else { Ok(()) }
}

/// Checks the folder of a file that the relay writes.
pub(super) fn look_at_folder(path: &Path) -> Result<(), FileFault> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let looked = file_access::look_blocking(&folder.join("."), LIMIT);
    looked.map_err(|error| FileFault::Unreadable { path: folder.into(), error })
}

/// Checks the key of the state file.
pub(super) fn look_at_sealing_key(path: &Path) -> Result<(), FileFault> {
    let expected = "32 bytes, or those in base64 or hexadecimal";
    SealingKey::parse(&bytes(path)?).map(drop).map_err(|_| FileFault::Content { path: path.into(), expected })
}

/// Checks a PEM file of CAs.
pub(super) fn look_at_cas(path: &Path) -> Result<(), FileFault> {
    look_at_certificates(path)?;
    let mut roots = RootCertStore::empty();
    let readable = certificates(path)?.into_iter().all(|certificate| roots.add(certificate).is_ok());
    let expected = "certificates that can be read";
    readable.then_some(()).ok_or_else(|| FileFault::Content { path: path.into(), expected })
}

/// Checks a PEM file of revocation lists.
pub(super) fn look_at_lists(path: &Path) -> Result<(), FileFault> {
    match tls::check_lists(path, &bytes(path)?) {
        Ok(None) => Ok(()),
        Ok(Some(due)) => Err(FileFault::List {
            path: path.into(),
            reason: format!("have expired at {}", humantime::format_rfc3339_seconds(due)),
        }),
        Err(error) => Err(FileFault::List { path: path.into(), reason: format!("cannot be used: {error}") }),
    }
}

/// Returns when the certificates of a file are valid, if they can be read.
pub(super) fn validity(path: &Path) -> Option<Validity> {
    tls::of_chain(&certificates(path).ok()?)
}

/// Whether the first certificate of a file can be read and has no DNS name.
pub(super) fn is_without_names(path: &Path) -> bool {
    let leaf = certificates(path).ok().and_then(|chain| chain.into_iter().next());
    leaf.is_some_and(|leaf| tls::server_names(&leaf).is_some_and(|names| names.is_empty()))
}

/// Checks that a key belongs to a certificate. Files with faults of their own are not compared.
pub(super) fn look_at_pair(certificate: &Path, key: &Path) -> Result<(), FileFault> {
    let (Ok(chain), Ok(bytes)) = (certificates(certificate), bytes(key)) else { return Ok(()) };
    let Ok(private) = PrivateKeyDer::from_pem_slice(&bytes) else { return Ok(()) };
    let pair = CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider());
    match pair {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(FileFault::OtherKey { certificate: certificate.into(), key: key.into() })
        }
        _ => Ok(()),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let all = CertificateDer::pem_slice_iter(&bytes(path)?).collect::<Result<_, pem::Error>>();
    Ok(all.unwrap_or_default())
}

/// Checks a PEM file of a private key.
pub(super) fn look_at_key(path: &Path) -> Result<(), FileFault> {
    let key = PrivateKeyDer::from_pem_slice(&bytes(path)?);
    key.map(|_| ()).map_err(|_| FileFault::Content { path: path.into(), expected: "a private key in PEM" })
}

/// Checks a file with a JSON web token: three parts in base64, separated by dots.
pub(super) fn look_at_token(path: &Path) -> Result<(), FileFault> {
    let text = text(path)?;
    let letters = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let parts: Vec<_> = text.trim().split('.').collect();
    match parts.len() == 3 && parts.into_iter().all(letters) {
        true => Ok(()),
        false => Err(FileFault::Content { path: path.into(), expected: "a JSON web token" }),
    }
}

/// Checks a file with the value of a header.
pub(super) fn look_at_header_value(path: &Path) -> Result<(), FileFault> {
    let expected = "one line of text, of at most 4 KiB";
    let is_valid = header_value(&bytes(path)?).is_some();
    if is_valid { Ok(()) } else { Err(FileFault::Content { path: path.into(), expected }) }
}

/// Checks the credentials for a proxy.
pub(super) fn look_at_proxy_credentials(path: &Path) -> Result<(), FileFault> {
    let expected = "user:password in one line";
    let is_valid = valid_credentials(&bytes(path)?).is_some();
    if is_valid { Ok(()) } else { Err(FileFault::Content { path: path.into(), expected }) }
}

/// Checks that a file or folder of resources exists. Its content is not checked.
pub(super) fn look_for(path: &Path) -> Result<(), FileFault> {
    file_access::look_blocking(path, LIMIT).map_err(|error| FileFault::Unreadable { path: path.into(), error })
}

/// Returns the reason of a system error, without its number.
pub(super) fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a folder".into(),
        io::ErrorKind::NotADirectory => "a part of the path is not a folder".into(),
        io::ErrorKind::InvalidData => "not valid UTF-8".into(),
        kind => kind.to_string(),
    }
}
/// Returns the SHA-256 of a file, in hexadecimal.
pub(crate) fn hash_of(text: &[u8]) -> String {
    let hash = digest(&SHA256, text);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

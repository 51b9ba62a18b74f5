//! Revocation lists.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::CertificateRevocationListDer;

use super::certificate;
use super::pem::{self, TlsFileError};
use super::trust::Trust;

/// The lists of one file.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    pub(super) path: PathBuf,
    pub(super) all: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of them expires.
    pub(super) due: Option<SystemTime>,
}

impl Lists {
    /// Reads the lists of a file. Only the first list of an issuer would count, so there must not be a second one.
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Self, TlsFileError> {
        let all = pem::lists(path, bytes)?;
        let (mut issuers, mut due) = (Vec::new(), None::<SystemTime>);
        for list in &all {
            let content = certificate::read_list(list).ok_or_else(|| TlsFileError::UnreadableList(path.into()))?;
            if issuers.contains(&content.issuer) {
                return Err(TlsFileError::TwoLists { path: path.into(), issuer: content.issuer_text });
            }
            issuers.push(content.issuer);
            due = due.into_iter().chain(content.due).min();
        }
        // A list that cannot be used must be found here, and not when clients are judged.
        Trust::check_lists(&all, path)?;
        Ok(Self { path: path.into(), all, due })
    }
}

/// Checks a file of lists. Returns since when they have expired, if they have.
pub(crate) fn check_lists(path: &Path, bytes: &[u8]) -> Result<Option<SystemTime>, String> {
    let lists = Lists::read(path, bytes).map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    Ok(lists.due.filter(|due| *due <= SystemTime::now()))
}

//! Revocation lists.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::CertificateRevocationListDer;

use super::certificate;
use super::pem::{self, TlsFileError};
use super::trust::Trust;

/// The revocation lists of one file.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    pub(super) path: PathBuf,
    pub(super) all: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of the lists expires.
    pub(super) due: Option<SystemTime>,
}

impl Lists {
    /// Reads the lists of a file. Two lists of the same issuer are an error, because only the first would count.
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
        // An unusable list must be found here, before it is needed to judge clients.
        Trust::check_lists(&all, path)?;
        Ok(Self { path: path.into(), all, due })
    }
}

/// Checks a file of lists. Returns when the first of them has expired, if one has.
pub(crate) fn check_lists(path: &Path, bytes: &[u8]) -> Result<Option<SystemTime>, String> {
    let lists = Lists::read(path, bytes).map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    Ok(lists.due.filter(|due| *due <= SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::tests::Authority;

    #[test]
    fn lists_are_due_with_the_first_of_them_wherever_it_stands() {
        let [one, other] = ["one", "other"].map(Authority::new);
        let year = |year: i32| SystemTime::from(rcgen::date_time_ymd(year, 1, 1));
        let read = |texts: [String; 2]| Lists::read(Path::new("x.crl"), texts.concat().as_bytes()).ok().unwrap();
        for texts in [[one.revoke(2030), other.revoke(2040)], [other.revoke(2040), one.revoke(2030)]] {
            let lists = read(texts);
            assert_eq!((lists.all.len(), lists.due), (2, Some(year(2030))));
        }
        let twice = [one.revoke(2030), other.revoke(2030), one.revoke(2040)].concat();
        let refused = Lists::read(Path::new("x.crl"), twice.as_bytes()).map(|lists| lists.due);
        assert!(matches!(&refused, Err(TlsFileError::TwoLists { issuer, .. }) if issuer == "CN=one"), "{refused:?}");
    }

    #[test]
    fn a_file_has_expired_with_the_first_of_its_lists() {
        let [one, other] = ["one", "other"].map(Authority::new);
        let check = |text: String| check_lists(Path::new("x.crl"), text.as_bytes());
        assert_eq!(check(one.revoke(2100)), Ok(None));
        let expired = SystemTime::from(rcgen::date_time_ymd(2021, 1, 1));
        assert!(expired + Duration::from_secs(1) < SystemTime::now());
        assert_eq!(check(other.revoke(2100) + &one.revoke(2021)), Ok(Some(expired)));
        assert_eq!(check(String::new()), Err("there is no revocation list in x.crl".into()));
    }
}

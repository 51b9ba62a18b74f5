//! The files of one listener: its certificates, and the files by which clients are judged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use rustls::sign::CertifiedKey;

use super::certificate::{self, Validity};
use super::described::{ShownCertificate, describe};
use super::lists::Lists;
use super::options::ListenTls;
use super::pem::{self, OwnCertificate, TlsFileError};
use super::server_names::ServerNames;
use super::trust::{Roots, Trust};
use super::watched::{self, CheckResult, DiskAnswer, DiskQuestion, Earlier, Watched};
use crate::file_access;

/// The files of a listener. Each of them has its own last good version.
pub(super) struct Files {
    own: Vec<Watched<OwnPair>>,
    client_ca: Option<Watched<Roots>>,
    domains: BTreeMap<Box<str>, Watched<Roots>>,
    lists: Option<Watched<Lists>>,
}

/// Questions to the disk about the files of a listener.
pub(super) struct Questions {
    own: Vec<DiskQuestion>,
    trust: Vec<DiskQuestion>,
}

/// The answers of the disk.
pub(super) struct Answers {
    own: Vec<DiskAnswer>,
    trust: Vec<DiskAnswer>,
}

impl Questions {
    /// Asks the disk, which may take long.
    pub(super) fn ask(&self) -> Answers {
        let mut own = watched::ask(&self.own.iter().chain(&self.trust).collect::<Vec<_>>());
        let trust = own.split_off(self.own.len());
        Answers { own, trust }
    }
}

/// A certificate of a listener with its key.
#[derive(Debug, Clone)]
pub(super) struct OwnPair {
    pub(super) files: OwnCertificate,
    pub(super) pair: Arc<CertifiedKey>,
    pub(super) validity: Validity,
    pub(super) names: ServerNames,
}

/// The certificates that a listener has presented until now.
#[derive(Default)]
pub(super) struct EarlierPairs(Vec<(OwnCertificate, Earlier<OwnPair>)>);

impl EarlierPairs {
    fn take(&mut self, own: &OwnCertificate) -> Option<Earlier<OwnPair>> {
        let place = self.0.iter().position(|(files, _)| files == own)?;
        Some(self.0.swap_remove(place).1)
    }
}

impl OwnPair {
    /// Returns the file of the certificate, in the form for display.
    pub(super) fn file(&self) -> String {
        self.files.certificate.display().to_string()
    }
}

impl Files {
    /// Reads all files. If files that the listener had before cannot be used now, their last good version stays in use. What became of those is
    /// returned beside the files.
    pub(super) fn read(
        options: &ListenTls,
        mut earlier: EarlierPairs,
    ) -> Result<(Self, Vec<CheckResult>), TlsFileError> {
        // All reads begin before the first is waited for, so that several hanging files cost only one timeout.
        let paths = options.own.iter().flat_map(|own| [&own.certificate, &own.key]);
        let _begun: Vec<_> = paths.map(|path| file_access::begin_read(path)).collect();
        let (mut own, mut faults, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for files in &options.own {
            let (paths, of_parse) = (vec![files.certificate.clone(), files.key.clone()], files.clone());
            let parse = Box::new(move |contents: &[Bytes]| read_own(&of_parse, contents));
            match earlier.take(files) {
                Some(earlier) => {
                    let (again, look) = Watched::read_again(parse, earlier);
                    own.push(again);
                    kept.push(look);
                }
                None => match Watched::read(paths, parse) {
                    Ok(read) => own.push(read),
                    Err(fault) => faults.push(fault),
                },
            }
        }
        if let Some(fault) = TlsFileError::all(faults) {
            return Err(fault);
        }
        Ok((Self::with_trust(own, options)?, kept))
    }

    fn with_trust(own: Vec<Watched<OwnPair>>, options: &ListenTls) -> Result<Self, TlsFileError> {
        let Some(trust) = options.trust() else {
            return Ok(Self { own, client_ca: None, domains: BTreeMap::new(), lists: None });
        };
        let roots = |path: &PathBuf| {
            let of_parse = path.clone();
            let parse = move |contents: &[Bytes]| {
                let certificates = Arc::new(pem::roots(&of_parse, first(contents))?);
                Ok(Roots { path: of_parse.clone(), certificates })
            };
            Watched::read(vec![path.clone()], Box::new(parse))
        };
        let domains = trust.domains.iter().map(|domain| Ok((domain.name.clone(), roots(&domain.bundle)?)));
        let lists = |path: &PathBuf| {
            let of_parse = path.clone();
            Watched::read(vec![path.clone()], Box::new(move |contents| Lists::read(&of_parse, first(contents))))
        };
        Ok(Self {
            own,
            client_ca: trust.client_ca.as_ref().map(roots).transpose()?,
            domains: domains.collect::<Result<_, TlsFileError>>()?,
            lists: trust.crl.as_ref().map(lists).transpose()?,
        })
    }

    /// Builds the client verifier from the last valid files; `None` if the listener asks for no client certificate.
    pub(super) fn trust(&self) -> Result<Option<Trust>, TlsFileError> {
        if self.client_ca.is_none() && self.domains.is_empty() {
            return Ok(None);
        }
        let domains = self.domains.iter().map(|(name, roots)| (name.clone(), roots.good().clone())).collect();
        let lists = self.lists();
        let (all, path) = (lists.map_or(&[][..], |lists| &lists.all), lists.map(|lists| lists.path.as_path()));
        Trust::new(self.client_ca.as_ref().map(Watched::good), &domains, all, path).map(Some)
    }

    /// Returns the certificates with their keys, in the order of the configuration.
    pub(super) fn own(&self) -> Vec<OwnPair> {
        self.own.iter().map(Watched::good).cloned().collect()
    }

    /// Returns the present versions, for other files of the same listener to start with.
    pub(super) fn earlier(&self) -> EarlierPairs {
        EarlierPairs(self.own.iter().map(|own| (own.good().files.clone(), own.earlier())).collect())
    }

    /// Describes the certificates with their chains.
    pub(super) fn described(&self) -> Vec<ShownCertificate> {
        let described = self.own.iter().map(|own| {
            let OwnPair { files, pair, names, .. } = own.good();
            ShownCertificate {
                file: files.certificate.clone(),
                server_names: names.all(),
                outdated: own.has_failed(),
                chain: describe(&pair.cert),
            }
        });
        described.collect()
    }

    /// Returns the revocation lists, if there are any.
    pub(super) fn lists(&self) -> Option<&Lists> {
        self.lists.as_ref().map(Watched::good)
    }

    /// Returns the questions of the next check.
    pub(super) fn questions(&self) -> Questions {
        let roots = self.client_ca.iter().chain(self.domains.values()).map(Watched::question);
        let trust = roots.chain(self.lists.iter().map(Watched::question)).collect();
        Questions { own: self.own.iter().map(Watched::question).collect(), trust }
    }

    /// Judges the answers to the questions of these files. Returns the results for certificates, and those for the trust.
    pub(super) fn judge(&mut self, Answers { own, trust }: Answers) -> (Vec<CheckResult>, Vec<CheckResult>) {
        let mut trust = trust.into_iter();
        let roots = self.client_ca.iter_mut().chain(self.domains.values_mut());
        let mut looks: Vec<_> = roots.zip(trust.by_ref()).map(|(roots, answer)| roots.judge(answer)).collect();
        looks.extend(self.lists.iter_mut().zip(trust).map(|(lists, answer)| lists.judge(answer)));
        let own = self.own.iter_mut().zip(own).map(|(pair, answer)| pair.judge(answer));
        (own.collect(), looks)
    }

    pub(super) fn has_failed(&self) -> bool {
        let mut roots = self.client_ca.iter().chain(self.domains.values());
        self.own.iter().any(Watched::has_failed)
            || roots.any(Watched::has_failed)
            || self.lists.as_ref().is_some_and(Watched::has_failed)
    }
}

fn read_own(own: &OwnCertificate, contents: &[Bytes]) -> Result<OwnPair, TlsFileError> {
    let [certificate, key] = contents else { return Err(TlsFileError::NoKey(own.key.clone())) };
    let pair = Arc::new(pem::pair(own, certificate, key)?);
    let validity = certificate::of_chain(&pair.cert);
    let validity = validity.ok_or_else(|| TlsFileError::NoCertificate(own.certificate.clone()))?;
    let names = pair.cert.first().and_then(|leaf| certificate::read(leaf)).map(ServerNames::of).unwrap_or_default();
    Ok(OwnPair { files: own.clone(), pair, validity, names })
}

fn first(contents: &[Bytes]) -> &[u8] {
    contents.first().map_or(&[], |content| content)
}

//! The files of one listener: its certificate, and those by which clients are judged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use rustls::sign::CertifiedKey;

use super::certificate::{self, Validity};
use super::lists::Lists;
use super::options::ListenTls;
use super::pem::{self, OwnCertificate, TlsFileError};
use super::trust::{Roots, Trust};
use super::watched::{Answer, Look, Question, Watched};

/// The files of a listener. Each of them has its own last good version.
pub(super) struct Files {
    own: Watched<OwnPair>,
    client_ca: Option<Watched<Roots>>,
    domains: BTreeMap<Box<str>, Watched<Roots>>,
    lists: Option<Watched<Lists>>,
}

/// What is to be found out about the files of a listener.
pub(super) struct Questions {
    own: Question,
    trust: Vec<Question>,
}

/// What the disk says of them.
pub(super) struct Answers {
    own: Answer,
    trust: Vec<Answer>,
}

impl Questions {
    /// Asks the disk, which may take long.
    pub(super) fn ask(&self) -> Answers {
        Answers { own: self.own.ask(), trust: self.trust.iter().map(Question::ask).collect() }
    }
}

/// The certificate of a listener with its key.
#[derive(Debug, Clone)]
pub(super) struct OwnPair {
    pub(super) pair: Arc<CertifiedKey>,
    pub(super) validity: Validity,
}

impl Files {
    pub(super) fn read(options: &ListenTls) -> Result<Self, TlsFileError> {
        let own = options.own.clone();
        let paths = vec![own.certificate.clone(), own.key.clone()];
        let own = Watched::read(paths, Box::new(move |contents| read_own(&own, contents)))?;
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

    /// Makes the trust of the last good versions. There is none where clients are not asked for certificates.
    pub(super) fn trust(&self) -> Result<Option<Trust>, TlsFileError> {
        if self.client_ca.is_none() && self.domains.is_empty() {
            return Ok(None);
        }
        let domains = self.domains.iter().map(|(name, roots)| (name.clone(), roots.good().clone())).collect();
        let lists = self.lists();
        let (all, path) = (lists.map_or(&[][..], |lists| &lists.all), lists.map(|lists| lists.path.as_path()));
        Trust::new(self.client_ca.as_ref().map(Watched::good), &domains, all, path).map(Some)
    }

    /// Returns the certificate and the key.
    pub(super) fn own(&self) -> &OwnPair {
        self.own.good()
    }

    /// Returns the revocation lists, if there are any.
    pub(super) fn lists(&self) -> Option<&Lists> {
        self.lists.as_ref().map(Watched::good)
    }

    /// Returns what a look has to find out.
    pub(super) fn questions(&self) -> Questions {
        let roots = self.client_ca.iter().chain(self.domains.values()).map(Watched::question);
        let trust = roots.chain(self.lists.iter().map(Watched::question)).collect();
        Questions { own: self.own.question(), trust }
    }

    /// Judges the answers to the questions of these files, those about the trust apart.
    pub(super) fn judge(&mut self, Answers { own, trust }: Answers) -> (Look, Vec<Look>) {
        let mut trust = trust.into_iter();
        let roots = self.client_ca.iter_mut().chain(self.domains.values_mut());
        let mut looks: Vec<_> = roots.zip(trust.by_ref()).map(|(roots, answer)| roots.judge(answer)).collect();
        looks.extend(self.lists.iter_mut().zip(trust).map(|(lists, answer)| lists.judge(answer)));
        (self.own.judge(own), looks)
    }

    pub(super) fn has_failed(&self) -> bool {
        let mut roots = self.client_ca.iter().chain(self.domains.values());
        self.own.has_failed() || roots.any(Watched::has_failed) || self.lists.as_ref().is_some_and(Watched::has_failed)
    }
}

fn read_own(own: &OwnCertificate, contents: &[Bytes]) -> Result<OwnPair, TlsFileError> {
    let [certificate, key] = contents else { return Err(TlsFileError::NoKey(own.key.clone())) };
    let pair = Arc::new(pem::pair(own, certificate, key)?);
    let validity = certificate::of_chain(&pair.cert);
    let validity = validity.ok_or_else(|| TlsFileError::NoCertificate(own.certificate.clone()))?;
    Ok(OwnPair { pair, validity })
}

fn first(contents: &[Bytes]) -> &[u8] {
    contents.first().map_or(&[], |content| content)
}

//! What a configuration says of TLS towards clients.

use std::path::PathBuf;

use super::pem::OwnCertificate;

/// TLS of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenTls {
    /// What clients are shown, by the name that they ask for. At least one: the first is for all other names.
    pub(crate) own: Vec<OwnCertificate>,
    /// What clients have to show.
    pub(crate) client_auth: ClientAuth,
}

/// Whether clients show a certificate. One that is shown has to be valid, also where it is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// They are not asked for one.
    None,
    /// They may.
    Optional(TrustFiles),
    /// They must.
    Required(TrustFiles),
}

/// The files by which certificates of clients are judged. At least one CA or one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrustFiles {
    /// Signs certificates with DNS and URI names.
    pub(crate) client_ca: Option<PathBuf>,
    /// Lists of revoked certificates.
    pub(crate) crl: Option<PathBuf>,
    /// Sign certificates with SPIFFE ids.
    pub(crate) domains: Vec<TrustDomain>,
}

/// A SPIFFE trust domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustDomain {
    pub(crate) name: Box<str>,
    /// Its CAs: no others can vouch for its ids, and they for no others.
    pub(crate) bundle: PathBuf,
}

impl ListenTls {
    /// Returns what certificates of clients are judged by, if there may be any.
    pub(crate) fn trust(&self) -> Option<&TrustFiles> {
        match &self.client_auth {
            ClientAuth::None => None,
            ClientAuth::Optional(trust) | ClientAuth::Required(trust) => Some(trust),
        }
    }
}

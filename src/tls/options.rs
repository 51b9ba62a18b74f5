//! The configuration of TLS towards clients.

use std::path::PathBuf;

use super::pem::OwnCertificate;

/// TLS of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenTls {
    /// The certificates for clients, by server name. There is at least one, and the first is for all other names.
    pub(crate) own: Vec<OwnCertificate>,
    /// Whether clients have to present a certificate.
    pub(crate) client_auth: ClientAuth,
}

/// Whether clients present a certificate. One that is presented has to be valid, even if it is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// Clients are not asked for a certificate.
    None,
    /// Clients may present one.
    Optional(TrustFiles),
    /// Clients must present one.
    Required(TrustFiles),
}

/// The files by which certificates of clients are judged. There is at least one CA or one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TrustFiles {
    /// The CAs that sign certificates with DNS and URI names.
    pub(crate) client_ca: Option<PathBuf>,
    /// Lists of revoked certificates.
    pub(crate) crl: Option<PathBuf>,
    /// The trust domains, whose CAs sign certificates with SPIFFE ids.
    pub(crate) domains: Vec<TrustDomain>,
}

/// A SPIFFE trust domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustDomain {
    pub(crate) name: Box<str>,
    /// The domain's CAs. Only they can vouch for its ids, and only for these.
    pub(crate) bundle: PathBuf,
}

impl ListenTls {
    /// Returns the files by which certificates of clients are judged; `None` if clients are not asked for one.
    pub(crate) fn trust(&self) -> Option<&TrustFiles> {
        match &self.client_auth {
            ClientAuth::None => None,
            ClientAuth::Optional(trust) | ClientAuth::Required(trust) => Some(trust),
        }
    }
}

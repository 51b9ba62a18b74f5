//! The certificates of one client, which are judged again while it is connected.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use weir_core::xds::CertificateNames;

use super::listener::ListenerTls;
use super::trust::{Rejection, next_end};

/// The certificates that a client has presented in its handshake.
pub(crate) struct ClientChain {
    tls: Arc<ListenerTls>,
    /// Empty if the client has presented none.
    chain: Vec<CertificateDer<'static>>,
    judged: Mutex<Judged>,
}

/// What a handshake with the same certificates would result in now, if it succeeded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    /// The names that it would prove: `None` without a certificate, or if the listener asks for none.
    pub(crate) names: Option<CertificateNames>,
    /// When it has to be judged again at the latest.
    pub(crate) until: Option<SystemTime>,
}

/// The last successful judgement.
struct Judged {
    /// The number of the trust that was used.
    by: u64,
    names: Option<CertificateNames>,
    /// When the first of the certificates that were still valid expires.
    end: Option<SystemTime>,
}

impl ClientChain {
    /// `judged_by` is the number of the trust with which the handshake began, and `names` is what the handshake proved.
    pub(crate) fn new(
        tls: Arc<ListenerTls>,
        chain: &[CertificateDer<'_>],
        judged_by: u64,
        names: Option<CertificateNames>,
    ) -> Self {
        let chain: Vec<_> = chain.iter().map(|der| der.clone().into_owned()).collect();
        let end = next_end(&chain, SystemTime::now());
        Self { tls, chain, judged: Mutex::new(Judged { by: judged_by, names, end }) }
    }

    /// Judges the certificates by the present requirements and CAs.
    pub(crate) fn judge(&self) -> Result<Standing, Rejection> {
        let (now, number) = (SystemTime::now(), self.tls.trust_number());
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.by != number || judged.end.is_some_and(|end| end <= now) {
            let names = self.tls.judge(&self.chain)?;
            // The expiry does not matter if the listener asks for no certificate.
            let end = names.as_ref().and_then(|_| next_end(&self.chain, now));
            *judged = Judged { by: number, names, end };
        }
        Ok(Standing { names: judged.names.clone(), until: judged.end })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::tests::{Authority, FAR, listener};

    /// A rejected chain is rejected again at each further request.
    #[test]
    fn a_chain_that_is_not_trusted_any_more_is_rejected_again_and_accepted_once_it_is_trusted() {
        let (one, other) = (Authority::new("one"), Authority::new("other"));
        let (folder, tls) = listener("again", &one);
        let chain = ClientChain::new(tls.clone(), &[one.sign(FAR).0], tls.trust_number(), None);
        assert!(chain.judge().is_ok());
        for _ in 0..2 {
            std::fs::write(folder.join("ca.pem"), &other.pem).unwrap();
            assert!(!tls.look() && tls.look());
            for _ in 0..3 {
                assert_eq!(chain.judge(), Err(Rejection::OtherCa(folder.join("ca.pem"))));
            }
            std::fs::write(folder.join("ca.pem"), &one.pem).unwrap();
            assert!(!tls.look() && tls.look());
            assert!(chain.judge().is_ok());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn after_the_end_of_one_certificate_the_next_end_counts() {
        let one = Authority::new("one");
        let (folder, tls) = listener("ends", &one);
        let chain = ClientChain::new(tls.clone(), &[one.sign(FAR).0], tls.trust_number(), None);
        let last = chain.judge().unwrap().until;
        assert_eq!(last, Some(SystemTime::UNIX_EPOCH + FAR + Duration::from_secs(1)));
        chain.judged.lock().unwrap().end = Some(SystemTime::now());
        assert_eq!(
            chain.judge().map(|standing| standing.until),
            Ok(last),
            "another certificate of the chain has ended"
        );

        let past = one.sign(Duration::from_secs(1_600_000_000)).0;
        let ended = ClientChain::new(tls.clone(), &[past], tls.trust_number(), None);
        ended.judged.lock().unwrap().end = Some(SystemTime::now());
        for _ in 0..2 {
            assert_eq!(ended.judge(), Err(Rejection::Expired));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! The certificates of one client, as long as it is connected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::listener::ListenerTls;
use super::trust::{Rejection, next_end};

/// A chain that was verified in a handshake, and can be judged again.
pub(crate) struct ClientChain {
    tls: Arc<ListenerTls>,
    chain: Vec<CertificateDer<'static>>,
    /// The state of the trust by which it was judged last.
    judged_by: AtomicU64,
    /// When the first of its certificates that is still valid ends.
    end: Mutex<Option<SystemTime>>,
}

impl ClientChain {
    /// `judged_by` is the state of the trust that the handshake began with.
    pub(crate) fn new(tls: Arc<ListenerTls>, chain: &[CertificateDer<'_>], judged_by: u64) -> Self {
        let chain: Vec<_> = chain.iter().map(|der| der.clone().into_owned()).collect();
        let end = Mutex::new(next_end(&chain, SystemTime::now()));
        Self { tls, chain, judged_by: AtomicU64::new(judged_by), end }
    }

    /// Judges the chain by what is trusted now. Returns when it has to be judged again at the latest.
    pub(crate) fn judge(&self) -> Result<Option<SystemTime>, Rejection> {
        let (now, number) = (SystemTime::now(), self.tls.trust_number());
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if self.judged_by.load(Ordering::Relaxed) != number || end.is_some_and(|end| end <= now) {
            self.tls.judge(&self.chain)?;
            self.judged_by.store(number, Ordering::Relaxed);
            *end = next_end(&self.chain, now);
        }
        Ok(*end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::tests::{Authority, FAR, listener};

    /// One that is requested again and again is refused each time.
    #[test]
    fn a_chain_that_is_not_trusted_any_more_is_rejected_again_and_accepted_once_it_is_trusted() {
        let (one, other) = (Authority::new("one"), Authority::new("other"));
        let (folder, tls) = listener("again", &one);
        let chain = ClientChain::new(tls.clone(), &[one.sign(FAR).0], tls.trust_number());
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
        let chain = ClientChain::new(tls.clone(), &[one.sign(FAR).0], tls.trust_number());
        let last = chain.judge().unwrap();
        assert_eq!(last, Some(SystemTime::UNIX_EPOCH + FAR + Duration::from_secs(1)));
        *chain.end.lock().unwrap() = Some(SystemTime::now());
        assert_eq!(chain.judge(), Ok(last), "another certificate of the chain has ended");

        let ended =
            ClientChain::new(tls.clone(), &[one.sign(Duration::from_secs(1_600_000_000)).0], tls.trust_number());
        *ended.end.lock().unwrap() = Some(SystemTime::now());
        for _ in 0..2 {
            assert_eq!(ended.judge(), Err(Rejection::Expired));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

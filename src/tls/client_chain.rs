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

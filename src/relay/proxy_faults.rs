//! Why connections of balancers, or of those who pretend to be one, were closed: counted over the life of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was wrong with the PROXY header of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    /// A trusted balancer sent none.
    Missing,
    /// A trusted balancer sent one that cannot be read.
    Invalid,
    /// It did not arrive in time.
    Late,
    /// Somebody else sent one.
    Untrusted,
}

#[derive(Debug, Default)]
pub(crate) struct ProxyFaultCounters([AtomicU64; ProxyFault::ALL.len()]);

impl ProxyFault {
    pub(crate) const ALL: [Self; 4] = [Self::Missing, Self::Invalid, Self::Late, Self::Untrusted];

    fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Late => "late",
            Self::Untrusted => "untrusted",
        }
    }
}

impl ProxyFaultCounters {
    pub(crate) fn found(&self, fault: ProxyFault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often each was found, by its name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ProxyFault::ALL.into_iter().map(|fault| (fault.name(), self.0[fault as usize].load(Ordering::Relaxed)))
    }
}

//! Why handshakes with clients fail, for logs and metrics.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustls::{AlertDescription, Error, InvalidMessage};

use super::trust::Rejection;
use crate::log_pace::LogPace;

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    Rejected(Rejection),
    /// The client has ended the handshake, usually because it does not trust the relay's certificate.
    Refused(AlertDescription),
    NotTls,
    TimedOut,
    TooManyOfAddress(usize),
    Other(String),
}

/// How often handshakes failed, by reason.
#[derive(Debug)]
pub(crate) struct Failures {
    counts: [AtomicU64; REASONS.len()],
    pace: LogPace,
}

/// The values of the metric's label.
const REASONS: [&str; 9] = [
    "no_certificate",
    "expired",
    "revoked",
    "not_trusted",
    "refused_by_client",
    "not_tls",
    "timeout",
    "too_many_of_address",
    "other",
];

impl Default for Failures {
    fn default() -> Self {
        Self { counts: Default::default(), pace: LogPace::once_a_minute() }
    }
}

impl Failures {
    pub(super) fn count(&self, failure: &Failure) {
        if let Some(place) = REASONS.iter().position(|reason| *reason == failure.reason()) {
            self.counts[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns `Some` if a failure is to be logged, with the number of failures since the last line that were not.
    pub(super) fn line(&self, now: Instant) -> Option<u64> {
        self.pace.line(now)
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        REASONS.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }
}

impl Failure {
    /// Explains an error of a handshake in which no certificate was judged and rejected.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::NoCertificatesPresented) => Self::Rejected(Rejection::NoCertificate),
            Some(Error::AlertReceived(alert)) => Self::Refused(*alert),
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::NotTls,
            _ => Self::Other(error.to_string()),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Rejected(Rejection::NoCertificate) => "no_certificate",
            Self::Rejected(Rejection::Expired) => "expired",
            Self::Rejected(Rejection::Revoked) => "revoked",
            Self::Rejected(_) => "not_trusted",
            Self::Refused(_) => "refused_by_client",
            Self::NotTls => "not_tls",
            Self::TimedOut => "timeout",
            Self::TooManyOfAddress(_) => "too_many_of_address",
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Refused(alert) => {
                write!(f, "the client refuses the listener's certificate or its offers ({alert:?})")
            }
            Self::NotTls => f.write_str("the client does not speak TLS"),
            Self::TimedOut => f.write_str("not done in time (limits.handshake_timeout)"),
            Self::TooManyOfAddress(limit) => {
                write!(f, "too many handshakes from one address: the limit is {limit} (limits.handshakes_per_address)")
            }
            Self::Other(error) => f.write_str(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        let failures = Failures::default();
        let all = [
            Failure::Rejected(Rejection::NoCertificate),
            Failure::Rejected(Rejection::Expired),
            Failure::Rejected(Rejection::Revoked),
            Failure::Rejected(Rejection::SeveralUris),
            Failure::Refused(AlertDescription::UnknownCA),
            Failure::NotTls,
            Failure::TimedOut,
            Failure::TooManyOfAddress(1),
            Failure::Other(String::new()),
        ];
        all.iter().for_each(|failure| failures.count(failure));
        assert_eq!(failures.counts(), REASONS.map(|reason| (reason, 1)));
    }
}

//! TLS of one listener: its own certificates and the CAs that it trusts, as in the present files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use weir_core::xds::CertificateNames;

use super::accept::{Accepting, with_client, without_clients};
use super::by_name::ByName;
use super::certificate::Validity;
use super::described::ShownCertificate;
use super::failures::{Failure, Failures};
use super::files::{EarlierPairs, Files, OwnPair};
use super::options::{ClientAuth, ListenTls};
use super::pem::{TlsFileError, provider};
use super::trust::{Rejection, Trust};
use super::watched::CheckResult;
use crate::log_pace::LogPace;

/// The state of one listener's TLS. [`Self::follow`] watches its files.
pub(crate) struct ListenerTls {
    name: String,
    provider: Arc<CryptoProvider>,
    /// No thread waits for the disk while this is locked.
    files: Mutex<Files>,
    current: Mutex<Arc<Current>>,
    failures: Failures,
    /// How often the configuration has replaced the files. Changed only while `files` is locked.
    replaced: AtomicU64,
    reload_failures: AtomicU64,
    is_outdated: AtomicBool,
    unusable: LogPace,
}

/// The state that new handshakes use.
struct Current {
    own: Vec<OwnPair>,
    by_name: Arc<ByName>,
    /// The configuration for clients that are not asked for a certificate.
    without_clients: Option<Arc<ServerConfig>>,
    trust: Option<Arc<Trust>>,
    /// The number of this state of the trust.
    number: u64,
    /// Whether clients have to present a certificate.
    is_mandatory: bool,
}

/// The files of a listener, read and usable.
pub(crate) struct ReadTls {
    files: Files,
    current: Current,
    /// What became of files that the listener had before.
    looks: Vec<CheckResult>,
}

/// The state of a listener's TLS for metrics.
#[derive(Debug, Clone)]
pub(crate) struct TlsReport {
    pub(crate) listener: String,
    pub(crate) reload_failures: u64,
    /// Whether the present files cannot be used, so that earlier versions are in use.
    pub(crate) is_outdated: bool,
    /// When each of the listener's own certificates expires, by its file.
    pub(crate) expires: Vec<(String, SystemTime)>,
    pub(crate) failures: Vec<(&'static str, u64)>,
}

impl ListenerTls {
    /// Reads the files of a listener. `name` is its address.
    pub(crate) fn load(name: String, options: &ListenTls) -> Result<Self, TlsFileError> {
        let provider = provider();
        let ReadTls { files, current, .. } = ReadTls::of(&provider, options, EarlierPairs::default())?;
        Ok(Self {
            name,
            provider,
            files: Mutex::new(files),
            current: Mutex::new(Arc::new(current)),
            failures: Failures::default(),
            replaced: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
            is_outdated: AtomicBool::new(false),
            unusable: LogPace::once_a_minute(),
        })
    }

    /// Reads other files for the listener. A certificate that the listener already has keeps its last good version if its files cannot be used.
    pub(crate) fn read(&self, options: &ListenTls) -> Result<ReadTls, TlsFileError> {
        let earlier = self.files().earlier();
        ReadTls::of(&self.provider, options, earlier)
    }

    /// Replaces the files. The caller has to judge connected clients again afterwards.
    pub(crate) fn replace(&self, read: ReadTls) {
        let ReadTls { files, current, looks } = read;
        let mut known = self.files();
        self.is_outdated.store(files.has_failed(), Ordering::Relaxed);
        for look in looks {
            self.judge_look(look);
        }
        *known = files;
        self.replaced.fetch_add(1, Ordering::Relaxed);
        let number = self.current().number + 1;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Current { number, ..current });
    }

    /// Begins a handshake.
    pub(crate) fn accept(&self) -> Result<Accepting, TlsFileError> {
        let current = self.current();
        match (&current.without_clients, &current.trust) {
            (Some(config), _) => Ok(Accepting { config: config.clone(), trust: current.number, verifier: None }),
            (None, Some(trust)) => {
                let own = current.by_name.clone();
                with_client(self.provider.clone(), own, (trust.clone(), current.number), current.is_mandatory)
            }
            (None, None) => Err(TlsFileError::NoCertificate(PathBuf::new())), // a configuration has one of them
        }
    }

    /// Returns the number of the present trust.
    pub(super) fn trust_number(&self) -> u64 {
        self.current().number
    }

    /// Judges a chain, which is empty if a client has presented none, like a handshake at this time. Returns the names that it proves.
    pub(super) fn judge(&self, chain: &[CertificateDer<'static>]) -> Result<Option<CertificateNames>, Rejection> {
        let current = self.current();
        match (&current.trust, chain) {
            (Some(trust), [leaf, others @ ..]) => trust.judge(leaf, others, SystemTime::now()).map(Some),
            (Some(_), []) if current.is_mandatory => Err(Rejection::NoCertificate),
            (Some(_), []) | (None, _) => Ok(None),
        }
    }

    pub(crate) fn report(&self) -> TlsReport {
        TlsReport {
            listener: self.name.clone(),
            reload_failures: self.reload_failures.load(Ordering::Relaxed),
            is_outdated: self.is_outdated.load(Ordering::Relaxed),
            expires: self.current().own.iter().map(|own| (own.file(), own.validity.until)).collect(),
            failures: self.failures.counts(),
        }
    }

    /// Describes the listener's own certificates with their chains.
    pub(crate) fn described(&self) -> Vec<ShownCertificate> {
        self.files().described()
    }

    /// Counts a handshake that has failed, and logs it, at a limited rate.
    pub(crate) fn failed(&self, peer: &dyn std::fmt::Display, failure: &Failure) {
        self.failures.count(failure);
        tracing::debug!(%peer, listener = self.name, %failure, "TLS handshake failed");
        if let Some(unlogged) = self.failures.line(Instant::now()) {
            tracing::warn!(%peer, listener = self.name, %failure, unlogged, "TLS handshake failed");
        }
    }

    /// Watches the files until the future is dropped, and calls `judge_again` when the trust has changed.
    pub(crate) async fn follow(self: Arc<Self>, judge_again: impl Fn()) {
        let mut reminders = Reminders::default();
        loop {
            reminders.look(&self.name, &self.current().own, self.lists_due());
            tokio::time::sleep(LOOK).await;
            let of_look = self.clone();
            if let Ok(true) = tokio::task::spawn_blocking(move || of_look.look()).await {
                judge_again();
            }
        }
    }

    /// Checks the files, and applies those that have changed. Returns whether the trust has changed. It waits for the disk.
    pub(super) fn look(&self) -> bool {
        let (questions, replaced) = {
            let files = self.files();
            (files.questions(), self.replaced.load(Ordering::Relaxed))
        };
        let answers = questions.ask();
        let mut files = self.files();
        if self.replaced.load(Ordering::Relaxed) != replaced {
            return false; // the files were replaced, so the answers are about others
        }
        let (own, others) = files.judge(answers);
        let any = |looks: Vec<CheckResult>| {
            looks.into_iter().map(|look| self.judge_look(look)).filter(|is_new| *is_new).count() > 0
        };
        let (own, trust) = (any(own), any(others));
        if own || trust {
            match self.take_over(&files, trust) {
                Ok(()) => tracing::info!(listener = self.name, "renewed TLS files are in use"),
                Err(error) => drop(self.judge_look(CheckResult::Failed { error, is_news: true })),
            }
        }
        self.is_outdated.store(files.has_failed(), Ordering::Relaxed);
        trust
    }

    fn take_over(&self, files: &Files, is_other_trust: bool) -> Result<(), TlsFileError> {
        let before = self.current();
        let (trust, number) = match is_other_trust {
            true => (files.trust()?.map(Arc::new), before.number + 1),
            false => (before.trust.clone(), before.number),
        };
        let current = Current::new(&self.provider, files.own(), trust, before.is_mandatory)?;
        let current = Current { number, ..current };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        Ok(())
    }

    fn judge_look(&self, look: CheckResult) -> bool {
        match look {
            CheckResult::Same => false,
            CheckResult::Renewed => true,
            CheckResult::Failed { error, is_news } => {
                if is_news {
                    self.reload_failures.fetch_add(1, Ordering::Relaxed);
                }
                let unlogged = self.unusable.line(Instant::now());
                if is_news || unlogged.is_some() {
                    let error = anyhow::Error::from(error);
                    let error = format_args!("{error:#}");
                    tracing::error!(listener = self.name, %error, "cannot use TLS files; the earlier ones stay in use");
                }
                false
            }
        }
    }

    fn lists_due(&self) -> Option<(PathBuf, SystemTime)> {
        let files = self.files();
        let lists = files.lists()?;
        Some((lists.path.clone(), lists.due?))
    }

    fn current(&self) -> Arc<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn new(
        provider: &Arc<CryptoProvider>,
        own: Vec<OwnPair>,
        trust: Option<Arc<Trust>>,
        is_mandatory: bool,
    ) -> Result<Self, TlsFileError> {
        let by_name = Arc::new(ByName::new(&own));
        let shown = by_name.clone();
        let without_clients = trust.is_none().then(|| without_clients(provider.clone(), shown)).transpose()?;
        Ok(Self { own, by_name, without_clients, trust, number: 0, is_mandatory })
    }
}

impl ReadTls {
    fn of(provider: &Arc<CryptoProvider>, options: &ListenTls, earlier: EarlierPairs) -> Result<Self, TlsFileError> {
        let (files, looks) = Files::read(options, earlier)?;
        let (own, trust) = (files.own(), files.trust()?.map(Arc::new));
        let is_mandatory = matches!(options.client_auth, ClientAuth::Required(_));
        let current = Current::new(provider, own, trust, is_mandatory)?;
        Ok(Self { files, current, looks })
    }
}

/// Warns of files that expire, once a day.
#[derive(Default)]
struct Reminders {
    /// The last warning, by the file of the certificate.
    own: BTreeMap<PathBuf, Instant>,
    lists: Option<Instant>,
}

impl Reminders {
    fn look(&mut self, listener: &str, own: &[OwnPair], lists_due: Option<(PathBuf, SystemTime)>) {
        let now = SystemTime::now();
        self.own.retain(|file, _| own.iter().any(|own| own.files.certificate == *file));
        for own in own {
            let Validity { from, until } = own.validity;
            if now >= from && now < own.validity.late().start || !is_due_for(&mut self.own, &own.files.certificate) {
                continue;
            }
            let (certificate, expires) = (own.file(), humantime::format_rfc3339_seconds(until));
            match own.validity.late().contains(&now) {
                true => {
                    tracing::warn!(listener, certificate, %expires, "the listener's certificate expires soon; renew it")
                }
                false if now < from => {
                    tracing::error!(listener, certificate, "the listener's certificate is not valid yet")
                }
                false => {
                    tracing::error!(listener, certificate, %expires, "the listener's certificate has expired; clients refuse it")
                }
            }
        }
        let Some((path, due)) = lists_due.filter(|(_, due)| *due <= now) else { return };
        if is_due(&mut self.lists) {
            let (file, expired) = (path.display(), humantime::format_rfc3339_seconds(due));
            tracing::error!(listener, %file, %expired, "a revocation list has expired; it stays in use");
        }
    }
}

fn is_due_for(last: &mut BTreeMap<PathBuf, Instant>, file: &Path) -> bool {
    let mut of_file = last.get(file).copied();
    let is_due = is_due(&mut of_file);
    if let Some(at) = of_file.filter(|_| is_due) {
        last.insert(file.to_owned(), at);
    }
    is_due
}

fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= DAY);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// The time between checks of the files.
const LOOK: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::WrittenLines;
    use crate::tls::OwnCertificate;
    use crate::tls::tests::{Authority, FAR, listener};

    #[test]
    fn what_expires_is_warned_of_once_a_day_and_what_does_not_is_not() {
        let (folder, tls) = listener("reminders", &Authority::new("one"));
        let now = SystemTime::now();
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        let own = |from: SystemTime, until: SystemTime| OwnPair {
            validity: Validity { from, until },
            ..tls.current().own[0].clone()
        };
        let rows = [
            (own(now - days(10), now + days(90)), None, ""),
            (own(now - days(10), now + days(2)), None, "expires soon"),
            (own(now - days(10), now - days(1)), None, "has expired; clients refuse it"),
            (own(now + days(1), now + days(90)), None, "is not valid yet"),
            (
                own(now - days(10), now + days(90)),
                Some(("x.crl".into(), now - days(1))),
                "a revocation list has expired",
            ),
            (own(now - days(10), now + days(90)), Some(("x.crl".into(), now + days(1))), ""),
        ];
        for (own, lists, line) in rows {
            let ((lines, _guard), mut reminders) = (WrittenLines::of_this_thread(), Reminders::default());
            let files = OwnCertificate { certificate: "b".into(), ..own.files.clone() };
            let both = [own.clone(), OwnPair { files, ..own }];
            reminders.look("a", &both[..1], lists.clone());
            reminders.look("a", &both[..1], lists.clone());
            let expected = if line.is_empty() { 0 } else { 1 };
            assert_eq!((lines.count(line), lines.text().lines().count()), (expected, expected), "{line}");
            // Each certificate has a reminder of its own.
            (0..2).for_each(|_| reminders.look("a", &both, lists.clone()));
            let of_other = usize::from(!line.is_empty() && lists.is_none());
            assert_eq!(lines.text().lines().count(), expected + of_other, "{line}");
        }
        let file = folder.join("c.pem").display().to_string();
        assert_eq!((tls.lists_due(), tls.report().expires), (None, vec![(file, SystemTime::UNIX_EPOCH + FAR)]));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_reminder_is_due_again_after_a_day() {
        let mut last = None;
        assert!(is_due(&mut last) && !is_due(&mut last));
        let Some(yesterday) = Instant::now().checked_sub(DAY) else { return }; // the machine was started less than a day ago
        last = Some(yesterday);
        assert!(is_due(&mut last) && !is_due(&mut last));
    }
}

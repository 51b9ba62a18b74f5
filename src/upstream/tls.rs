//! The TLS settings for one server, from files that are read for each connection, and explanations of TLS errors.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, ConfigBuilder, InconsistentKeys, RootCertStore};
use rustls_native_certs::{CertificateResult, load_native_certs};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::error_chain::without_manual;
use crate::known_files::KnownFiles;
use crate::tls::{self, OwnCertificate, TlsFileError};

/// The certificate files for a server. They are read again for each connection (BOOT-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The CAs that may sign the server's certificate; by default those that the system trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) own: Option<OwnCertificate>,
    /// The name that the server's certificate must be for.
    pub(crate) server_name: ServerName<'static>,
    pub(crate) words: TlsWords,
}

/// What TLS handshakes need, from the present files: what explains their errors, and the settings.
pub(crate) type ReadTls = (TlsFiles, Arc<ClientConfig>);

/// Words of error messages: who connects, and which key or option could be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TlsWords {
    /// Who connects.
    pub(crate) client: &'static str,
    /// Why the system's CAs are used.
    pub(crate) no_ca: &'static str,
    /// Why no certificate is shown.
    pub(crate) no_certificate: &'static str,
    /// Where the expected name of the peer's certificate is from.
    pub(crate) server_name: &'static str,
}

impl TlsWords {
    pub(crate) const CONFIGURATION: Self = Self {
        client: "the relay",
        no_ca: "tls.ca is not given",
        no_certificate: "tls.certificate is not given",
        server_name: "tls.server_name",
    };
    /// For a proxy. No configuration key sets its certificate name.
    pub(crate) const PROXY: Self = Self {
        client: "the relay",
        no_ca: "proxy certificates are checked by the system's trust alone",
        no_certificate: "the relay shows none to a proxy",
        server_name: "the host of the proxy",
    };
}

impl TlsFiles {
    /// Reads each file within the limit. If the disk hangs, the last content is used.
    pub(super) async fn read(
        &self,
        alpn: &[u8],
        known: &KnownFiles,
        limit: Duration,
    ) -> Result<ClientConfig, TlsFileError> {
        let content = async |path: Option<&PathBuf>| {
            let Some(path) = path else { return Ok(Bytes::new()) };
            let content = known.read(path, limit).await;
            content.map_err(|source| TlsFileError::Read { path: path.into(), source })
        };
        let (certificate, key) = self.own.as_ref().map(|own| (&own.certificate, &own.key)).unzip();
        let began = Instant::now();
        // The files are read at the same time, so that together they take no longer than one.
        let (ca, certificate, key) = tokio::join!(content(self.ca.as_ref()), content(certificate), content(key));
        let roots = match &self.ca {
            Some(path) => tls::roots(path, &ca?)?,
            None => system_roots(load_native_certs, limit).await?,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsFileError::Provider)?.with_root_certificates(roots);
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let with = |[certificate, key]: &[Bytes; 2]| with_certificate(builder.clone(), own, certificate, key);
                let paths = [own.certificate.as_path(), own.key.as_path()];
                let read = certificate.and_then(|certificate| Ok([certificate, key?]));
                let together = read.and_then(|read| {
                    let config = with(&read)?;
                    known.belong_together(paths, read, began);
                    Ok(config)
                });
                match together {
                    Err(error @ TlsFileError::OtherKey(_)) => with(&known.last_together(paths, began).ok_or(error)?)?,
                    together => together.inspect_err(|_| known.note_unusable(paths))?,
                }
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(config)
    }

    /// Explains why the handshake failed, with the file that would have to change.
    pub(super) fn explain(&self, error: &io::Error) -> String {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(reason)) => self.explain_certificate(reason),
            Some(rustls::Error::AlertReceived(alert)) => self.explain_alert(*alert),
            Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS here: expected http://".into(),
            _ => without_manual(error.to_string()),
        }
    }

    fn explain_certificate(&self, reason: &CertificateError) -> String {
        match reason {
            // A bad signature comes from another CA with the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => match &self.ca {
                Some(ca) => format!("certificate not signed by any CA in {}", ca.display()),
                None => {
                    format!("certificate not signed by any CA that the system trusts; {}", self.words.no_ca)
                }
            },
            CertificateError::NotValidForNameContext { presented, .. } => {
                let (names, expected) = (presented.join(", "), self.server_name.to_str());
                format!("its certificate is for {names}, and not for {expected} ({})", self.words.server_name)
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has expired ({reason})")
            }
            reason => format!("its certificate is not accepted: {reason}"),
        }
    }

    fn explain_alert(&self, alert: AlertDescription) -> String {
        match (alert, &self.own) {
            (AlertDescription::NoApplicationProtocol, _) => {
                "server did not negotiate the required ALPN protocol".into()
            }
            (AlertDescription::CertificateRequired, _) | (AlertDescription::HandshakeFailure, None) => {
                let TlsWords { client, no_certificate, .. } = self.words;
                format!("it wants a certificate from {client}, and {no_certificate} ({alert:?})")
            }
            (alert, Some(own)) => format!("it refuses {} ({alert:?})", own.certificate.display()),
            (alert, None) => format!("it ends the handshake ({alert:?})"),
        }
    }
}

/// Adds a certificate and its key, which must belong to it.
fn with_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    own: &OwnCertificate,
    certificate: &[u8],
    key: &[u8],
) -> Result<ClientConfig, TlsFileError> {
    let (chain, key) = (tls::certificates(&own.certificate, certificate)?, tls::private_key(&own.key, key)?);
    builder.with_client_auth_cert(chain, key).map_err(|source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFileError::OtherKey(own.clone()),
        source => TlsFileError::Unusable { path: own.certificate.clone(), source },
    })
}

/// Reads the system's CAs, once at a time even if the disk hangs: callers that come later wait for the same reading.
async fn system_roots(load: fn() -> CertificateResult, limit: Duration) -> Result<RootCertStore, TlsFileError> {
    static READING: Mutex<()> = Mutex::const_new(());
    let reading = async {
        let one = READING.lock().await;
        tokio::task::spawn_blocking(move || {
            let _one = one;
            load()
        })
        .await
    };
    let found = timeout(limit, reading).await.map_err(|_| TlsFileError::LateSystemRoots(limit))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.map(|found| found.certs).unwrap_or_default());
    if roots.is_empty() { Err(TlsFileError::NoSystemRoots) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_error_of_a_proxy_names_no_key_of_its_server() {
        let server_name = ServerName::try_from("proxy.example").unwrap();
        let [proxy, server] = [TlsWords::PROXY, TlsWords::CONFIGURATION].map(|words| TlsFiles {
            ca: None,
            own: None,
            server_name: server_name.clone(),
            words,
        });
        let errors = [
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
            rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                expected: server_name.clone(),
                presented: vec!["other".into()],
            }),
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired),
        ];
        let explained =
            |files: &TlsFiles| errors.each_ref().map(|error| files.explain(&io::Error::other(error.clone())));
        assert_eq!(
            explained(&proxy),
            [
                "certificate not signed by any CA that the system trusts; proxy certificates are checked by the system's trust alone",
                "its certificate is for other, and not for proxy.example (the host of the proxy)",
                "it wants a certificate from the relay, and the relay shows none to a proxy (CertificateRequired)",
            ]
        );
        assert_eq!(
            explained(&server),
            [
                "certificate not signed by any CA that the system trusts; tls.ca is not given",
                "its certificate is for other, and not for proxy.example (tls.server_name)",
                "it wants a certificate from the relay, and tls.certificate is not given (CertificateRequired)",
            ]
        );
    }

    /// A certificate and its key are two files: one may be read while the other hangs, or is not written yet.
    #[tokio::test]
    async fn a_certificate_and_a_key_of_two_versions_are_not_paired_and_the_last_pair_stays() {
        let folder = std::env::temp_dir().join(format!("weir-pair-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = OwnCertificate { certificate: folder.join("c.pem"), key: folder.join("k.pem") };
        let written = |parts: [bool; 2]| {
            let made = rcgen::generate_simple_self_signed(["relay".to_owned()]).unwrap();
            if parts[0] {
                std::fs::write(&own.certificate, made.cert.pem()).unwrap();
            }
            if parts[1] {
                std::fs::write(&own.key, made.signing_key.serialize_pem()).unwrap();
            }
            made.cert.der().clone()
        };
        let ca = folder.join("ca.pem");
        std::fs::write(&ca, rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem()).unwrap();
        let server_name = ServerName::try_from("a").unwrap();
        let words = TlsWords::CONFIGURATION;
        let files = TlsFiles { ca: Some(ca), own: Some(own.clone()), server_name, words };
        let known = KnownFiles::default();
        let shown = async || {
            let config = files.read(b"h2", &known, Duration::from_secs(60)).await?;
            let chosen =
                config.client_auth_cert_resolver.resolve(&[], &[rustls::SignatureScheme::ECDSA_NISTP256_SHA256]);
            Ok::<_, TlsFileError>(chosen.unwrap().cert[0].clone())
        };
        written([true, false]);
        written([false, true]);
        assert!(matches!(shown().await, Err(TlsFileError::OtherKey(_))), "there is no earlier pair");
        let first = written([true, true]);
        assert_eq!(shown().await.unwrap(), first);
        for parts in [[true, false], [false, true]] {
            written(parts);
            assert_eq!(shown().await.unwrap(), first);
            assert!(known.kept_certificate([&own.certificate, &own.key]).is_some());
        }
        std::fs::write(&own.certificate, "").unwrap();
        assert!(shown().await.is_err());
        assert!(known.kept_certificate([&own.certificate, &own.key]).is_none(), "no connection shows it");
        let second = written([true, true]);
        assert_eq!(shown().await.unwrap(), second);
        assert!(known.kept_certificate([&own.certificate, &own.key]).is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn certificates_of_the_system_that_cannot_be_read_fail_the_attempt_in_time_and_take_one_thread() {
        fn hangs() -> CertificateResult {
            HANGS.fetch_add(1, Ordering::Relaxed);
            while DISK_HANGS.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            CertificateResult::default()
        }
        static HANGS: AtomicUsize = AtomicUsize::new(0);
        static DISK_HANGS: AtomicBool = AtomicBool::new(true);
        let limit = Duration::from_millis(20);
        for _ in 0..5 {
            let late = system_roots(hangs, limit).await;
            assert!(matches!(late, Err(TlsFileError::LateSystemRoots(_))), "{late:?}");
        }
        let begins = async {
            while HANGS.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await; // its thread may not have begun
            }
        };
        tokio::time::timeout(Duration::from_secs(20), begins).await.expect("it is read");
        assert_eq!(HANGS.load(Ordering::Relaxed), 1);
        DISK_HANGS.store(false, Ordering::Relaxed);
        let none = system_roots(hangs, Duration::from_secs(20)).await;
        assert!(matches!(none, Err(TlsFileError::NoSystemRoots)));
    }
}

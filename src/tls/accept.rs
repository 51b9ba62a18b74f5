//! One handshake with a client: its configuration, and the result of judging the client's certificate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use weir_core::xds::CertificateNames;

use super::by_name::ByName;
use super::pem::TlsFileError;
use super::trust::{Rejection, Trust};

/// The configuration of a handshake that begins.
pub(crate) struct Accepting {
    pub(crate) config: Arc<ServerConfig>,
    /// The number of the trust with which it begins.
    pub(crate) trust: u64,
    pub(super) verifier: Option<Arc<Verifier>>,
}

/// What a client has proved by its certificate, or why it was rejected.
pub(crate) type Judgement = Result<CertificateNames, Rejection>;

/// Judges the certificate of one client, and keeps the result: the alert to the client has no room for the reason.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    trust: Arc<Trust>,
    is_mandatory: bool,
    judgement: Mutex<Option<Judgement>>,
}

impl Accepting {
    /// Returns the result of judging the client's certificate, if the client has presented one.
    pub(crate) fn judgement(&self) -> Option<Judgement> {
        self.verifier.as_ref()?.judgement.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the configuration for clients that are not asked for a certificate.
pub(super) fn without_clients(
    provider: Arc<CryptoProvider>,
    own: Arc<ByName>,
) -> Result<Arc<ServerConfig>, TlsFileError> {
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(VERSIONS);
    let builder = builder.map_err(TlsFileError::Provider)?;
    Ok(Arc::new(speaking_http(builder.with_no_client_auth().with_cert_resolver(own))))
}

/// Returns the configuration for one client that may or must show a certificate.
pub(super) fn with_client(
    provider: Arc<CryptoProvider>,
    own: Arc<ByName>,
    (trust, number): (Arc<Trust>, u64),
    is_mandatory: bool,
) -> Result<Accepting, TlsFileError> {
    let verifier = Arc::new(Verifier { provider: provider.clone(), trust, is_mandatory, judgement: Mutex::default() });
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(VERSIONS);
    let builder = builder.map_err(TlsFileError::Provider)?.with_client_cert_verifier(verifier.clone());
    let mut config = speaking_http(builder.with_cert_resolver(own));
    // Sessions are not resumed. A resumed session keeps the certificate of the earlier one without judging it: while its ticket is valid, a client
    // could return with a certificate that was revoked or whose CA is no longer trusted.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Accepting { config: Arc::new(config), trust: number, verifier: Some(verifier) })
}

fn speaking_http(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.hints()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        let judgement = self.trust.judge(leaf, others, now);
        let result = judgement.as_ref().map(|_| ClientCertVerified::assertion()).map_err(Rejection::for_client);
        *self.judgement.lock().unwrap_or_else(PoisonError::into_inner) = Some(judgement);
        result
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

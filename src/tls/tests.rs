use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

use super::client_chain::ClientChain;
use super::listener::ListenerTls;
use super::trust::{Rejection, next_end};
use super::{ClientAuth, ListenTls, OwnCertificate, TrustFiles};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new([]).unwrap());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, until: Duration) -> (CertificateDer<'static>, String, KeyPair) {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(["a".to_owned()]).unwrap());
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + until;
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), certificate.pem(), key)
    }
}

const FAR: Duration = Duration::from_secs(4_000_000_000);

/// A listener that trusts the CA in `ca.pem` of a folder.
fn listener(name: &str, ca: &Authority) -> (PathBuf, Arc<ListenerTls>) {
    let folder = std::env::temp_dir().join(format!("weir-listener-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (_, pem, key) = ca.sign(FAR);
    std::fs::write(folder.join("c.pem"), pem).unwrap();
    std::fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("ca.pem"), &ca.pem).unwrap();
    let own = OwnCertificate { certificate: folder.join("c.pem"), key: folder.join("k.pem") };
    let trust = TrustFiles { client_ca: Some(folder.join("ca.pem")), ..TrustFiles::default() };
    let tls = ListenerTls::load(name.into(), &ListenTls { own, client_auth: ClientAuth::Required(trust) });
    (folder, Arc::new(tls.ok().unwrap()))
}

#[test]
fn a_chain_of_a_handshake_that_began_before_the_trust_changed_is_judged_by_what_is_trusted_now() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let (folder, tls) = listener("race", &one);
    let chain = [one.sign(FAR).0];
    let before = tls.accept().ok().unwrap();
    assert!(ClientChain::new(tls.clone(), &chain, before.trust).judge().is_ok());
    std::fs::write(folder.join("ca.pem"), &other.pem).unwrap();
    assert!(!tls.look() && tls.look(), "files count once they look the same twice");
    let late = ClientChain::new(tls.clone(), &chain, before.trust);
    assert_eq!(late.judge(), Err(Rejection::OtherCa(folder.join("ca.pem"))));
    assert_ne!(tls.accept().ok().unwrap().trust, before.trust);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_chain_is_judged_again_at_the_end_of_each_of_its_certificates() {
    let now = Duration::from_secs(1_000_000);
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let authority = Authority::new("one");
    let chain = [2_000_000, 500_000, 1_500_000].map(|until| authority.sign(Duration::from_secs(until)).0);
    assert_eq!(next_end(&chain, SystemTime::UNIX_EPOCH + now), Some(at(1_500_001)), "the last second counts");
    assert_eq!(next_end(&chain, at(1_500_001)), Some(at(2_000_001)));
    assert_eq!(next_end(&chain, at(2_000_001)), None);
}

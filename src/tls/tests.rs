use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;

use super::client_chain::ClientChain;
use super::listener::ListenerTls;
use super::trust::{Rejection, next_end};
use super::{ClientAuth, ListenTls, OwnCertificate, TrustFiles};
use crate::file_access::{self, tests::Pipe};

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new([]).unwrap());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn sign(&self, until: Duration) -> (CertificateDer<'static>, String, KeyPair) {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(["a".to_owned()]).unwrap());
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + until;
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), certificate.pem(), key)
    }

    /// Returns a revocation list without entries that is valid until this year.
    pub(super) fn revoke(&self, until: i32) -> String {
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

pub(super) const FAR: Duration = Duration::from_secs(4_000_000_000);

/// A listener that trusts the CA in `ca.pem` of a folder.
pub(super) fn listener(name: &str, ca: &Authority) -> (PathBuf, Arc<ListenerTls>) {
    let folder = std::env::temp_dir().join(format!("weir-listener-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder).unwrap();
    let (_, pem, key) = ca.sign(FAR);
    std::fs::write(folder.join("c.pem"), pem).unwrap();
    std::fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("ca.pem"), &ca.pem).unwrap();
    let tls = ListenerTls::load(name.into(), &options(&folder, ClientAuth::Required));
    (folder, Arc::new(tls.ok().unwrap()))
}

fn options(folder: &Path, client_auth: fn(TrustFiles) -> ClientAuth) -> ListenTls {
    let own = vec![OwnCertificate { certificate: folder.join("c.pem"), key: folder.join("k.pem") }];
    let trust = TrustFiles { client_ca: Some(folder.join("ca.pem")), ..TrustFiles::default() };
    ListenTls { own, client_auth: client_auth(trust) }
}

/// Writes another certificate with its key, and makes the listener find it.
fn renew(folder: &Path, tls: &ListenerTls, ca: &Authority, until: Duration) {
    let (_, pem, key) = ca.sign(until);
    std::fs::write(folder.join("c.pem"), pem).unwrap();
    std::fs::write(folder.join("k.pem"), key.serialize_pem()).unwrap();
    assert!(!tls.look() && !tls.look(), "the trust is the same");
}

#[test]
fn a_chain_of_a_handshake_that_began_before_the_trust_changed_is_judged_by_what_is_trusted_now() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let (folder, tls) = listener("race", &one);
    let chain = [one.sign(FAR).0];
    let before = tls.accept().ok().unwrap();
    assert!(ClientChain::new(tls.clone(), &chain, before.trust, None).judge().is_ok());
    std::fs::write(folder.join("ca.pem"), &other.pem).unwrap();
    assert!(!tls.look() && tls.look(), "files count once they look the same twice");
    let late = ClientChain::new(tls.clone(), &chain, before.trust, None);
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

/// Connected clients are judged again when the number of the trust changes, so the second reload has to change it again.
#[test]
fn each_time_that_files_are_replaced_clients_are_judged_by_them() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let (folder, tls) = listener("replaced", &one);
    let client = ClientChain::new(tls.clone(), &[one.sign(FAR).0], tls.trust_number(), None);
    for is_trusted in [false, true, false, true] {
        std::fs::write(folder.join("ca.pem"), if is_trusted { &one.pem } else { &other.pem }).unwrap();
        let before = tls.accept().ok().unwrap().trust;
        tls.replace(tls.read(&options(&folder, ClientAuth::Required)).ok().unwrap());
        assert_ne!(tls.accept().ok().unwrap().trust, before);
        assert_eq!(client.judge().is_ok(), is_trusted);
    }
    std::fs::write(folder.join("next.pem"), &one.pem).unwrap();
    let mut elsewhere = options(&folder, ClientAuth::Required);
    elsewhere.client_auth =
        ClientAuth::Required(TrustFiles { client_ca: Some(folder.join("next.pem")), ..TrustFiles::default() });
    tls.replace(tls.read(&elsewhere).ok().unwrap());
    std::fs::write(folder.join("ca.pem"), "none").unwrap();
    assert!(!tls.look() && !tls.look() && !tls.report().is_outdated, "the earlier files are not followed any more");
    std::fs::write(folder.join("next.pem"), &other.pem).unwrap();
    assert!(!tls.look() && tls.look(), "those of the last reload are");
    assert!(client.judge().is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_renewal_changes_what_clients_are_shown_and_not_whether_they_have_to_show_anything() {
    let one = Authority::new("one");
    for (name, client_auth, is_mandatory) in
        [("may", ClientAuth::Optional as fn(TrustFiles) -> ClientAuth, false), ("must", ClientAuth::Required, true)]
    {
        let (folder, _) = listener(name, &one);
        let tls = ListenerTls::load(name.into(), &options(&folder, client_auth)).ok().unwrap();
        let is_asked = || tls.accept().ok().unwrap().verifier.unwrap().client_auth_mandatory();
        let (number, shown) = (tls.trust_number(), tls.described());
        for _ in 0..2 {
            renew(&folder, &tls, &one, Duration::from_secs(3_000_000_000));
            assert_eq!((is_asked(), tls.trust_number()), (is_mandatory, number));
        }
        assert_ne!(tls.described(), shown);
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(3_000_000_000);
        let expires = || tls.report().expires[0].1;
        assert_eq!(expires(), until, "of the new one");
        std::fs::write(folder.join("ca.pem"), &Authority::new("other").pem).unwrap();
        assert!(!tls.look() && tls.look());
        assert_eq!((is_asked(), tls.trust_number(), expires()), (is_mandatory, number + 1, until));
        renew(&folder, &tls, &one, FAR);
        assert_eq!((is_asked(), tls.trust_number()), (is_mandatory, number + 1), "it is no other trust");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn files_are_outdated_until_they_can_be_used_again_and_each_bad_version_is_counted_once() {
    let one = Authority::new("one");
    let (folder, tls) = listener("outdated", &one);
    let states = || {
        let report = tls.report();
        (report.is_outdated, report.reload_failures)
    };
    for round in 1..=2 {
        std::fs::write(folder.join("ca.pem"), "none ".repeat(round)).unwrap();
        assert!(!tls.look() && !tls.look() && !tls.look() && !tls.look());
        assert_eq!(states(), (true, round as u64));
        std::fs::write(folder.join("ca.pem"), &one.pem).unwrap();
        assert!(!tls.look() && tls.look());
        assert_eq!(states(), (false, round as u64));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_bad_version_that_is_known_is_not_counted_again_by_a_reload() {
    let one = Authority::new("one");
    let (folder, tls) = listener("reloaded", &one);
    let options = options(&folder, ClientAuth::Required);
    let reload = || tls.replace(tls.read(&options).ok().unwrap());
    let looks = || (0..4).for_each(|_| assert!(!tls.look()));
    for (round, content) in [Some("none"), Some("other"), None].into_iter().enumerate() {
        let key = folder.join("k.pem");
        content.map_or_else(|| std::fs::remove_file(&key), |content| std::fs::write(&key, content)).unwrap();
        looks();
        reload();
        looks();
        assert_eq!((tls.report().is_outdated, tls.report().reload_failures), (true, round as u64 + 1));
    }
    std::fs::write(folder.join("k.pem"), "another").unwrap();
    reload();
    looks();
    assert_eq!(tls.report().reload_failures, 4, "the reload has read it first");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The disk of a certificate may hang, for example one of a lost mount.
#[test]
fn while_a_certificate_hangs_handshakes_reports_and_reloads_go_on() {
    let one = Authority::new("one");
    let (folder, tls) = listener("hung", &one);
    let shown = tls.described();
    let pipe = Pipe::at(folder.join("c.pem"));
    let of_look = tls.clone();
    let looking = std::thread::spawn(move || (of_look.look(), of_look.look()));
    let begun = Instant::now();
    while file_access::tests::under_way(&pipe.0) == 0 {
        assert!(!looking.is_finished() && begun.elapsed() < Duration::from_secs(60), "it does not read the file");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(tls.accept().is_ok());
    assert_eq!((tls.described(), tls.report().reload_failures), (shown, 0));
    let (_, pem, key) = one.sign(FAR);
    std::fs::write(folder.join("other.pem"), pem).unwrap();
    std::fs::write(folder.join("other.key"), key.serialize_pem()).unwrap();
    let mut elsewhere = options(&folder, ClientAuth::Required);
    elsewhere.own = vec![OwnCertificate { certificate: folder.join("other.pem"), key: folder.join("other.key") }];
    tls.replace(tls.read(&elsewhere).ok().unwrap());
    assert!(!looking.is_finished(), "it hangs still");
    let now = tls.described();
    drop(pipe);
    assert_eq!(looking.join().unwrap(), (false, false));
    assert_eq!((tls.described(), tls.report().is_outdated), (now, false), "what hung is about other files");
    std::fs::remove_dir_all(folder).unwrap();
}

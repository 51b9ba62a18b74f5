//! Certificates for tests: authorities, and the certificates that they sign and revoke.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::folder::Folder;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    pub serial: u64,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
    pub serial: u64,
}

/// Changes the parameters of a certificate.
pub type Change = fn(&mut CertificateParams);

impl Authority {
    /// Creates an authority. All of them have one name, unless [`Self::named`] is used.
    pub fn new() -> Self {
        Self::named("authority")
    }

    pub fn named(name: &str) -> Self {
        let (key, params) = (KeyPair::generate().unwrap(), Self::params(name));
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem, serial: 0 }
    }

    /// Returns an authority that this one has signed.
    pub fn below(&self, name: &str) -> Self {
        let (key, mut params, serial) = (KeyPair::generate().unwrap(), Self::params(name), next_serial());
        params.serial_number = Some(SerialNumber::from(serial));
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem, serial }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    pub fn sign(&self, name: &str) -> Identity {
        self.sign_until(name, 2100)
    }

    pub fn sign_until(&self, name: &str, year: i32) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        self.sign_params(params)
    }

    /// Signs a certificate for a name that is valid for this long from now.
    pub fn sign_for(&self, name: &str, life: Duration) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now() + life;
        self.sign_params(params)
    }

    /// Signs a certificate for URIs, with other parameters changed.
    pub fn sign_uris(&self, uris: &[&str], change: Change) -> Identity {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        change(&mut params);
        self.sign_params(params)
    }

    fn sign_params(&self, mut params: CertificateParams) -> Identity {
        let (key, serial) = (KeyPair::generate().unwrap(), next_serial());
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem(), serial }
    }

    /// Returns a list of revoked certificates that is valid until the given year.
    pub fn revoke(&self, serials: &[u64], until: i32) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(next_serial()),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Identity {
    /// Appends the certificate of an authority.
    pub fn with_chain(mut self, authority: &Authority) -> Self {
        self.certificate.push_str(&authority.pem);
        self
    }
}

pub const NOTHING: Change = |_| {};
pub const MAY_SIGN: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
pub const FOR_SERVERS: Change = |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
pub const NOT_YET: Change = |params| params.not_before = rcgen::date_time_ymd(2090, 1, 1);
/// Adds a DNS name to the URIs.
pub const WITH_DNS: Change =
    |params| params.subject_alt_names.push(SanType::DnsName("pay.example".try_into().unwrap()));

fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

pub fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Writes the certificate and key that the relay presents to servers.
pub fn write_identity(folder: &Folder, identity: &Identity) {
    folder.write("weir.pem", &identity.certificate);
    folder.write("weir.key", &identity.key);
}

//! TLS towards clients.

use std::path::Path;
use std::time::SystemTime;

use super::checker::Checker;
use super::diagnostic::Place;
use super::files::{look_at_cas, look_at_certificates, look_at_key, look_at_lists, look_at_pair, validity};
use super::form::{FilePath, Located, Needed, NonEmpty};
use super::raw;
use crate::tls::{ClientAuth, ListenTls, OwnCertificate, TrustDomain, TrustFiles};

pub(super) fn check(raw: &Located<raw::ListenTls>, checker: &mut Checker) -> Option<ListenTls> {
    let trust = trust(&raw.client_ca, &raw.crl, &raw.trust_domains, checker);
    let client_auth = client_auth(raw, trust, checker);
    Some(ListenTls { own: shown_certificate(&raw.certificate, &raw.key, checker)?, client_auth })
}

/// Returns the certificate that peers are shown.
pub(super) fn shown_certificate(
    certificate: &Needed<FilePath>,
    key: &Needed<FilePath>,
    checker: &mut Checker,
) -> Option<OwnCertificate> {
    let (certificate, key) = (certificate.0.as_ref()?, key.0.as_ref()?);
    let (of_certificate, of_key) = (&certificate.place, &key.place);
    let (certificate, key) = (checker.file(certificate, look_at_certificates), checker.file(key, look_at_key));
    if checker.opens_files() {
        warn_of_end(&certificate, of_certificate, checker);
    }
    checker.look(of_key, || look_at_pair(&certificate, &key));
    Some(OwnCertificate { certificate, key })
}

fn client_auth(raw: &Located<raw::ListenTls>, trust: TrustFiles, checker: &mut Checker) -> ClientAuth {
    let has_trust = raw.client_ca.is_some() || raw.trust_domains.is_some();
    let given = raw.client_auth.as_ref();
    match given.map(|given| given.value) {
        Some(raw::ClientAuth::None) => {
            let unused = raw.client_ca.as_ref().map(|ca| &ca.place);
            let unused = unused.or(raw.trust_domains.as_ref().map(|domains| &domains.place));
            if let Some(place) = unused.or(raw.crl.as_ref().map(|crl| &crl.place)) {
                checker.fault(place, "has no effect: client_auth is none");
            }
            ClientAuth::None
        }
        None if !has_trust => {
            if let Some(crl) = &raw.crl {
                checker.fault(&crl.place, "has no effect without client_ca or trust_domains");
            }
            ClientAuth::None
        }
        Some(_) if !has_trust => {
            if let Some(given) = given {
                checker.fault(&given.place, "missing client_ca or trust_domains: by which are certificates judged?");
            }
            ClientAuth::None
        }
        Some(raw::ClientAuth::Optional) => ClientAuth::Optional(trust),
        Some(raw::ClientAuth::Required) | None => ClientAuth::Required(trust),
    }
}

/// Returns the files by which certificates of peers are judged.
pub(super) fn trust(
    client_ca: &Option<Located<FilePath>>,
    crl: &Option<Located<FilePath>>,
    trust_domains: &Option<Located<NonEmpty<raw::TrustDomain>>>,
    checker: &mut Checker,
) -> TrustFiles {
    let client_ca = client_ca.as_ref().map(|ca| checker.file(ca, look_at_cas));
    let crl = crl.as_ref().map(|crl| checker.file(crl, look_at_lists));
    let mut domains: Vec<TrustDomain> = Vec::new();
    for domain in trust_domains.iter().flat_map(|domains| &domains.value.0) {
        let (Some(name), Some(bundle)) = (&domain.name.0, &domain.bundle.0) else { continue };
        if domains.iter().any(|other| *other.name == *name.0) {
            checker.fault(&name.place, format!("duplicate trust domain {}: expected one bundle for it", name.0));
        }
        domains.push(TrustDomain { name: name.0.as_str().into(), bundle: checker.file(bundle, look_at_cas) });
    }
    TrustFiles { client_ca, crl, domains }
}

/// Warns of a certificate that ends soon, or has ended.
fn warn_of_end(certificate: &Path, place: &Place, checker: &mut Checker) {
    let Some(validity) = validity(certificate) else { return };
    let now = SystemTime::now();
    let until = humantime::format_rfc3339_seconds(validity.until);
    if now < validity.from {
        let from = humantime::format_rfc3339_seconds(validity.from);
        checker.warn(place, format!("{} is not valid before {from}", certificate.display()));
    } else if now >= validity.until {
        checker.warn(place, format!("{} has expired at {until}: clients refuse it", certificate.display()));
    } else if now >= validity.late().start {
        checker.warn(place, format!("{} expires at {until}: renew it", certificate.display()));
    }
}

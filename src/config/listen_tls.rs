//! TLS towards clients.

use std::path::Path;
use std::time::SystemTime;

use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::files::{
    is_without_names, look_at_cas, look_at_certificates, look_at_key, look_at_lists, look_at_pair, validity,
};
use super::form::{FilePath, Located, NonEmpty};
use super::raw;
use crate::tls::{ClientAuth, ListenTls, OwnCertificate, TrustDomain, TrustFiles};

pub(super) fn check(raw: &Located<raw::ListenTls>, checker: &mut Checker) -> Option<ListenTls> {
    let trust = trust(&raw.client_ca, &raw.crl, &raw.trust_domains, checker);
    let client_auth = client_auth(raw, trust, checker);
    let own = shown_certificates(&raw.place, (&raw.certificate, &raw.key), &raw.certificates, checker);
    Some(ListenTls { own: own?, client_auth })
}

/// Returns the certificates that peers are shown: a single one, or a list.
pub(super) fn shown_certificates(
    section: &FilePosition,
    (certificate, key): (&Option<Located<FilePath>>, &Option<Located<FilePath>>),
    certificates: &Option<Located<NonEmpty<raw::ShownCertificate>>>,
    checker: &mut Checker,
) -> Option<Vec<OwnCertificate>> {
    let single = certificate.as_ref().or(key.as_ref());
    let Some(certificates) = certificates else {
        if single.is_none() {
            checker.lacks(section, "missing certificate and key: expected both of them, or certificates");
        }
        let (certificate, key) = together(section, certificate, key, checker)?;
        return Some(vec![own_certificate(certificate, key, checker)]);
    };
    if single.is_some() {
        checker.fault(&certificates.place, "certificate and key are there too: expected these two, or certificates");
    }
    let mut all: Vec<OwnCertificate> = Vec::new();
    for (number, one) in certificates.0.iter().enumerate() {
        let (Some(certificate), Some(key)) = (&one.certificate.0, &one.key.0) else { continue };
        let own = own_certificate(certificate, key, checker);
        if all.iter().any(|other| other.certificate == own.certificate) {
            let file = own.certificate.display();
            checker.fault(&certificate.place, format!("duplicate certificate {file}: expected each of them once"));
        }
        if number > 0 && checker.opens_files() && is_without_names(&own.certificate) {
            let file = own.certificate.display();
            checker
                .warn(&certificate.place, format!("{file} has no DNS name: no client is shown it for its server name"));
        }
        all.push(own);
    }
    (!all.is_empty()).then_some(all)
}

/// Returns a certificate and a key if both are set.
pub(super) fn together<'r>(
    section: &FilePosition,
    certificate: &'r Option<Located<FilePath>>,
    key: &'r Option<Located<FilePath>>,
    checker: &mut Checker,
) -> Option<(&'r Located<FilePath>, &'r Located<FilePath>)> {
    let (there, other) = match (certificate, key) {
        (Some(certificate), Some(key)) => return Some((certificate, key)),
        (Some(certificate), None) => (certificate, "key"),
        (None, Some(key)) => (key, "certificate"),
        (None, None) => return None,
    };
    if !checker.has_fault_within(&section.key(other)) {
        checker.fault(&there.place, format!("missing {other}: certificate and key go together"));
    }
    None
}

fn own_certificate(certificate: &Located<FilePath>, key: &Located<FilePath>, checker: &mut Checker) -> OwnCertificate {
    let (of_certificate, of_key) = (&certificate.place, &key.place);
    let (certificate, key) = (checker.file(certificate, look_at_certificates), checker.file(key, look_at_key));
    if checker.opens_files() {
        warn_of_end(&certificate, of_certificate, checker);
    }
    checker.look(of_key, || look_at_pair(&certificate, &key));
    OwnCertificate { certificate, key }
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

/// Returns the files by which the certificates of peers are verified.
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

/// Warns of a certificate that expires soon, or has expired.
fn warn_of_end(certificate: &Path, place: &FilePosition, checker: &mut Checker) {
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

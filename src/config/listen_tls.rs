//! TLS towards clients.

use std::path::Path;
use std::time::SystemTime;

use super::checker::Checker;
use super::diagnostic::Place;
use super::files::{look_at_cas, look_at_certificates, look_at_key, look_at_lists, look_at_pair, validity};
use super::form::{FilePath, Located, Needed, NonEmpty};
use super::raw;
use crate::tls::{ClientAuth, ListenTls, OwnCertificate, TrustDomain, TrustFiles};

impl Checker<'_> {
    pub(crate) fn listen_tls(&mut self, raw: &Located<raw::ListenTls>) -> Option<ListenTls> {
        let trust = self.trust(&raw.client_ca, &raw.crl, &raw.trust_domains);
        let client_auth = self.client_auth(raw, trust);
        Some(ListenTls { own: self.shown_certificate(&raw.certificate, &raw.key)?, client_auth })
    }

    /// Returns the certificate that peers are shown.
    pub(super) fn shown_certificate(
        &mut self,
        certificate: &Needed<FilePath>,
        key: &Needed<FilePath>,
    ) -> Option<OwnCertificate> {
        let (certificate, key) = (certificate.0.as_ref()?, key.0.as_ref()?);
        let (of_certificate, of_key) = (&certificate.place, &key.place);
        let (certificate, key) = (self.file(certificate, look_at_certificates), self.file(key, look_at_key));
        if self.opens_files {
            self.warn_of_end(&certificate, of_certificate);
            if let Err(fault) = look_at_pair(&certificate, &key) {
                self.found.unusable(of_key, fault.to_string());
            }
        }
        Some(OwnCertificate { certificate, key })
    }

    fn client_auth(&mut self, raw: &Located<raw::ListenTls>, trust: TrustFiles) -> ClientAuth {
        let has_trust = raw.client_ca.is_some() || raw.trust_domains.is_some();
        let given = raw.client_auth.as_ref();
        match given.map(|given| given.value) {
            Some(raw::ClientAuth::None) => {
                let unused = raw.client_ca.as_ref().map(|ca| &ca.place);
                let unused = unused.or(raw.trust_domains.as_ref().map(|domains| &domains.place));
                if let Some(place) = unused.or(raw.crl.as_ref().map(|crl| &crl.place)) {
                    self.fault(place, "has no effect: client_auth is none");
                }
                ClientAuth::None
            }
            None if !has_trust => {
                if let Some(crl) = &raw.crl {
                    self.fault(&crl.place, "has no effect without client_ca or trust_domains");
                }
                ClientAuth::None
            }
            Some(_) if !has_trust => {
                if let Some(given) = given {
                    self.fault(&given.place, "missing client_ca or trust_domains: by which are certificates judged?");
                }
                ClientAuth::None
            }
            Some(raw::ClientAuth::Optional) => ClientAuth::Optional(trust),
            Some(raw::ClientAuth::Required) | None => ClientAuth::Required(trust),
        }
    }

    /// Returns the files by which certificates of peers are judged.
    pub(super) fn trust(
        &mut self,
        client_ca: &Option<Located<FilePath>>,
        crl: &Option<Located<FilePath>>,
        trust_domains: &Option<Located<NonEmpty<raw::TrustDomain>>>,
    ) -> TrustFiles {
        let client_ca = client_ca.as_ref().map(|ca| self.file(ca, look_at_cas));
        let crl = crl.as_ref().map(|crl| self.file(crl, look_at_lists));
        let mut domains: Vec<TrustDomain> = Vec::new();
        for domain in trust_domains.iter().flat_map(|domains| &domains.value.0) {
            let (Some(name), Some(bundle)) = (&domain.name.0, &domain.bundle.0) else { continue };
            if domains.iter().any(|other| *other.name == *name.0) {
                self.fault(&name.place, format!("duplicate trust domain {}: expected one bundle for it", name.0));
            }
            domains.push(TrustDomain { name: name.0.as_str().into(), bundle: self.file(bundle, look_at_cas) });
        }
        TrustFiles { client_ca, crl, domains }
    }

    /// Warns of a certificate that ends soon, or has ended.
    fn warn_of_end(&mut self, certificate: &Path, place: &Place) {
        let Some(validity) = validity(certificate) else { return };
        let now = SystemTime::now();
        let until = humantime::format_rfc3339_seconds(validity.until);
        if now < validity.from {
            let from = humantime::format_rfc3339_seconds(validity.from);
            self.found.warn(place, format!("{} is not valid before {from}", certificate.display()));
        } else if now >= validity.until {
            self.found.warn(place, format!("{} has expired at {until}: clients refuse it", certificate.display()));
        } else if now >= validity.late().start {
            self.found.warn(place, format!("{} expires at {until}: renew it", certificate.display()));
        }
    }
}

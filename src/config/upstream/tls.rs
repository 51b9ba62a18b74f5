//! TLS to a server.

use crate::config::checker::Checker;
use crate::config::files::{look_at_cas, look_at_certificates, look_at_key, look_at_pair};
use crate::config::form::{Located, ServerUri};
use crate::config::plain_server::name_in;
use crate::config::raw::{Server, Tls};
use crate::tls::OwnCertificate;
use crate::upstream::{TlsFiles, TlsWords};

impl Checker<'_> {
    pub(super) fn tls(&mut self, raw: Option<&Located<Tls>>, uri: &Located<ServerUri>) -> Option<TlsFiles> {
        let given = raw.and_then(|raw| raw.server_name.as_ref());
        let server_name = given.map(|name| name.0.clone()).or_else(|| name_in(&uri.0));
        if server_name.is_none() {
            self.fault(&uri.place, "the host cannot be the name in a certificate: expected tls.server_name beside it");
        }
        let own = raw.and_then(|raw| self.own_certificate(raw));
        let ca = raw.and_then(|raw| raw.ca.as_ref()).map(|ca| self.file(ca, look_at_cas));
        Some(TlsFiles { ca, own, server_name: server_name?, words: TlsWords::CONFIGURATION })
    }

    fn own_certificate(&mut self, raw: &Located<Tls>) -> Option<OwnCertificate> {
        let mut lonely = |there: &Located<_>, other: &str| {
            if !self.found.has_fault_within(&raw.place.key(other)) {
                self.found.fault(&there.place, format!("missing {other}: certificate and key go together"));
            }
        };
        match (&raw.certificate, &raw.key) {
            (Some(certificate), Some(key)) => {
                let place = &key.place;
                let (certificate, key) = (self.file(certificate, look_at_certificates), self.file(key, look_at_key));
                if self.opens_files
                    && let Err(fault) = look_at_pair(&certificate, &key)
                {
                    self.found.unusable(place, fault.to_string());
                }
                return Some(OwnCertificate { certificate, key });
            }
            (Some(certificate), None) => lonely(certificate, "key"),
            (None, Some(key)) => lonely(key, "certificate"),
            (None, None) => {}
        }
        None
    }

    /// Reports keys that have no effect, or must not be used, without TLS.
    pub(super) fn without_tls(&mut self, raw: &Server) {
        if let Some(tls) = &raw.tls {
            self.fault(&tls.place, "requires an https:// URI");
        }
        if let Some(token) = &raw.token_file {
            self.fault(&token.place, "requires an https:// URI: a token is never sent without TLS");
        }
    }
}

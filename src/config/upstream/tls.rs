//! TLS to a server.

use weir_core::xds::NamePattern;

use super::headers;
use crate::config::checker::Checker;
use crate::config::diagnostic::FilePosition;
use crate::config::files::{look_at_cas, look_at_certificates, look_at_key, look_at_pair, look_at_token};
use crate::config::form::{FilePath, Located, ServerUri};
use crate::config::listen_tls::together;
use crate::config::plain_server::name_in;
use crate::config::raw::{Server, Tls};
use crate::tls::OwnCertificate;
use crate::upstream::{TenantCredentials, TlsFiles, TlsWords};

pub(super) fn check(raw: Option<&Located<Tls>>, uri: &Located<ServerUri>, checker: &mut Checker) -> Option<TlsFiles> {
    let given = raw.and_then(|raw| raw.server_name.as_ref());
    let server_name = given.map(|name| name.0.clone()).or_else(|| name_in(&uri.uri));
    if server_name.is_none() {
        checker.fault(&uri.place, "the host cannot be the name in a certificate: expected tls.server_name beside it");
    }
    let own = raw.and_then(|raw| own_certificate(&raw.place, &raw.certificate, &raw.key, checker));
    let ca = raw.and_then(|raw| raw.ca.as_ref()).map(|ca| checker.file(ca, look_at_cas));
    Some(TlsFiles { ca, own, server_name: server_name?, words: TlsWords::CONFIGURATION })
}

fn own_certificate(
    section: &FilePosition,
    certificate: &Option<Located<FilePath>>,
    key: &Option<Located<FilePath>>,
    checker: &mut Checker,
) -> Option<OwnCertificate> {
    let (certificate, key) = together(section, certificate, key, checker)?;
    let place = &key.place;
    let (certificate, key) = (checker.file(certificate, look_at_certificates), checker.file(key, look_at_key));
    checker.look(place, || look_at_pair(&certificate, &key));
    Some(OwnCertificate { certificate, key })
}

/// Returns the credentials that the server is shown for each tenant.
pub(super) fn tenants(raw: &Server, checker: &mut Checker) -> Vec<TenantCredentials> {
    let entries = raw.tenants.iter().flat_map(|entries| &entries.0);
    let credentials = entries.map(|entry| {
        let names = entry.names.0.iter().flat_map(|names| &names.0);
        let own = own_certificate(&entry.place, &entry.certificate, &entry.key, checker);
        TenantCredentials {
            tenants: names.map(|name| NamePattern::parse(&name.0)).collect(),
            own,
            tokens: entry.token_file.iter().map(|file| checker.file(file, look_at_token)).collect(),
            headers: headers::check(&entry.headers, checker),
        }
    });
    credentials.collect()
}

/// Reports keys that have no effect without TLS, or must not be used without it.
pub(super) fn without_tls(raw: &Server, checker: &mut Checker) {
    if let Some(tls) = &raw.tls {
        checker.fault(&tls.place, "requires an https:// URI");
    }
    if let Some(tenants) = &raw.tenants {
        checker.fault(&tenants.place, "requires an https:// URI: certificates and tokens are for TLS");
    }
    if let Some(token) = &raw.token_file {
        checker.fault(&token.place, "requires an https:// URI: a token is never sent without TLS");
    }
}

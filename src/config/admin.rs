//! The address and the socket for operators, and who may do what there.

use std::net::SocketAddr;

use super::checked::{AdminOptions, AdminTls};
use super::checker::Checker;
use super::form::{Located, NonEmpty};
use super::raw;
use crate::tls::{ClientAuth, ListenTls};
use crate::xds::IdentityPattern;

impl Checker<'_> {
    pub(super) fn admin(&mut self, raw: &Located<raw::Admin>) -> AdminOptions {
        if raw.address.is_none() && raw.socket.is_none() {
            self.found.lacks(&raw.place, "missing address: expected address, socket or both");
        }
        if let Some(tls) = raw.tls.as_ref().filter(|_| raw.address.is_none()) {
            self.fault(&tls.place, "has no effect without address");
        }
        if let Some(address) = raw.address.as_ref().filter(|_| raw.tls.is_none())
            && let Err(reason) = admin_may_be_at(address.0, false)
        {
            self.fault(&address.place, reason);
        }
        let hosts = raw.hosts.iter().flat_map(|hosts| &hosts.0);
        AdminOptions {
            address: raw.address.as_ref().map(|address| address.0),
            socket: raw.socket.as_ref().map(|socket| self.socket_path(&socket.place, &socket.value)),
            hosts: hosts.map(|host| host.0.to_str().into()).collect(),
            tls: raw.tls.as_ref().and_then(|tls| self.admin_tls(tls)),
        }
    }

    fn admin_tls(&mut self, raw: &Located<raw::AdminTls>) -> Option<AdminTls> {
        let trust = self.trust(&raw.client_ca, &raw.crl, &raw.trust_domains);
        if raw.client_ca.is_none() && raw.trust_domains.is_none() {
            self.found.lacks(&raw.place, "missing client_ca or trust_domains: by which are certificates judged?");
        }
        if raw.may_read.is_none() && raw.may_change.is_none() {
            self.fault(&raw.place, "missing may_read or may_change: who may do anything?");
        }
        let (may_read, may_change) = (self.operators(raw, &raw.may_read), self.operators(raw, &raw.may_change));
        let own = self.shown_certificate(&raw.certificate, &raw.key)?;
        Some(AdminTls { tls: ListenTls { own, client_auth: ClientAuth::Required(trust) }, may_read, may_change })
    }

    /// Returns the identities of a list.
    fn operators(
        &mut self,
        tls: &raw::AdminTls,
        listed: &Option<Located<NonEmpty<raw::OperatorEntry>>>,
    ) -> Vec<IdentityPattern> {
        let mut found = Vec::new();
        for entry in listed.iter().flat_map(|entries| &entries.0) {
            let raw::OperatorEntry { spiffe, uri, dns } = &entry.value;
            if [spiffe, uri, dns].into_iter().flatten().count() != 1 {
                self.found.lacks(&entry.place, "expected exactly one of spiffe, uri, dns");
                continue;
            }
            let lacking = match spiffe {
                Some(_) => tls.trust_domains.is_none().then_some("trust_domains"),
                None => tls.client_ca.is_none().then_some("client_ca"),
            };
            if let Some(lacking) = lacking {
                self.fault(&entry.place, format!("no certificate can prove this: admin.tls has no {lacking}"));
            }
            let (spiffe, uri, dns) = (spiffe.clone(), uri.clone(), dns.clone());
            let value = raw::IdentityEntry { spiffe, uri, dns, ..raw::IdentityEntry::default() };
            found.extend(self.identity(&Located { place: entry.place.clone(), value }));
        }
        found
    }
}

/// Checks that operators may be served at an address. It shows more than other machines may see without saying who they are.
pub(super) fn admin_may_be_at(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if has_tls || address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "address {address} is reachable from other machines: expected a loopback address, or admin.tls, by which operators show who \
         they are; for /healthz, /ready and /metrics in plain text there is probes.address"
    ))
}

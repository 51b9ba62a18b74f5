//! The address and the socket for operators, and which operators may do what there.

use std::net::SocketAddr;
use std::path::PathBuf;

use weir_core::xds::IdentityPattern;

use super::checker::Checker;
use super::form::{Located, NonEmpty};
use super::permissions::check_identity;
use super::{listen, listen_tls, raw};
use crate::tls::{ClientAuth, ListenTls};

/// Where operators connect, and which of them may do what. Without an address and a socket, no operator can connect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminOptions {
    /// For reading; with TLS also for changes.
    pub address: Option<SocketAddr>,
    /// A Unix socket, for reading and for changes.
    pub socket: Option<PathBuf>,
    /// Host names under which requests may come to the address.
    pub hosts: Vec<Box<str>>,
    /// TLS of the address.
    pub(crate) tls: Option<AdminTls>,
}

/// TLS towards operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminTls {
    pub(crate) tls: ListenTls,
    /// The identities that may read.
    pub(crate) may_read: Vec<IdentityPattern>,
    /// The identities that may read and change.
    pub(crate) may_change: Vec<IdentityPattern>,
    /// The identities that may tap clients. The other two lists do not give this right.
    pub(crate) may_tap: Vec<IdentityPattern>,
}

pub(super) fn check(raw: &Located<raw::Admin>, checker: &mut Checker) -> AdminOptions {
    if raw.address.is_none() && raw.socket.is_none() {
        checker.lacks(&raw.place, "missing address: expected address, socket or both");
    }
    if let Some(tls) = raw.tls.as_ref().filter(|_| raw.address.is_none()) {
        checker.fault(&tls.place, "has no effect without address");
    }
    if let Some(address) = raw.address.as_ref().filter(|_| raw.tls.is_none())
        && let Err(reason) = admin_may_be_at(address.0, false)
    {
        checker.fault(&address.place, reason);
    }
    let hosts = raw.hosts.iter().flat_map(|hosts| &hosts.0);
    AdminOptions {
        address: raw.address.as_ref().map(|address| address.0),
        socket: raw.socket.as_ref().map(|socket| listen::socket_path(&socket.place, &socket.value, checker)),
        hosts: hosts.map(|host| host.0.to_str().into()).collect(),
        tls: raw.tls.as_ref().and_then(|tls| admin_tls(tls, checker)),
    }
}

fn admin_tls(raw: &Located<raw::AdminTls>, checker: &mut Checker) -> Option<AdminTls> {
    let trust = listen_tls::trust(&raw.client_ca, &raw.crl, &raw.trust_domains, checker);
    if raw.client_ca.is_none() && raw.trust_domains.is_none() {
        checker.lacks(&raw.place, "missing client_ca or trust_domains: by which are certificates judged?");
    }
    if raw.may_read.is_none() && raw.may_change.is_none() && raw.may_tap.is_none() {
        checker.fault(&raw.place, "missing may_read, may_change or may_tap: who may do anything?");
    }
    let (may_read, may_change) = (operators(raw, &raw.may_read, checker), operators(raw, &raw.may_change, checker));
    let may_tap = operators(raw, &raw.may_tap, checker);
    let pair = (&raw.certificate, &raw.key);
    let own = listen_tls::shown_certificates(&raw.place, pair, &raw.certificates, checker)?;
    Some(AdminTls { tls: ListenTls { own, client_auth: ClientAuth::Required(trust) }, may_read, may_change, may_tap })
}

/// Returns the identities of a list of operators.
fn operators(
    tls: &raw::AdminTls,
    listed: &Option<Located<NonEmpty<raw::OperatorEntry>>>,
    checker: &mut Checker,
) -> Vec<IdentityPattern> {
    let mut found = Vec::new();
    for entry in listed.iter().flat_map(|entries| &entries.0) {
        let raw::OperatorEntry { spiffe, uri, dns } = &entry.value;
        if [spiffe, uri, dns].into_iter().flatten().count() != 1 {
            checker.lacks(&entry.place, "expected exactly one of spiffe, uri, dns");
            continue;
        }
        let lacking = match spiffe {
            Some(_) => tls.trust_domains.is_none().then_some("trust_domains"),
            None => tls.client_ca.is_none().then_some("client_ca"),
        };
        if let Some(lacking) = lacking {
            checker.fault(&entry.place, format!("no certificate can prove this: admin.tls has no {lacking}"));
        }
        let (spiffe, uri, dns) = (spiffe.clone(), uri.clone(), dns.clone());
        let value = raw::IdentityEntry { spiffe, uri, dns, ..raw::IdentityEntry::default() };
        found.extend(check_identity(&Located { place: entry.place.clone(), value }, checker));
    }
    found
}

/// Checks that operators may be served at an address. Without TLS it must be a loopback address, since the admin API shows too much for other
/// machines.
pub(super) fn admin_may_be_at(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if has_tls || address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "address {address} is reachable from other machines: expected a loopback address, or admin.tls, by which operators show who \
         they are; for /healthz, /ready and /metrics in plain text there is probes.address"
    ))
}

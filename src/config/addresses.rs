//! The addresses that the relay listens on.

use std::net::SocketAddr;

use super::checker::Checker;
use super::diagnostic::Place;
use super::raw;
use crate::downstream::ListenOptions;

impl Checker<'_> {
    /// Returns the addresses for clients, and the one for operators.
    pub(crate) fn addresses(&mut self, raw: &raw::Root) -> (Vec<ListenOptions>, Option<SocketAddr>) {
        let listeners: Vec<_> = raw.listen.0.iter().flat_map(|listen| &listen.0).collect();
        let listen = listeners.iter().filter_map(|listen| listen.address.0.as_ref());
        let listen: Vec<_> = listen.map(|address| (address.0, &address.place)).collect();
        let admin = raw.admin.as_ref().and_then(|admin| admin.address.0.as_ref());
        let admin = admin.map(|address| (address.0, &address.place));
        let all: Vec<_> = listen.iter().copied().chain(admin).collect();
        for (number, (address, place)) in all.iter().enumerate() {
            let taken = all[..number].iter().find(|(other, _)| overlap(*other, *address));
            if let Some((other, at)) = taken {
                self.taken(*address, place, *other, at);
            }
        }
        let options = listeners.into_iter().filter_map(|listener| self.listener(listener)).collect();
        (options, admin.map(|(address, _)| address))
    }

    fn listener(&mut self, raw: &raw::Listen) -> Option<ListenOptions> {
        let address = raw.address.0.as_ref()?;
        if raw.tls.is_none() && !address.0.ip().is_loopback() {
            let reason = "no TLS: whoever reaches this address gets what any client gets, private keys too; expected tls beside it, \
                          or an address on this machine";
            self.found.warn(&address.place, reason);
        }
        let tls = raw.tls.as_ref().map(|tls| self.listen_tls(tls));
        Some(ListenOptions { address: address.0, tls: tls.unwrap_or_default() })
    }

    fn taken(&mut self, address: SocketAddr, place: &Place, other: SocketAddr, at: &Place) {
        let reason = match address == other {
            true => format!("duplicate address {address}: already {} in line {}", at.path, at.line),
            false => format!("address {address} overlaps {other}, which is {} in line {}", at.path, at.line),
        };
        self.fault(place, reason);
    }
}

/// Whether the system would refuse to listen on both. It chooses a different port for each 0.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}

//! The addresses and sockets that the relay listens on.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::admin::{self, AdminOptions};
use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::{listen, raw};
use crate::downstream::{ListenAddress, ListenOptions};

/// What the relay listens on.
pub(super) struct Addresses {
    /// For clients.
    pub(crate) listen: Vec<ListenOptions>,
    /// For operators.
    pub(crate) admin: AdminOptions,
    /// For probes.
    pub(crate) probes: Option<SocketAddr>,
}

pub(super) fn check(raw: &raw::Root, checker: &mut Checker) -> Addresses {
    let (mut listen, mut all) = (Vec::new(), Vec::new());
    for raw in raw.listen.0.iter().flat_map(|listen| &listen.0) {
        if let (Some(options), Some(address)) = (listen::check(raw, checker), &raw.address.0) {
            all.push((options.address.clone(), &address.place));
            listen.push(options);
        }
    }
    let admin = raw.admin.as_ref().map(|admin| admin::check(admin, checker)).unwrap_or_default();
    if let Some(raw) = &raw.admin {
        let address = admin.address.zip(raw.address.as_ref());
        all.extend(address.map(|(address, raw)| (ListenAddress::Tcp(address), &raw.place)));
    }
    let probes = raw.probes.as_ref().and_then(|probes| probes.address.0.as_ref());
    all.extend(probes.map(|address| (ListenAddress::Tcp(address.0), &address.place)));
    let probes = probes.map(|address| address.0);
    report_overlaps(&all, checker);
    if let Some((path, raw)) = admin.socket.as_ref().zip(raw.admin.as_ref().and_then(|raw| raw.socket.as_ref())) {
        let taken = all.iter().find(|(address, _)| path_of(address) == Some(path));
        if let Some((_, at)) = taken {
            let (path, at, line) = (path.display(), &at.path, at.line);
            checker.fault(&raw.place, format!("duplicate socket {path}: already {at} in line {line}"));
        }
    }
    Addresses { listen, admin, probes }
}

fn report_overlaps(all: &[(ListenAddress, &FilePosition)], checker: &mut Checker) {
    for (number, (address, place)) in all.iter().enumerate() {
        let taken = all[..number].iter().find(|(other, _)| overlap(other, address));
        if let Some((other, at)) = taken {
            report_taken(address, place, other, at, checker);
        }
    }
}

fn report_taken(
    address: &ListenAddress,
    place: &FilePosition,
    other: &ListenAddress,
    at: &FilePosition,
    checker: &mut Checker,
) {
    let reason = match address == other || path_of(address).is_some() {
        true => format!("duplicate address {address}: already {} in line {}", at.path, at.line),
        false => format!("address {address} overlaps {other}, which is {} in line {}", at.path, at.line),
    };
    checker.fault(place, reason);
}

fn path_of(address: &ListenAddress) -> Option<&PathBuf> {
    match address {
        ListenAddress::Tcp(_) => None,
        ListenAddress::Unix(unix) => Some(&unix.path),
    }
}

/// Whether the system would refuse to listen on both addresses. For each port 0 the system chooses another port.
fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) => ports_overlap(*one, *other),
        (one, other) => path_of(one).is_some() && path_of(one) == path_of(other),
    }
}

fn ports_overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}

//! Reports servers that are the relay itself: it would subscribe to what it serves, and never receive it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use http::Uri;

use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::form::{ListenPlace, ServerSocket};
use super::raw;
use crate::upstream::{Plan, SourcePlan};

/// Reports servers that are one of the relay's own addresses. Names other than `localhost` are not looked up. A match that depends on the machine
/// that runs this is a warning: a configuration may be checked on another machine.
pub(super) fn check(raw: &raw::Root, plan: &Plan, checker: &mut Checker) {
    let own = own_addresses(raw);
    let Some(upstream) = raw.upstream.0.as_ref() else { return };
    let uris = upstream.all_servers().filter_map(|server| server.uri.as_ref().or(server.rest.as_ref()));
    let uris: Vec<_> = uris.collect();
    let bootstrap = upstream.bootstrap.as_ref().map(|file| &file.place);
    let bootstrap = bootstrap.unwrap_or(&upstream.bootstrap_from_environment.place);
    let read = || plan.servers.iter().filter_map(SourcePlan::ads).filter(|_| uris.is_empty());
    let written = uris.iter().filter_map(|uri| match &uri.socket {
        Some(ServerSocket::Path(path)) => Some((checker.path(path), &uri.place)),
        _ => None,
    });
    let sockets = written.chain(read().filter_map(|server| Some((server.socket.clone()?, bootstrap))));
    check_sockets(raw, &sockets.collect::<Vec<_>>(), checker);
    let written = uris.iter().filter(|uri| uri.socket.is_none()).map(|uri| (&uri.value.uri, &uri.place));
    let servers = written.chain(read().filter(|server| server.socket.is_none()).map(|server| (&server.uri, bootstrap)));
    for (uri, place) in servers.collect::<Vec<_>>() {
        let found = own.iter().find(|(address, _)| is_at(uri, *address));
        if let Some((address, at)) = found {
            let reason = format!(
                "server {uri} is this relay: {address} is {} in line {}; expected another address",
                at.path, at.line
            );
            checker.fault(place, reason);
        } else if let Some((address, at)) = own.iter().find(|(address, _)| may_be_at(uri, *address)) {
            let reason = format!(
                "server {uri} is this relay if it runs on this machine: {address} is {} in line {}; expected another address",
                at.path, at.line
            );
            checker.warn(place, reason);
        }
    }
}

fn check_sockets(raw: &raw::Root, servers: &[(PathBuf, &FilePosition)], checker: &mut Checker) {
    let listens = raw.listen.0.iter().flat_map(|listen| &listen.0).filter_map(|listen| listen.address.0.as_ref());
    let own = listens.filter_map(|address| match &address.value {
        ListenPlace::Unix(path) => Some((checker.path(path), &address.place)),
        ListenPlace::Tcp(_) => None,
    });
    for (path, at) in own.collect::<Vec<_>>() {
        for (_, place) in servers.iter().filter(|(server, _)| *server == path) {
            let (path, at, line) = (path.display(), &at.path, at.line);
            let reason =
                format!("server unix:{path} is this relay: it is {at} in line {line}; expected another socket");
            checker.fault(place, reason);
        }
    }
}

fn own_addresses(raw: &raw::Root) -> Vec<(SocketAddr, &FilePosition)> {
    let listen = raw.listen.0.iter().flat_map(|listen| &listen.0);
    let listen = listen.filter_map(|listen| listen.address.0.as_ref()).filter_map(|address| match address.value {
        ListenPlace::Tcp(tcp) => Some((tcp, &address.place)),
        ListenPlace::Unix(_) => None,
    });
    let admin = raw.admin.as_ref().and_then(|admin| admin.address.as_ref());
    let admin = admin.map(|address| (address.0, &address.place));
    let probes = raw.probes.as_ref().and_then(|probes| probes.address.0.as_ref());
    let probes = probes.map(|address| (address.0, &address.place));
    listen.chain(admin).chain(probes).collect()
}

/// Whether a connection to this server arrives at this listener, on any machine.
fn is_at(uri: &Uri, listener: SocketAddr) -> bool {
    has_port(uri, listener) && uri.host().is_some_and(|host| reaches(host, listener.ip().to_canonical()))
}

/// Whether a connection to this server arrives at this listener on this machine. A listener without an address of its own has all of the machine's.
fn may_be_at(uri: &Uri, listener: SocketAddr) -> bool {
    has_port(uri, listener)
        && listener.ip().is_unspecified()
        && uri.host().is_some_and(|host| match bare(host).parse::<IpAddr>() {
            Ok(address) => (listener.is_ipv6() || address.is_ipv4()) && is_of_this_machine(address),
            Err(_) => is_name_of_this_machine(host),
        })
}

fn has_port(uri: &Uri, listener: SocketAddr) -> bool {
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    port != 0 && port == listener.port()
}

/// Whether an address is this machine's: a packet to an own address has the same address as its source. Connecting a UDP socket sends nothing.
fn is_of_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

fn is_name_of_this_machine(host: &str) -> bool {
    std::fs::read_to_string(NAME_FILE).is_ok_and(|name| name.trim().eq_ignore_ascii_case(host))
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn reaches(host: &str, own: IpAddr) -> bool {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let hosts = match bare(host).parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) if address.is_unspecified() => {
            loopback.into_iter().filter(|own| own.is_ipv4() == address.is_ipv4()).collect()
        }
        Ok(address) => vec![address],
        Err(_) if host.eq_ignore_ascii_case("localhost") => loopback.to_vec(),
        Err(_) => Vec::new(),
    };
    // An IPv6 listener on the unspecified address takes both kinds of connections.
    let is_any_of = |host: &IpAddr| own.is_unspecified() && host.is_loopback() && (own.is_ipv6() || host.is_ipv4());
    hosts.iter().any(|host| *host == own || is_any_of(host))
}

/// The port of the discard service; it does not matter, since nothing is sent.
const DISCARD: u16 = 9;
/// The name of the machine, on Linux.
const NAME_FILE: &str = "/proc/sys/kernel/hostname";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_the_relay_if_a_connection_to_it_arrives_at_its_own_listener() {
        for (uri, listener, own) in [
            ("http://127.0.0.1:1", "127.0.0.1:1", true),
            ("http://127.0.0.1:2", "127.0.0.1:1", false),
            ("http://127.0.0.2:1", "127.0.0.1:1", false),
            ("http://127.0.0.2:1", "0.0.0.0:1", true),
            ("http://127.0.0.1:1", "[::]:1", true),
            ("http://[::1]:1", "[::]:1", true),
            ("http://[::1]:1", "0.0.0.0:1", false),
            ("http://[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
            ("http://0.0.0.0:1", "127.0.0.1:1", true),
            ("http://[::]:1", "127.0.0.1:1", false),
            ("http://[::]:1", "[::1]:1", true),
            ("http://LocalHost:1", "127.0.0.1:1", true),
            ("http://localhost:1", "[::1]:1", true),
            ("http://localhost:1", "0.0.0.0:1", true),
            ("http://10.0.0.1:1", "0.0.0.0:1", false),
            ("http://10.0.0.1:1", "10.0.0.1:1", true),
            ("http://cp.example:1", "0.0.0.0:1", false),
            ("http://127.0.0.1", "127.0.0.1:80", true),
            ("https://127.0.0.1", "127.0.0.1:443", true),
            ("https://127.0.0.1", "127.0.0.1:80", false),
            ("http://127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(is_at(&uri.parse().unwrap(), listener.parse().unwrap()), own, "{uri} at {listener}");
        }
    }

    #[test]
    fn a_listener_without_an_address_has_those_and_the_name_of_the_machine() {
        assert!(is_of_this_machine(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_of_this_machine(Ipv4Addr::new(192, 0, 2, 1).into())); // reserved for documentation
        let Ok(name) = std::fs::read_to_string(NAME_FILE) else { return };
        let name = name.trim();
        let own = Ipv4Addr::LOCALHOST; // stands for any address of this machine
        for (uri, listener, may_be) in [
            (format!("http://{name}:1"), "0.0.0.0:1", true),
            (format!("http://{name}:1"), "0.0.0.0:2", false),
            (format!("http://{name}:1"), "10.0.0.1:1", false),
            (format!("http://{name}.example:1"), "0.0.0.0:1", false),
            (format!("http://{own}:1"), "0.0.0.0:1", true),
            (format!("http://{own}:1"), "[::]:1", true),
            ("http://192.0.2.1:1".to_owned(), "0.0.0.0:1", false),
        ] {
            assert_eq!(may_be_at(&uri.parse().unwrap(), listener.parse().unwrap()), may_be, "{uri} at {listener}");
        }
    }
}

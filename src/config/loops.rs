//! Servers that are the relay itself: it would subscribe to what it serves, and never get it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;

use super::checker::Checker;
use super::diagnostic::Place;
use super::raw;
use crate::upstream::{Plan, SourcePlan};

impl Checker<'_> {
    /// Reports servers that are one of the relay's own addresses. Names but `localhost` are not looked up.
    pub(crate) fn no_loops(&mut self, raw: &raw::Root, plan: &Plan) {
        let own = own_addresses(raw);
        let Some(upstream) = raw.upstream.0.as_ref() else { return };
        let uris = upstream.all_servers().filter_map(|server| server.uri.as_ref().or(server.rest.as_ref()));
        let written: Vec<_> = uris.map(|uri| (&uri.value.0, &uri.place)).collect();
        let bootstrap = upstream.bootstrap.as_ref().map(|file| &file.place);
        let bootstrap = bootstrap.unwrap_or(&upstream.bootstrap_from_environment.place);
        let read = plan.servers.iter().filter_map(SourcePlan::ads).map(|server| (&server.uri, bootstrap));
        let servers = if written.is_empty() { read.collect() } else { written };
        for (uri, place) in servers {
            let found = own.iter().find(|(address, _)| is_at(uri, *address));
            if let Some((address, at)) = found {
                let reason = format!(
                    "server {uri} is this relay: {address} is {} in line {}; expected another address",
                    at.path, at.line
                );
                self.fault(place, reason);
            }
        }
    }
}

fn own_addresses(raw: &raw::Root) -> Vec<(SocketAddr, &Place)> {
    let listen = raw.listen.0.iter().flat_map(|listen| &listen.0);
    let listen = listen.filter_map(|listen| listen.address.0.as_ref()).map(|address| (address.0, &address.place));
    let admin =
        raw.admin.as_ref().and_then(|admin| admin.address.0.as_ref()).map(|address| (address.0, &address.place));
    listen.chain(admin).collect()
}

/// Whether a connection to this server arrives at a listener of this address, on this machine.
fn is_at(uri: &Uri, listener: SocketAddr) -> bool {
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    port != 0 && port == listener.port() && uri.host().is_some_and(|host| reaches(host, listener.ip().to_canonical()))
}

fn reaches(host: &str, own: IpAddr) -> bool {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let hosts = match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) if address.is_unspecified() => {
            loopback.into_iter().filter(|own| own.is_ipv4() == address.is_ipv4()).collect()
        }
        Ok(address) => vec![address],
        Err(_) if bare.eq_ignore_ascii_case("localhost") => loopback.to_vec(),
        Err(_) => Vec::new(),
    };
    // Without an address of its own, a listener of IPv6 takes both.
    let is_any_of = |host: &IpAddr| own.is_unspecified() && host.is_loopback() && (own.is_ipv6() || host.is_ipv4());
    hosts.iter().any(|host| *host == own || is_any_of(host))
}

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
}

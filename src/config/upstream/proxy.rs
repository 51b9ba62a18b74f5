//! The proxy before a server, from the file or from the environment.

use std::borrow::Cow;
use std::net::IpAddr;

use http::Uri;
use percent_encoding::percent_decode_str;
use weir_core::xds::Network;

use crate::config::checker::Checker;
use crate::config::files::look_at_proxy_credentials;
use crate::config::form::{Located, ServerUri, server_uri};
use crate::config::plain_server::name_in;
use crate::config::raw::{self, Server};
use crate::upstream::{Proxy, ProxyCredentials, TlsFiles, TlsWords};

pub(super) fn proxy(raw: &Server, uri: &Located<ServerUri>, checker: &mut Checker) -> Option<Proxy> {
    match &raw.proxy {
        None => {
            if uri.socket.is_none() && checker.opens_files() && is_for(&uri.uri, checker) {
                checker.warn(
                    &uri.place,
                    "HTTPS_PROXY is set and not used: connections to this server are direct; proxy: environment uses it",
                );
            }
            None
        }
        Some(given) if uri.socket.is_some() => {
            checker.fault(&given.place, "a Unix socket is not reached through a proxy");
            None
        }
        Some(given) => match &given.value {
            raw::Proxy::Environment => of_environment(&uri.uri, given, checker),
            raw::Proxy::Server(server) => {
                let at = server.uri.0.as_ref()?;
                if at.socket.is_some() {
                    checker.fault(&at.place, "invalid proxy: expected http:// or https:// and a host");
                    return None;
                }
                let credentials = server.credentials_file.as_ref();
                let credentials = credentials.map(|file| checker.file(file, look_at_proxy_credentials));
                let proxy = to(at.uri.clone(), credentials.map(ProxyCredentials::File));
                if proxy.is_none() {
                    checker.fault(&at.place, "the host cannot be the name in a certificate");
                }
                proxy
            }
        },
    }
}

/// Whether the environment has a proxy for connections to a server.
fn is_for(server: &Uri, checker: &Checker) -> bool {
    variable("HTTPS_PROXY", checker).is_some() && !is_excepted(server, checker)
}

fn of_environment(server: &Uri, given: &Located<raw::Proxy>, checker: &mut Checker) -> Option<Proxy> {
    let Some(value) = variable("HTTPS_PROXY", checker) else {
        if checker.opens_files() {
            checker.warn(&given.place, "HTTPS_PROXY is not set: connections to this server are direct");
        }
        return None;
    };
    if is_excepted(server, checker) {
        return None;
    }
    let proxy = parse(&value);
    if proxy.is_none() {
        // The value may contain a password.
        checker.fault(&given.place, "invalid value of HTTPS_PROXY: expected http:// or https://, a host and a port");
    }
    proxy
}

/// Returns a variable whose name is in upper case or in lower case.
fn variable(name: &str, checker: &Checker) -> Option<String> {
    checker.variable(name).or_else(|| checker.variable(&name.to_lowercase()))
}

fn is_excepted(server: &Uri, checker: &Checker) -> bool {
    let default = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(default));
    variable("NO_PROXY", checker).is_some_and(|list| excepts(&list, host, port))
}

fn to(uri: Uri, credentials: Option<ProxyCredentials>) -> Option<Proxy> {
    let tls = match uri.scheme_str() {
        Some("https") => Some(TlsFiles { ca: None, own: None, server_name: name_in(&uri)?, words: TlsWords::PROXY }),
        _ => None,
    };
    Some(Proxy { uri, tls, credentials })
}

/// Parses the value of `HTTPS_PROXY`, which may have a user and a password, and may lack a scheme.
fn parse(value: &str) -> Option<Proxy> {
    let (scheme, rest) = value.trim().split_once("://").unwrap_or(("http", value.trim()));
    let rest = rest.trim_end_matches('/');
    let (user, host) = match rest.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, rest),
    };
    let credentials = match user {
        None => None,
        Some(user) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            Some(ProxyCredentials::Given(format!("{}:{}", decoded(user)?, decoded(password)?)))
        }
    };
    to(server_uri(&format!("{scheme}://{host}")).ok()?, credentials)
}

/// Decodes percent-encoding, such as `%41`; `None` if two hexadecimal digits are missing after a `%`.
fn decoded(text: &str) -> Option<String> {
    let begins_with_digits = |after: &str| {
        let digits = after.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(begins_with_digits) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Whether a list of `NO_PROXY` has a host: by `*`, by an address or a network, or by a name that the host equals or ends with.
fn excepts(list: &str, host: &str, port: u16) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    list.split([',', ' ', '\t']).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some(network) = Network::parse(entry.trim_start_matches('[').trim_end_matches(']')) {
            return address.is_some_and(|address| network.contains(address));
        }
        let (name, of_port) = match entry.rsplit_once(':') {
            Some((name, digits)) => match digits.parse::<u16>() {
                Ok(port) => (name, Some(port)),
                Err(_) => return false,
            },
            None => (entry, None),
        };
        if of_port.is_some_and(|of_port| of_port != port) {
            return false;
        }
        let name = name.trim_start_matches('[').trim_end_matches(']').to_lowercase();
        let name = name.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
        match address {
            Some(address) => name.parse() == Ok(address),
            None => {
                !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_has_names_with_what_is_below_them_networks_ports_and_everything() {
        let rows = [
            ("cp.example", "cp.example", true),
            ("CP.Example.", "cp.example", true),
            (".example", "cp.example", true),
            ("*.example", "cp.example", true),
            ("example", "cp.example", true),
            ("p.example", "cp.example", false),
            ("other, example", "cp.example", true),
            ("other example", "cp.example", true),
            ("cp.example:1", "cp.example", true),
            ("cp.example:2", "cp.example", false),
            ("cp.example:x", "cp.example", false),
            ("*", "cp.example", true),
            ("", "cp.example", false),
            (",.,", "cp.example", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3:1", "10.1.2.3", true),
            ("10.0.0.0/8", "cp.example", false),
            ("2.3", "10.1.2.3", false),
            ("::1", "[::1]", true),
            ("[::1]", "[::1]", true),
            ("fd00::/8", "[fd00::1]", true),
        ];
        for (list, host, expected) in rows {
            assert_eq!(excepts(list, host, 1), expected, "{list:?} of {host}");
        }
    }

    #[test]
    fn a_proxy_of_the_environment_may_have_credentials_and_no_scheme() {
        let given = |text: &str| Some(ProxyCredentials::Given(text.into()));
        for (value, uri, credentials) in [
            ("http://proxy:3128", "http://proxy:3128", None),
            ("proxy:3128/", "http://proxy:3128", None),
            ("http://user:p%40ss@proxy:3128", "http://proxy:3128", given("user:p@ss")),
            ("https://user@proxy", "https://proxy", given("user:")),
        ] {
            let proxy = parse(value).unwrap();
            assert_eq!((proxy.uri, proxy.credentials), (uri.parse().unwrap(), credentials), "{value}");
            assert_eq!(proxy.tls.is_some(), value.starts_with("https"));
            assert!(proxy.tls.as_ref().is_none_or(|tls| tls.words == TlsWords::PROXY));
        }
        for value in [
            "socks5://proxy:1",
            "http://",
            "http://proxy/path",
            "http://a%zz@proxy",
            "http://a%4",
            "http://a%4@proxy",
            "http://a%+4@proxy",
            "http://a%%41@proxy",
            "http://a%ff@proxy",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }
}

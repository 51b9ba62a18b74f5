//! Forms of addresses, networks and server URIs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use rustls::pki_types::ServerName;
use serde_json::{Value as Json, json};
use weir_core::xds::Network;

use super::scalar::{ValueError, or_text, scalar_form, text_like};
use super::text::{FilePath, text};
use crate::config::yaml::Scalar;

/// Where clients connect. A port alone means all addresses of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ListenPlace {
    Tcp(SocketAddr),
    Unix(FilePath),
}

/// An address for operators. A port alone means this machine only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct AdminAddress(pub(crate) SocketAddr);

/// An address for probes. A port alone means all addresses, because probes come from other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct ProbesAddress(pub(crate) SocketAddr);

/// A server URI: scheme, host and optionally port; or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct ServerUri {
    pub(crate) uri: Uri,
    pub(crate) socket: Option<ServerSocket>,
}

/// The Unix socket of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ServerSocket {
    Path(FilePath),
    /// The name of a socket that is not a file, on Linux.
    Abstract(String),
}

/// A name that a certificate may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct HostName(pub(crate) ServerName<'static>);

scalar_form!(
    ListenPlace,
    "address, or `unix:` and a path",
    |scalar| match scalar {
        Scalar::Text(text) if text.starts_with(UNIX) => socket(scalar, &text[UNIX.len()..]).map(ListenPlace::Unix),
        scalar => listen(scalar).map(ListenPlace::Tcp),
    },
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }), "unix:[^@].*|(.+:|:?)[0-9]+")
);

scalar_form!(AdminAddress, "address", |scalar| admin(scalar).map(AdminAddress), address_schema());

scalar_form!(ProbesAddress, "address", |scalar| probes(scalar).map(ProbesAddress), address_schema());

scalar_form!(
    ServerUri,
    "URI",
    server_place,
    text_like("[hH][tT][tT][pP][sS]?://[^/?]+/?|unix:[^@].*|unix-abstract:.+")
);

scalar_form!(
    HostName,
    "name",
    |scalar| {
        let name = ServerName::try_from(text("host name", scalar)?.to_owned());
        name.map(HostName).map_err(|_| ValueError::new("host name", scalar, "a DNS name or an IP address"))
    },
    text_like(r".*[a-zA-Z:_-].*|[0-9]+(\.[0-9]+){3}")
);

scalar_form!(
    Network,
    "network",
    |scalar| {
        let network = Network::parse(text("network", scalar)?);
        network.ok_or_else(|| ValueError::new("network", scalar, "an IP address or a network such as 10.1.0.0/16"))
    },
    text_like("[0-9a-fA-F]*[.:][0-9a-fA-F.:]*(/[0-9]+)?")
);

/// Parses an address for clients.
pub fn listen_address(text: &str) -> Result<SocketAddr, ValueError> {
    listen(&Scalar::Text(text.into()))
}

/// Parses an address for operators.
pub fn admin_address(text: &str) -> Result<SocketAddr, ValueError> {
    admin(&Scalar::Text(text.into()))
}

/// Parses the URI of a server.
pub(crate) fn server_uri(text: &str) -> Result<Uri, ValueError> {
    uri(&Scalar::Text(text.into()))
}

fn listen(scalar: &Scalar) -> Result<SocketAddr, ValueError> {
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let expected = "an IP address and a port, such as 127.0.0.1:18000, or :18000 for all addresses";
    address(scalar, all).ok_or_else(|| no_address(scalar, expected))
}

fn probes(scalar: &Scalar) -> Result<SocketAddr, ValueError> {
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let expected = "an IP address and a port, such as 0.0.0.0:19001, or :19001 for all addresses";
    address(scalar, all).ok_or_else(|| no_address(scalar, expected))
}

fn socket(scalar: &Scalar, path: &str) -> Result<FilePath, ValueError> {
    match path {
        "" => Err(ValueError::new("address", scalar, "the path of a socket, such as unix:/run/weir/weir.sock")),
        path if path.starts_with('@') => Err(ValueError::new("address", scalar, ABSTRACT)),
        path => Ok(FilePath(path.into())),
    }
}

fn server_place(scalar: &Scalar) -> Result<ServerUri, ValueError> {
    let socket = match text("URI", scalar)? {
        text if text.starts_with(UNIX_ABSTRACT) && text.len() > UNIX_ABSTRACT.len() => {
            ServerSocket::Abstract(text[UNIX_ABSTRACT.len()..].into())
        }
        text if text.starts_with(UNIX) => {
            let path = &text[UNIX.len()..];
            ServerSocket::Path(socket(scalar, path.strip_prefix("//").unwrap_or(path))?) // as gRPC writes absolute paths
        }
        _ => return uri(scalar).map(|uri| ServerUri { uri, socket: None }),
    };
    Ok(ServerUri { uri: Uri::from_static(OF_SOCKETS), socket: Some(socket) })
}

fn admin(scalar: &Scalar) -> Result<SocketAddr, ValueError> {
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let expected = "an IP address and a port, such as 127.0.0.1:19000, or :19000 for 127.0.0.1";
    address(scalar, own).ok_or_else(|| no_address(scalar, expected))
}

fn address(scalar: &Scalar, of_port: IpAddr) -> Option<SocketAddr> {
    let port = match scalar {
        Scalar::Integer(port) => u16::try_from(*port).ok()?,
        Scalar::Text(text) => match text.parse() {
            Ok(address) => return Some(address),
            Err(_) => text.strip_prefix(':').unwrap_or(text).parse().ok()?,
        },
        _ => return None,
    };
    Some(SocketAddr::new(of_port, port))
}

fn no_address(scalar: &Scalar, expected: &'static str) -> ValueError {
    ValueError::new("address", scalar, if exceeds_ports(scalar) { PORT } else { expected })
}

fn address_schema() -> Json {
    or_text(json!({ "type": "integer", "minimum": 0, "maximum": u16::MAX }), "(.+:|:?)[0-9]+")
}

/// Whether a port or something in its place follows the host. The library treats text that is no port as a missing port.
fn has_port(uri: &Uri) -> bool {
    uri.authority().zip(uri.host()).is_some_and(|(whole, host)| whole.as_str() != host)
}

/// Whether the text of an address has a number that is too high for a port.
fn exceeds_ports(scalar: &Scalar) -> bool {
    let port = match scalar {
        Scalar::Integer(port) => Some(*port),
        Scalar::Text(text) => text.rsplit(':').next().and_then(|port| port.parse().ok()),
        _ => None,
    };
    port.is_some_and(|port: i128| port > i128::from(u16::MAX))
}

const PORT: &str = "a port of at most 65535";
const UNIX: &str = "unix:";
const UNIX_ABSTRACT: &str = "unix-abstract:";
/// The authority that gRPC clients send over Unix sockets.
pub(crate) const OF_SOCKETS: &str = "http://localhost";
const ABSTRACT: &str = "the path of a file: names that begin with @ have no permissions";

const NO_USER: &str =
    "no user and no password in it, which metrics and logs would show; a token for a server is in its token_file";

fn uri(scalar: &Scalar) -> Result<Uri, ValueError> {
    let given = text("URI", scalar)?;
    if let Some((before, host)) = given.rsplit_once('@') {
        let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://")).unwrap_or_default();
        let shown = Scalar::Text(format!("{scheme}[redacted]@{host}"));
        return Err(ValueError::new("URI", &shown, NO_USER));
    }
    // The text after the question mark may be a token.
    let shown = given.split_once('?').map(|(before, _)| Scalar::Text(format!("{before}?...")));
    let scalar = shown.as_ref().unwrap_or(scalar);
    let uri = given.parse().ok().filter(|uri: &Uri| {
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        known && uri.host().is_some_and(|host| !host.is_empty())
    });
    match uri {
        Some(uri) if uri.port_u16().is_none() && has_port(&uri) => Err(ValueError::new("URI", scalar, PORT)),
        None => Err(ValueError::new(
            "URI",
            scalar,
            "http:// or https:// and a host, such as https://cp.example:18000, or unix: and a path",
        )),
        Some(uri) if uri.path() != "/" || uri.query().is_some() => {
            Err(ValueError::new("URI", scalar, "nothing after the host and port; the protocol has its own paths"))
        }
        Some(uri) => Ok(uri),
    }
}

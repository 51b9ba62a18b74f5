//! Which requests are answered. A browser on this machine reaches the admin address too, with requests that another site made up: by a form,
//! or by a name of its own that leads here (DNS rebinding).

use std::net::IpAddr;
use std::path::Path;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// Over `admin.address`: anybody who reaches it, browsers included.
    Network,
    /// Over `admin.socket`: the user of this process, or root.
    Socket,
}

/// What requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard<'a> {
    /// `admin.hosts`.
    pub(crate) hosts: &'a [Box<str>],
    /// `admin.socket`.
    pub(crate) socket: Option<&'a Path>,
}

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, String);

impl Guard<'_> {
    pub(crate) fn check<B>(&self, request: &Request<B>, via: Via) -> Result<(), Refusal> {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match via {
            Via::Network => {
                let headers = request.headers().get_all(HOST).iter().map(host_of);
                let target = request.uri().authority().map(|authority| Some(authority.host().to_owned()));
                headers.chain(target).try_for_each(|host| self.check_host(host))?;
                if reads { Ok(()) } else { Err((StatusCode::FORBIDDEN, self.where_changes_go())) }
            }
            Via::Socket if !reads && is_foreign(request.headers()) => {
                Err((StatusCode::FORBIDDEN, "a page of another origin made this request: changes are refused".into()))
            }
            Via::Socket => Ok(()),
        }
    }

    /// Checks the name under which the client has found this address. An address cannot be made to lead somewhere else.
    fn check_host(&self, host: Option<String>) -> Result<(), Refusal> {
        let Some(host) = host else { return Err((StatusCode::BAD_REQUEST, "invalid Host header".into())) };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        let is_known = bare.parse::<IpAddr>().is_ok()
            || bare.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|name| name.eq_ignore_ascii_case(bare));
        if is_known {
            return Ok(());
        }
        let reason = format!("unknown host {host:?}: expected an IP address, localhost, or a name in admin.hosts");
        Err((StatusCode::MISDIRECTED_REQUEST, reason))
    }

    fn where_changes_go(&self) -> String {
        match self.socket {
            Some(path) => format!(
                "this address only reads: send changes over the Unix socket of admin.socket (curl --unix-socket {})",
                path.display()
            ),
            None => {
                "this address only reads: changes need a Unix socket (admin.socket), which is not configured".into()
            }
        }
    }
}

fn host_of(header: &HeaderValue) -> Option<String> {
    let authority = Authority::try_from(header.as_bytes()).ok()?;
    Some(authority.host().to_owned())
}

/// Whether a browser says that a page of somebody else made the request.
fn is_foreign(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    headers.get_all(ORIGIN).iter().any(|origin| {
        let authority = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        authority.is_none() || authority != host
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(via: Via, line: &str, headers: &[(&str, &str)]) -> u16 {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let hosts = ["weir.monitoring.svc".into()];
        let guard = Guard { hosts: &hosts, socket: Some(Path::new("/run/weir/admin.sock")) };
        let checked = guard.check(&request.body(()).unwrap(), via);
        checked.err().map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn only_names_that_cannot_be_made_to_lead_here_are_hosts() {
        for host in [
            "127.0.0.1:19000",
            "10.1.2.3",
            "[::1]:19000",
            "localhost",
            "LocalHost:19000",
            "weir.monitoring.svc:19000",
            "Weir.Monitoring.svc",
        ] {
            assert_eq!(check(Via::Network, "GET /clients", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:19000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "monitoring.svc",
            "localhostx",
            "2130706433.example",
        ] {
            assert_eq!(check(Via::Network, "GET /clients", &[("host", host)]), 421, "{host}");
            assert_eq!(check(Via::Network, "POST /log", &[("host", host)]), 421, "{host}");
        }
        for host in ["", "a b", "user:pass@"] {
            assert!(check(Via::Network, "GET /clients", &[("host", host)]) >= 400, "{host:?}");
        }
        let both = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(Via::Network, "GET /clients", &both), 421);
        assert_eq!(check(Via::Network, "GET http://evil.example/clients", &both[..1]), 421);
        assert_eq!(check(Via::Network, "GET /clients", &[]), 200, "a probe without HTTP/1.1");
        assert_eq!(check(Via::Socket, "GET /clients", &[("host", "any")]), 200);
    }

    #[test]
    fn changes_come_over_the_socket_alone_and_not_from_pages() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            assert_eq!(check(Via::Network, &format!("{method} /log"), &[("host", "127.0.0.1")]), 403, "{method}");
        }
        let with = |origin: &str| check(Via::Socket, "POST /log", &[("host", "localhost"), ("origin", origin)]);
        assert_eq!(check(Via::Socket, "POST /log", &[("host", "localhost")]), 200);
        assert_eq!(with("http://localhost"), 200);
        for foreign in ["http://evil.example", "https://localhost", "null", "http://localhost.evil.example"] {
            assert_eq!(with(foreign), 403, "{foreign}");
        }
        let guard = Guard { hosts: &[], socket: None };
        let (_, reason) = guard.check(&Request::post("/log").body(()).unwrap(), Via::Network).unwrap_err();
        assert!(reason.contains("admin.socket"), "{reason}");
    }
}

//! Decides which requests are answered, in two tower layers: one around all paths and one around each.
//!
//! A browser on this machine reaches the admin address too, with requests that another site has made: by a form, or by a host name of that site that
//! resolves to this address (DNS rebinding).

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use weir_core::xds::IdentityPattern;

use super::answer::text;
use super::caller::{AdminSurface, Caller};
use crate::log_pace::LogPace;

/// The settings that requests are checked against.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// `admin.hosts`.
    pub(crate) hosts: Box<[Box<str>]>,
    /// `admin.socket`.
    pub(crate) socket: Option<PathBuf>,
    /// `admin.tls.may_read`.
    pub(crate) may_read: Vec<IdentityPattern>,
    /// `admin.tls.may_change`.
    pub(crate) may_change: Vec<IdentityPattern>,
    /// `admin.tls.may_tap`.
    pub(crate) may_tap: Vec<IdentityPattern>,
    pub(crate) refused: RefusedRequests,
}

/// Limits the log lines of refused changes and taps, since anybody who reaches the address can try them. Accepted ones are all logged.
#[derive(Debug, Clone)]
pub(crate) struct RefusedRequests(Arc<LogPace>);

impl Default for RefusedRequests {
    fn default() -> Self {
        Self(Arc::new(LogPace::of_client()))
    }
}

/// The effect of a request to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Shows what everybody may see.
    Probe,
    Read,
    Change,
    /// Shows what a single client requests and is sent.
    Tap,
}

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, String);

/// The layer around all paths.
pub(super) async fn find(
    State(rules): State<Arc<Rules>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if let Err((status, reason)) = rules.check_name(&request, caller.via) {
        return text(status, &reason);
    }
    next.run(request).await
}

/// The layer around one path. Each change is logged with its author. A tap logs its own lines, unless it is refused here.
pub(super) async fn enter(
    State((rules, does)): State<(Arc<Rules>, Effect)>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let (is_change, is_tap) = (does == Effect::Change, does == Effect::Tap);
    let target = (is_change || is_tap).then(|| request.uri().path_and_query().map(ToString::to_string)).flatten();
    let (response, line) = match rules.check_right(&request, &caller, does) {
        Ok(()) => (next.run(request).await, Some(None)),
        Err((status, reason)) => {
            let line = (is_change || is_tap).then(|| rules.refused.0.line(Instant::now())).flatten();
            (text(status, &reason), line.map(Some))
        }
    };
    let (status, target) = (response.status().as_u16(), target.unwrap_or_default());
    match line {
        Some(unlogged) if is_change => {
            tracing::info!(by = %caller.peer, target = %target, status, unlogged, "change requested");
        }
        Some(Some(unlogged)) if is_tap => {
            tracing::info!(by = %caller.peer, target = %target, status, unlogged, "tap of a client refused");
        }
        _ => {}
    }
    response
}

impl Rules {
    /// Checks the host name under which the client has reached this address. A client with a certificate is checked too, because a browser sends its
    /// user's certificate to any host name. Unix sockets have no host name.
    fn check_name<B>(&self, request: &http::Request<B>, via: AdminSurface) -> Result<(), Refusal> {
        if matches!(via, AdminSurface::Socket | AdminSurface::Probes) {
            return Ok(());
        }
        let headers = request.headers().get_all(HOST).iter().map(host_of);
        let target = request.uri().authority().map(|authority| Some(authority.host().to_owned()));
        headers.chain(target).try_for_each(|host| self.check_host(host))
    }

    /// Accepts configured names, and any IP address: DNS rebinding needs a name.
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

    fn check_right<B>(&self, request: &http::Request<B>, caller: &Caller, does: Effect) -> Result<(), Refusal> {
        if matches!(does, Effect::Change | Effect::Tap) && is_foreign(request, caller.via) {
            let reason = "a page of another origin made this request: changes and taps are refused";
            return Err((StatusCode::FORBIDDEN, reason.into()));
        }
        match (caller.via, does) {
            (_, Effect::Probe) | (AdminSurface::Socket, _) | (AdminSurface::Loopback, Effect::Read) => Ok(()),
            (AdminSurface::Probes, _) => Err((StatusCode::NOT_FOUND, "unknown path".into())),
            (AdminSurface::Loopback, Effect::Change) => Err((StatusCode::FORBIDDEN, self.elsewhere("changes", "need"))),
            (AdminSurface::Loopback, Effect::Tap) => Err((StatusCode::FORBIDDEN, self.elsewhere("a tap", "needs"))),
            (AdminSurface::Tls, Effect::Read | Effect::Change | Effect::Tap) => self.check_certificate(caller, does),
        }
    }

    /// Whether a caller may still do this: a stream outlives the request's check.
    pub(super) fn check_still(&self, caller: &Caller, does: Effect) -> Result<(), Refusal> {
        if caller.via == AdminSurface::Tls { self.check_certificate(caller, does) } else { Ok(()) }
    }

    /// Judges the certificate at each request, because connections outlive revocations.
    fn check_certificate(&self, caller: &Caller, does: Effect) -> Result<(), Refusal> {
        match caller.chain.as_ref().map(|chain| chain.judge()) {
            Some(Ok(_)) => {}
            Some(Err(rejection)) => return Err((StatusCode::UNAUTHORIZED, rejection.to_string())),
            None => return Err((StatusCode::UNAUTHORIZED, "no client certificate".into())),
        }
        let is_among = |listed: &[IdentityPattern]| listed.iter().any(|identity| identity.is_of(&caller.peer));
        let who = caller.peer.identity().unwrap_or_else(|| "this certificate".into());
        match does {
            Effect::Tap if is_among(&self.may_tap) => Ok(()),
            Effect::Tap => {
                let reason = format!("{who} may tap no client: admin.tls.may_tap lists who may");
                Err((StatusCode::FORBIDDEN, reason))
            }
            _ if is_among(&self.may_change) => Ok(()),
            Effect::Change => {
                Err((StatusCode::FORBIDDEN, format!("{who} may change nothing: admin.tls.may_change lists who may")))
            }
            _ if is_among(&self.may_read) => Ok(()),
            _ => Err((StatusCode::FORBIDDEN, format!("{who} may read nothing: admin.tls.may_read lists who may"))),
        }
    }

    /// Returns a text that says where a request is possible that this address does not accept.
    fn elsewhere(&self, what: &str, needs: &str) -> String {
        match &self.socket {
            Some(path) => format!(
                "this address only reads: {what} {needs} the Unix socket of admin.socket (curl --unix-socket {})",
                path.display()
            ),
            None => format!(
                "this address only reads: {what} {needs} a Unix socket (admin.socket) or certificates (admin.tls), which are not configured"
            ),
        }
    }
}

fn host_of(header: &HeaderValue) -> Option<String> {
    let authority = Authority::try_from(header.as_bytes()).ok()?;
    Some(authority.host().to_owned())
}

/// Whether the browser states that a page of another origin made the request.
fn is_foreign<B>(request: &http::Request<B>, via: AdminSurface) -> bool {
    let headers = request.headers();
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = named.or(request.uri().authority().map(Authority::as_str));
    let scheme = if via == AdminSurface::Tls { "https://" } else { "http://" };
    headers.get_all(ORIGIN).iter().any(|origin| {
        let authority = origin.to_str().ok().and_then(|origin| origin.strip_prefix(scheme));
        authority.is_none() || authority != host
    })
}

#[cfg(test)]
mod tests {
    use weir_core::xds::{CertificateNames, Peer, PeerProof, SegmentPattern};

    use super::*;

    fn caller(via: AdminSurface) -> Caller {
        Caller { via, peer: Arc::new(Peer::at(([127, 0, 0, 1], 1).into())), chain: None }
    }

    fn rules() -> Rules {
        Rules {
            hosts: Box::new(["weir.monitoring.svc".into()]),
            socket: Some("/run/weir/admin.sock".into()),
            ..Rules::default()
        }
    }

    fn request(line: &str, headers: &[(&str, &str)]) -> http::Request<()> {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn named(via: AdminSurface, line: &str, headers: &[(&str, &str)]) -> u16 {
        rules().check_name(&request(line, headers), via).err().map_or(200, |(status, _)| status.as_u16())
    }

    fn right(via: AdminSurface, does: Effect, headers: &[(&str, &str)]) -> u16 {
        let checked = rules().check_right(&request("POST /log", headers), &caller(via), does);
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
            assert_eq!(named(AdminSurface::Loopback, "GET /clients", &[("host", host)]), 200, "{host}");
            assert_eq!(named(AdminSurface::Tls, "GET /clients", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:19000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "monitoring.svc",
            "localhostx",
            "2130706433.example",
        ] {
            assert_eq!(named(AdminSurface::Loopback, "GET /clients", &[("host", host)]), 421, "{host}");
            assert_eq!(named(AdminSurface::Tls, "POST /log", &[("host", host)]), 421, "{host}");
        }
        for host in ["", "a b", "user:pass@"] {
            assert!(named(AdminSurface::Loopback, "GET /clients", &[("host", host)]) >= 400, "{host:?}");
        }
        let both = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(named(AdminSurface::Loopback, "GET /clients", &both), 421);
        assert_eq!(named(AdminSurface::Loopback, "GET http://evil.example/clients", &both[..1]), 421);
        assert_eq!(named(AdminSurface::Loopback, "GET /clients", &[]), 200, "a probe without HTTP/1.1");
        assert_eq!(named(AdminSurface::Socket, "GET /clients", &[("host", "any")]), 200);
        assert_eq!(named(AdminSurface::Probes, "GET /metrics", &[("host", "weir.default.svc")]), 200);
    }

    #[test]
    fn changes_need_the_socket_or_a_certificate_and_do_not_come_from_pages() {
        for does in [Effect::Probe, Effect::Read] {
            assert_eq!(
                [AdminSurface::Loopback, AdminSurface::Socket].map(|via| right(via, does, &[])),
                [200, 200],
                "{does:?}"
            );
        }
        let localhost = ("host", "localhost");
        assert_eq!(right(AdminSurface::Loopback, Effect::Change, &[localhost]), 403);
        assert_eq!(right(AdminSurface::Tls, Effect::Change, &[localhost]), 401, "a certificate that is not there");
        assert_eq!([Effect::Read, Effect::Change].map(|does| right(AdminSurface::Probes, does, &[])), [404, 404]);
        let tap = [AdminSurface::Loopback, AdminSurface::Socket, AdminSurface::Probes, AdminSurface::Tls]
            .map(|via| right(via, Effect::Tap, &[]));
        assert_eq!(tap, [403, 200, 404, 401]);
        assert_eq!(right(AdminSurface::Socket, Effect::Change, &[localhost]), 200);
        assert_eq!(right(AdminSurface::Socket, Effect::Change, &[localhost, ("origin", "http://localhost")]), 200);
        for foreign in ["http://evil.example", "https://localhost", "null", "http://localhost.evil.example"] {
            assert_eq!(
                right(AdminSurface::Socket, Effect::Change, &[localhost, ("origin", foreign)]),
                403,
                "{foreign}"
            );
        }
        let over_http2 = |origin: &str| {
            let request = request("POST https://localhost:1/log", &[("origin", origin)]);
            is_foreign(&request, AdminSurface::Tls)
        };
        assert!(
            !over_http2("https://localhost:1")
                && over_http2("http://localhost:1")
                && over_http2("https://evil.example")
        );
        let reason = |rules: Rules| {
            let request = request("POST /log", &[]);
            rules.check_right(&request, &caller(AdminSurface::Loopback), Effect::Change).unwrap_err().1
        };
        assert!(reason(Rules::default()).contains("admin.socket"));
        assert!(reason(rules()).contains("/run/weir/admin.sock"));
    }

    #[test]
    fn each_origin_of_a_change_has_to_be_this_address_with_its_port() {
        let of = |headers: &[(&str, &str)]| right(AdminSurface::Socket, Effect::Change, headers);
        let (host, own) = (("host", "localhost:1"), ("origin", "http://localhost:1"));
        assert_eq!(of(&[host, own]), 200);
        assert_eq!(of(&[host, own, own]), 200);
        assert_eq!(of(&[host, own, ("origin", "http://evil.example")]), 403, "a second one");
        assert_eq!(
            [of(&[host, ("origin", "http://localhost")]), of(&[host, ("origin", "http://localhost:2")])],
            [403; 2]
        );
        assert_eq!(of(&[own]), 403, "without a host nothing is the same");
        assert_eq!(
            right(AdminSurface::Loopback, Effect::Read, &[host, ("origin", "http://evil.example")]),
            200,
            "it changes nothing"
        );
    }

    #[test]
    fn identities_are_matched_by_what_certificates_prove() {
        let dns = |name: &str| IdentityPattern::Dns(SegmentPattern::dns(name).unwrap());
        let names = CertificateNames { dns: vec!["ops.example".into()], ..CertificateNames::default() };
        let peer = Peer { connection: 0, address: None, proven: Some(PeerProof::Certificate(names)) };
        assert!(dns("ops.example").is_of(&peer) && dns("{any}.example").is_of(&peer));
        assert!(!dns("other.example").is_of(&peer));
    }
}

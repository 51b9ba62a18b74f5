//! The address in a gRPC target. Names are resolved by DNS, also for a target without a scheme.

use std::path::PathBuf;

use http::uri::Authority;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("unsupported target scheme {0}: expected host:port or dns:///host:port")]
    Scheme(String),
    #[error("unsupported DNS server in target {0:?}: expected dns:///host:port")]
    DnsServer(String),
    #[error("invalid target {0:?}: expected host:port or dns:///host:port")]
    Host(String),
}

/// What Weir connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Host(Authority),
    /// The path of a Unix socket. An abstract socket's path begins with a zero byte.
    Socket(PathBuf),
}

impl Target {
    pub(super) fn of(target: &str) -> Result<Self, TargetError> {
        let no_path = || TargetError::Host(target.into());
        if let Some(name) = target.strip_prefix("unix-abstract:") {
            return if name.is_empty() { Err(no_path()) } else { Ok(Self::Socket(format!("\0{name}").into())) };
        }
        let Some(path) = target.strip_prefix("unix:") else { return host_and_port(target).map(Self::Host) };
        match path.strip_prefix("//").unwrap_or(path) {
            "" => Err(no_path()),
            path => Ok(Self::Socket(path.into())),
        }
    }
}

fn host_and_port(target: &str) -> Result<Authority, TargetError> {
    // The text before an @ may be a password.
    let shown = || target.rsplit_once('@').map_or_else(|| target.to_owned(), |(_, host)| format!("...@{host}"));
    let host = match target.strip_prefix("dns:") {
        Some(rest) => match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix('/').ok_or_else(|| TargetError::DnsServer(shown()))?,
            None => rest,
        },
        None => target,
    };
    let other =
        OTHER_SCHEMES.iter().find(|scheme| host.strip_prefix(**scheme).is_some_and(|rest| rest.starts_with(':')));
    if let Some(scheme) = other.copied().or_else(|| host.split_once("://").map(|(scheme, _)| scheme)) {
        return Err(TargetError::Scheme(scheme.into()));
    }
    let with_port = |authority: &Authority| authority.port_u16().is_some();
    let authority =
        host.parse().ok().filter(|authority: &Authority| !authority.host().is_empty() && !host.contains('@'));
    let authority = match authority {
        Some(authority) if with_port(&authority) => Some(authority),
        // The default port of gRPC.
        Some(_) => format!("{host}:443").parse().ok().filter(with_port),
        None => None,
    };
    authority.ok_or_else(|| TargetError::Host(shown()))
}

const OTHER_SCHEMES: [&str; 5] = ["vsock", "ipv4", "ipv6", "xds", "google-c2p"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_written_as_grpc_writes_them() {
        let of = |target: &str| Target::of(target);
        for (target, path) in [
            ("unix:/run/cp.sock", "/run/cp.sock"),
            ("unix:///run/cp.sock", "/run/cp.sock"),
            ("unix:cp.sock", "cp.sock"),
            ("unix-abstract:cp", "\0cp"),
        ] {
            assert_eq!(of(target), Ok(Target::Socket(path.into())), "{target}");
        }
        assert!(of("unix:").is_err() && of("unix://").is_err() && of("unix-abstract:").is_err());
        assert!(matches!(of("cp:1"), Ok(Target::Host(_))));
    }

    #[test]
    fn targets_lead_where_grpc_would_go_or_are_rejected() {
        let of = |target: &str| host_and_port(target).map(|authority| authority.to_string());
        for (target, place) in [
            ("cp.example:18000", "cp.example:18000"),
            ("dns:///cp.example:18000", "cp.example:18000"),
            ("dns:cp.example:18000", "cp.example:18000"),
            ("dns:///[::1]:5", "[::1]:5"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("cp.example", "cp.example:443"),
            ("unix.example:1", "unix.example:1"),
        ] {
            assert_eq!(of(target).as_deref(), Ok(place), "{target}");
        }
        for (target, part) in [
            ("vsock:1:2", "unsupported target scheme vsock: expected host:port"),
            ("xds:///cp", "target scheme xds:"),
            ("https://cp:1", "target scheme https:"),
            ("dns://8.8.8.8/cp:1", "unsupported DNS server in target"),
            ("cp:", "invalid target \"cp:\": expected host:port"),
            ("cp:seven", "invalid target"),
            ("cp:1/path", "invalid target"),
            ("me@cp:1", "invalid target"),
        ] {
            let reason = of(target).unwrap_err().to_string();
            assert!(reason.contains(part), "{target}: {reason}");
        }
    }
}

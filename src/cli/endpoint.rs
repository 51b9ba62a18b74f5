//! The endpoint that a command connects to: a URI or a Unix socket, and the files for TLS.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use rustls::pki_types::ServerName;

use crate::config::{ValueError, name_in, plain_server, server_uri};
use crate::tls::OwnCertificate;
use crate::upstream::{AdsServer, ConnectionAges, TlsFiles, TlsWords};

#[derive(Debug, Default, Args)]
pub(super) struct TlsArgs {
    /// CAs that may sign the server certificate, PEM [default: the system's]
    #[arg(long, alias = "tls-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate, PEM; requires --key
    #[arg(long, alias = "tls-cert", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, alias = "tls-key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name expected in the server certificate [default: host of the URI]
    #[arg(long, alias = "tls-server-name", value_name = "NAME")]
    server_name: Option<String>,
}

/// A fault in a URI or in the files for it, with the flag of the URI.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndpointError {
    #[error("{0}: {1}")]
    Uri(&'static str, ValueError),
    #[error("invalid {0} {1:?}: expected a host name or an address")]
    ServerName(&'static str, String),
    #[error("{0}: expected the path of a socket after unix:, such as unix:/run/weir.sock")]
    NoPath(&'static str),
    #[error("{0} has no host for a certificate; use {1}")]
    NoHost(&'static str, &'static str),
    #[error("{0} requires TLS: expected {1} https://…")]
    RequiresTls(&'static str, &'static str),
}

impl TlsArgs {
    /// Returns the arguments of a command that has them in other options.
    pub(super) fn of(ca: Option<PathBuf>, own: Option<(PathBuf, PathBuf)>, server_name: Option<String>) -> Self {
        let (cert, key) = own.unzip();
        Self { ca, cert, key, server_name }
    }

    /// Returns the given arguments, with their flags.
    pub(super) fn typed(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let given = [
            ("--ca", path(&self.ca)),
            ("--cert", path(&self.cert)),
            ("--key", path(&self.key)),
            ("--server-name", self.server_name.clone()),
        ];
        given.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect()
    }

    /// Returns the endpoint at a URI, which was given with this flag.
    pub(crate) fn endpoint(&self, flag: &'static str, text: &str) -> Result<AdsServer, Vec<EndpointError>> {
        self.endpoint_in(WORDS, flag, text)
    }

    /// Returns the endpoint at a URI, for a command whose options for the files and the name are those in `words`.
    pub(super) fn endpoint_in(
        &self,
        words: TlsWords,
        flag: &'static str,
        text: &str,
    ) -> Result<AdsServer, Vec<EndpointError>> {
        let mut faults = Vec::new();
        if let Some(path) = text.strip_prefix("unix:") {
            faults.extend(self.without_tls(flag));
            let path = path.strip_prefix("//").unwrap_or(path); // as gRPC writes absolute paths
            if path.is_empty() || path.starts_with('@') {
                faults.push(EndpointError::NoPath(flag));
            }
            let server = plain_server(Uri::from_static("http://localhost"));
            return if faults.is_empty() {
                Ok(AdsServer { socket: Some(path.into()), ages: ConnectionAges::NONE, ..server })
            } else {
                Err(faults)
            };
        }
        let with_scheme = match text.strip_prefix(':') {
            Some(port) => format!("http://127.0.0.1:{port}"), // as a configuration writes an address for operators
            None if text.contains("://") => text.to_owned(),
            None => format!("http://{text}"),
        };
        let uri = server_uri(&with_scheme).map_err(|error| faults.push(EndpointError::Uri(flag, error))).ok();
        let tls = match uri.as_ref().filter(|uri| uri.scheme_str() == Some("https")) {
            Some(uri) => self.tls(words, flag, uri).map_err(|fault| faults.push(fault)).ok(),
            None => {
                faults.extend(self.without_tls(flag));
                None
            }
        };
        match uri {
            Some(uri) if faults.is_empty() => Ok(AdsServer { tls, ages: ConnectionAges::NONE, ..plain_server(uri) }),
            _ => Err(faults),
        }
    }

    fn tls(&self, words: TlsWords, flag: &'static str, uri: &Uri) -> Result<TlsFiles, EndpointError> {
        let invalid = |name: &String| EndpointError::ServerName(words.server_name, name.clone());
        let server_name = match &self.server_name {
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| invalid(name))?,
            None => name_in(uri).ok_or(EndpointError::NoHost(flag, words.server_name))?,
        };
        let own = self.cert.clone().zip(self.key.clone());
        let own = own.map(|(certificate, key)| OwnCertificate { certificate, key });
        Ok(TlsFiles { ca: self.ca.clone(), own, server_name, words })
    }

    fn without_tls(&self, flag: &'static str) -> impl Iterator<Item = EndpointError> {
        let given = [
            ("--ca", self.ca.is_some()),
            ("--cert", self.cert.is_some()),
            ("--server-name", self.server_name.is_some()),
        ];
        let unused = given.into_iter().filter(|(_, given)| *given);
        unused.map(move |(unused, _)| EndpointError::RequiresTls(unused, flag))
    }
}

const WORDS: TlsWords = TlsWords {
    client: "the client",
    no_ca: "--ca is not given",
    no_certificate: "--cert is not given",
    server_name: "--server-name",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str, server_name: Option<&str>) -> Result<AdsServer, String> {
        let server_name = server_name.map(str::to_owned);
        let tls = TlsArgs { ca: None, cert: None, key: None, server_name };
        let faults = |faults: Vec<EndpointError>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        tls.endpoint("--admin", text).map_err(faults)
    }

    #[test]
    fn the_name_in_the_certificate_is_what_is_given_or_the_host() {
        let name = |text, given| endpoint(text, given).unwrap().tls.unwrap().server_name.to_str().into_owned();
        assert_eq!(name("https://10.0.0.1:7", Some("weir.example")), "weir.example");
        assert_eq!((name("https://10.0.0.1:7", None), name("https://[::1]", None)), ("10.0.0.1".into(), "::1".into()));
        let invalid = "invalid --server-name \"no name\": expected a host name or an address";
        assert_eq!(endpoint("https://a", Some("no name")).unwrap_err(), invalid);
        let unused = "--server-name requires TLS: expected --admin https://…";
        for plain in ["http://a:1", "a:1", "unix:/a"] {
            assert_eq!(endpoint(plain, Some("weir.example")).unwrap_err(), unused, "{plain}");
        }
        assert_eq!(endpoint(":19002", None).unwrap().uri, Uri::from_static("http://127.0.0.1:19002"));
        assert_eq!(
            endpoint("127.0.0.1:65536", None).unwrap_err(),
            "--admin: invalid URI \"http://127.0.0.1:65536\": expected a port of at most 65535"
        );
        assert!(endpoint("unix:@a", None).unwrap_err().starts_with("--admin: expected the path of a socket"));
    }
}

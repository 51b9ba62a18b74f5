//! The proxy before a server: its address, and its credentials.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;

use super::tls::TlsFiles;
use crate::known_files::KnownFiles;

/// An HTTP proxy, which is asked for a connection to the server by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// A scheme, a host and an optional port.
    pub(crate) uri: Uri,
    /// Present if and only if the scheme is https. TLS to the server does not depend on it.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) credentials: Option<ProxyCredentials>,
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ProxyCredentials {
    /// A file that has them, with a colon between them. It is read for each connection.
    File(PathBuf),
    /// From the environment.
    Given(String),
}

/// Why a proxy cannot be shown its credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyCredentialsError {
    #[error("cannot read the credentials for the proxy in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("invalid credentials for the proxy in {}: expected user:password in one line", .0.display())]
    Invalid(PathBuf),
}

impl Proxy {
    /// Returns the value of `proxy-authorization`.
    pub(super) async fn authorization(
        &self,
        known: &KnownFiles,
        limit: Duration,
    ) -> Result<Option<String>, ProxyCredentialsError> {
        let text = match &self.credentials {
            None => return Ok(None),
            Some(ProxyCredentials::Given(text)) => text.clone(),
            Some(ProxyCredentials::File(path)) => {
                let content = known.read(path, limit).await;
                let content = content.map_err(|source| ProxyCredentialsError::Read { path: path.clone(), source })?;
                let text = valid_credentials(&content).ok_or_else(|| ProxyCredentialsError::Invalid(path.clone()))?;
                text.to_owned()
            }
        };
        Ok(Some(format!("Basic {}", STANDARD.encode(text))))
    }
}

/// Returns the credentials in a file, if they are valid.
pub(crate) fn valid_credentials(content: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content).ok()?.trim_end_matches(['\r', '\n']);
    (text.contains(':') && !text.contains(char::is_control)).then_some(text)
}

impl fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Given(_) => f.write_str("from the environment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_user_and_a_password_in_one_line() {
        for (content, valid) in [
            ("user:pass", Some("user:pass")),
            ("user:a:b c\r\n", Some("user:a:b c")),
            ("user", None),
            ("", None),
            ("user:pass\nother:pass\n", None),
        ] {
            assert_eq!(valid_credentials(content.as_bytes()), valid, "{content:?}");
        }
        assert_eq!(valid_credentials(b"a:\xff"), None);
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", ProxyCredentials::Given("user:secret".into()));
        assert!(!shown.contains("secret"), "{shown}");
    }
}

//! What a server is shown of the relay itself with each stream, poll and call: tokens and configured headers.

use std::io;
use std::path::PathBuf;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::Code;

use super::headers::{HeaderSource, ServerHeader, header_value};
use super::server::AdsServer;
use super::token::{self, TokenError};

/// Why there is no value for a header, or no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeadersError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("cannot read header {name} in {}", path.display())]
    Read {
        name: HeaderName,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no header value for {name} in {}", path.display())]
    NoValue { name: HeaderName, path: PathBuf },
}

impl HeadersError {
    pub(super) fn code(&self) -> Code {
        if let Self::Token(error) = self { error.code() } else { Code::Unavailable }
    }
}

/// Returns the headers for a stream, poll or call that begins now. Tokens are sent over TLS only, and other headers only where they cannot be read
/// on the way.
pub(super) async fn headers_for(server: &AdsServer) -> Result<HeaderMap, HeadersError> {
    // Never over plain text, whatever the configuration contains.
    let tokens = if server.tls.is_some() { server.tokens.as_slice() } else { &[] };
    let headers = if server.may_be_shown_headers() { server.headers.as_slice() } else { &[] };
    let (known, limit) = (&server.known_files, server.connect_timeout);
    let mut shown = token::metadata(tokens, known, limit).await?.into_headers();
    for (path, value) in tokens.iter().zip(shown.get_all(AUTHORIZATION)) {
        // Without the `Bearer` prefix: other texts may contain parts of that word.
        let token = value.as_bytes().strip_prefix(token::BEARER.as_bytes()).map(HeaderValue::from_bytes);
        if let Some(Ok(token)) = token {
            server.shown_values.add_of_file(path, &token);
        }
    }
    for ServerHeader { name, value } in headers {
        let value = match value {
            HeaderSource::Given(value) | HeaderSource::Variable(_, value) => {
                server.shown_values.add(value);
                value.clone()
            }
            HeaderSource::File(path) => {
                let content = known.read(path, limit).await;
                let content =
                    content.map_err(|source| HeadersError::Read { name: name.clone(), path: path.clone(), source })?;
                let value = header_value(&content);
                let value = value.ok_or_else(|| HeadersError::NoValue { name: name.clone(), path: path.clone() })?;
                server.shown_values.add_of_file(path, &value);
                value
            }
        };
        shown.append(name.clone(), value);
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::relay::Redaction;
    use crate::upstream::headers::LONGEST;
    use crate::upstream::tls::{TlsFiles, TlsWords};

    fn header(name: &'static str, value: HeaderSource) -> ServerHeader {
        ServerHeader { name: HeaderName::from_static(name), value }
    }

    #[tokio::test]
    async fn a_file_is_read_each_time_and_one_without_a_value_stops_what_begins() {
        let folder = std::env::temp_dir().join(format!("weir-headers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("token");
        let headers = vec![
            header("x-token", HeaderSource::File(file.clone())),
            header("x-place", HeaderSource::Given(header_value(b"here").unwrap())),
        ];
        let server = AdsServer { headers, connect_timeout: Duration::from_secs(60), ..AdsServer::undialed() };
        for value in ["one", "two"] {
            fs::write(&file, format!(" {value}\n")).unwrap();
            let shown = headers_for(&server).await.unwrap();
            assert_eq!((&shown["x-token"], &shown["x-place"]), (&value.parse().unwrap(), &"here".parse().unwrap()));
            assert!(shown.values().all(HeaderValue::is_sensitive));
        }
        let redaction = Redaction::default().and(&server.shown_values);
        let plain = redaction.apply("one, two: here".into());
        assert_eq!(plain, "[redacted], [redacted]: [redacted]", "a server may quote the one before");
        for content in ["", " \n", "two\nlines", &"x".repeat(LONGEST + 1)] {
            fs::write(&file, content).unwrap();
            let error = headers_for(&server).await.unwrap_err();
            assert_eq!(error.to_string(), format!("no header value for x-token in {}", file.display()));
            assert_eq!(error.code(), Code::Unavailable);
        }
        fs::remove_dir_all(folder).unwrap();
        let error = headers_for(&server).await.unwrap_err();
        assert!(matches!(error, HeadersError::Read { .. }), "{error}");
    }

    #[tokio::test]
    async fn headers_are_never_shown_in_plain_text_beyond_this_machine() {
        let headers = vec![header("x-token", HeaderSource::Given(header_value(b"hush").unwrap()))];
        for (uri, is_shown) in [("http://127.0.0.1:1", true), ("http://cp.example:1", false)] {
            let server = AdsServer { uri: uri.parse().unwrap(), headers: headers.clone(), ..AdsServer::undialed() };
            assert_eq!(headers_for(&server).await.unwrap().contains_key("x-token"), is_shown, "{uri}");
        }
        assert!(!format!("{headers:?}").contains("hush"), "{headers:?}");
    }
    #[tokio::test]
    async fn a_token_is_hidden_in_what_the_server_says() {
        let token = "e30.eyJleHAiOjMyNTAzNjgwMDAwfQ.c2ln"; // until the year 3000
        let file = std::env::temp_dir().join(format!("weir-own-token-{}", std::process::id()));
        fs::write(&file, token).unwrap();
        let (server_name, words) = ("cp.example".try_into().unwrap(), TlsWords::CONFIGURATION);
        let tls = Some(TlsFiles { ca: None, own: None, server_name, words });
        let server = AdsServer { tls, tokens: vec![file.clone()], ..AdsServer::undialed() };
        headers_for(&server).await.unwrap();
        fs::remove_file(file).unwrap();
        let said = Redaction::default().and(&server.shown_values).apply(format!("Bearer error: no Bearer {token}!"));
        assert_eq!(said, "Bearer error: no Bearer [redacted]!");
    }
}

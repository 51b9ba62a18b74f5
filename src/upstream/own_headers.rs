//! What a server is shown of the relay itself with each stream, poll and call: tokens, and the headers that the configuration has for it.

use std::io;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName};
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

/// Returns what a server is shown with something that begins now: tokens over TLS alone, and headers where nobody can listen on the way.
pub(super) async fn headers_for(server: &AdsServer) -> Result<HeaderMap, HeadersError> {
    // Never over plain text, whatever the configuration contains.
    let tokens = if server.tls.is_some() { server.tokens.as_slice() } else { &[] };
    let headers = if server.may_be_shown_headers() { server.headers.as_slice() } else { &[] };
    let (known, limit) = (&server.known_files, server.connect_timeout);
    let mut shown = token::metadata(tokens, known, limit).await?.into_headers();
    for ServerHeader { name, value } in headers {
        let value = match value {
            HeaderSource::Given(value) | HeaderSource::Variable(_, value) => value.clone(),
            HeaderSource::File(path) => {
                let content = known.read(path, limit).await;
                let content =
                    content.map_err(|source| HeadersError::Read { name: name.clone(), path: path.clone(), source })?;
                let value = header_value(&content);
                value.ok_or_else(|| HeadersError::NoValue { name: name.clone(), path: path.clone() })?
            }
        };
        server.shown_values.add(&value);
        shown.append(name.clone(), value);
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::upstream::headers::LONGEST;

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
        assert_eq!(server.shown_values.last(), ["one", "here", "two"], "a server may quote the one before");
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
}

//! Headers of clients as a part of their key. The key has a keyed hash of each value; the value itself is known to the edges alone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The name of a header that may be in the key, and that servers may be shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderName(Arc<str>);

/// Why a header cannot be in the key, and cannot be shown to servers under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderNameFault {
    /// It is not a header name in the form of HTTP/2.
    #[error("a name of small letters, digits, hyphens, underscores and points")]
    Spelling,
    /// It is the header that carries tokens.
    #[error("another header: authorization has a key of its own, token_file")]
    Authorization,
    /// Its value is encoded bytes.
    #[error("a header of text: values of names that end with -bin are bytes")]
    Binary,
    /// It belongs to HTTP or gRPC.
    #[error("a header of the client's own: this one belongs to HTTP, to gRPC or to relays")]
    Reserved,
}

impl HeaderName {
    /// Reads the name of a header.
    pub fn parse(text: &str) -> Result<Self, HeaderNameFault> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(is_plain) {
            return Err(HeaderNameFault::Spelling);
        }
        if text == "authorization" {
            return Err(HeaderNameFault::Authorization);
        }
        if RESERVED.contains(&text) || RESERVED_STARTS.iter().any(|start| text.starts_with(start)) {
            return Err(HeaderNameFault::Reserved);
        }
        if text.ends_with("-bin") {
            return Err(HeaderNameFault::Binary);
        }
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Keyed hashes of the values of headers, by their names. A header that the client did not send has no entry, and that counts as a value of
/// its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderHashes(Option<Arc<BTreeMap<HeaderName, Box<str>>>>);

impl HeaderHashes {
    /// Returns the hashes of these headers.
    pub fn of(hashes: impl IntoIterator<Item = (HeaderName, String)>) -> Self {
        let hashes: BTreeMap<_, _> = hashes.into_iter().map(|(name, hash)| (name, hash.into())).collect();
        Self((!hashes.is_empty()).then(|| Arc::new(hashes)))
    }

    /// Whether there is no header.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the hash of a header.
    pub fn get(&self, name: &HeaderName) -> Option<&str> {
        self.0.as_ref()?.get(name).map(|hash| &**hash)
    }

    /// Returns all hashes, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &str)> {
        self.0.iter().flat_map(|hashes| hashes.iter().map(|(name, hash)| (name, &**hash)))
    }

    /// Returns the hashes of the headers that are in the key.
    pub(super) fn among(&self, is_in: impl Fn(&HeaderName) -> bool) -> Self {
        if self.iter().all(|(name, _)| is_in(name)) {
            return self.clone();
        }
        Self::of(self.iter().filter(|(name, _)| is_in(name)).map(|(name, hash)| (name.clone(), hash.to_owned())))
    }
}

const LONGEST: usize = 256;
/// Headers that concern one connection or message, and that a relay must not pass on.
const RESERVED: [&str; 24] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "connection",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "weir-relay",
    "x-forwarded-for",
];
const RESERVED_STARTS: [&str; 2] = ["content-", "grpc-"];

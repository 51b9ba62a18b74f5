//! Headers that the configuration has for a server.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

/// A header of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderSource,
}

/// Where the value of a header comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderSource {
    /// In the configuration.
    Given(HeaderValue),
    /// In this environment variable, which does not change while the relay runs.
    Variable(String, HeaderValue),
    /// In this file, which is read each time.
    File(PathBuf),
}

/// Returns the value that a text has, without the spaces and line breaks around it.
pub(crate) fn header_value(text: &[u8]) -> Option<HeaderValue> {
    let text = text.trim_ascii();
    let mut value = HeaderValue::from_bytes(text).ok().filter(|_| !text.is_empty() && text.len() <= LONGEST)?;
    value.set_sensitive(true);
    Some(value)
}

/// How many bytes a value may have. Servers limit the headers of a request to 8 KiB or more.
pub(super) const LONGEST: usize = 4 << 10;

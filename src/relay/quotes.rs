//! How texts quote the values of headers.

use std::collections::HashSet;

use http::HeaderValue;

/// The forms in which a text may quote some values: as a whole or in parts.
#[derive(Default)]
pub(super) struct Quotes {
    /// Forms that are shorter than a part.
    short: Vec<String>,
    /// All parts of the longer forms.
    parts: HashSet<[u8; PART]>,
}

impl Quotes {
    pub(super) fn of<'v>(values: impl IntoIterator<Item = &'v HeaderValue>) -> Self {
        let mut all = Self::default();
        for quote in values.into_iter().flat_map(|value| quotes_of(value.as_bytes())) {
            let windows = quote.as_bytes().windows(PART);
            all.parts.extend(windows.filter_map(|part| <[u8; PART]>::try_from(part).ok()));
            if quote.len() < PART {
                all.short.push(quote);
            }
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.parts.is_empty()
    }

    /// Returns how many bytes at the beginning of a text quote a value, as far as the beginning alone shows.
    pub(super) fn length_at(&self, text: &[u8]) -> usize {
        if text.first_chunk().is_some_and(|part| self.parts.contains(part)) {
            return PART;
        }
        let short = self.short.iter().filter(|quote| text.starts_with(quote.as_bytes()));
        short.map(String::len).max().unwrap_or_default()
    }
}

/// Returns the forms in which a text may quote a value: as UTF-8 with replacements, with each byte read as one letter, and with the escapes that h2
/// uses when a connection has ended.
pub(super) fn quotes_of(value: &[u8]) -> Vec<String> {
    let mut quotes = vec![String::from_utf8_lossy(value).into_owned()];
    if !value.is_ascii() {
        quotes.push(value.iter().map(|byte| char::from(*byte)).collect());
    }
    quotes.push(value.iter().map(|byte| as_code(*byte)).collect());
    quotes.retain(|quote| !quote.is_empty());
    quotes.dedup();
    quotes
}

/// A byte as h2 shows it in the text of a GOAWAY.
fn as_code(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\x{byte:02x}"),
    }
}

/// How many letters count as a part of a value; fewer may be a common word.
const PART: usize = 8;

//! How texts quote the values of headers.

use std::collections::HashSet;

use http::HeaderValue;

/// What texts may have of some values: the whole, and parts.
#[derive(Default)]
pub(super) struct Quotes {
    /// Those that are shorter than a part.
    short: Vec<String>,
    /// All others, which have nothing that is not in these.
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

    /// Returns how many bytes at the beginning of a text are of a value, as far as is known without what follows.
    pub(super) fn length_at(&self, text: &[u8]) -> usize {
        if text.first_chunk().is_some_and(|part| self.parts.contains(part)) {
            return PART;
        }
        let short = self.short.iter().filter(|quote| text.starts_with(quote.as_bytes()));
        short.map(String::len).max().unwrap_or_default()
    }
}

/// Returns the forms in which a text may have a value: it need not be UTF-8, others read each of its bytes as a letter, and where a connection has
/// ended the text has it as code would.
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

/// A byte as h2 shows it of what a server says with GOAWAY.
fn as_code(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\x{byte:02x}"),
    }
}

/// How many letters of a value are taken for a part of it, and not for a word that others use too.
const PART: usize = 8;

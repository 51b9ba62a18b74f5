//! Texts of servers without the header values that these were shown: they may quote them.

use http::HeaderValue;

/// What a text must not have in it.
#[derive(Clone, Default)]
pub(crate) struct Redaction(Vec<String>);

impl Redaction {
    /// Hides these values.
    pub(crate) fn of<'v>(values: impl IntoIterator<Item = &'v HeaderValue>) -> Self {
        Self(values.into_iter().flat_map(|value| quotes_of(value.as_bytes())).collect())
    }

    /// Returns a text without the values. It is read once, and what replaces a value is not read again.
    pub(crate) fn apply(&self, text: String) -> String {
        let quotes = &self.0;
        if !quotes.iter().any(|quote| text.contains(quote.as_str())) {
            return text;
        }
        let (mut plain, mut hidden_to, mut was_hidden) = (String::with_capacity(text.len()), 0, false);
        for (at, letter) in text.char_indices() {
            let longest = quotes.iter().filter(|quote| text[at..].starts_with(quote.as_str())).map(String::len).max();
            hidden_to = hidden_to.max(at + longest.unwrap_or_default());
            let is_hidden = at < hidden_to;
            match is_hidden {
                true if !was_hidden => plain.push_str(REDACTED),
                true => {}
                false => plain.push(letter),
            }
            was_hidden = is_hidden;
        }
        plain
    }
}

/// Returns the forms in which a text may have a value: it need not be UTF-8, and others read each of its bytes as a letter.
fn quotes_of(value: &[u8]) -> Vec<String> {
    let mut quotes = vec![String::from_utf8_lossy(value).into_owned()];
    if !value.is_ascii() {
        quotes.push(value.iter().map(|byte| char::from(*byte)).collect());
    }
    quotes.retain(|quote| !quote.is_empty());
    quotes
}

const REDACTED: &str = "[redacted]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_once_and_nothing_of_a_value_is_left_in_it() {
        let plain = |values: &[&'static [u8]], text: &str| {
            let values: Vec<_> = values.iter().map(|value| HeaderValue::from_bytes(value).unwrap()).collect();
            Redaction::of(&values).apply(text.into())
        };
        // What replaces one value has the others in it.
        assert_eq!(plain(&[b"e", b"d", b"[redacted]"], "need [redacted]"), "n[redacted] [redacted]");
        let text = plain(&[b"e", b"d", b"c"], &"e-".repeat(1000));
        assert_eq!(text.len(), 1000 * ("[redacted]".len() + 1));
        assert_eq!(plain(&[b"ab", b"abcd"], "abcd ab"), "[redacted] [redacted]", "the longest");
        assert_eq!(plain(&[b"ab", b"bcd"], "abcd!"), "[redacted]!", "all of what one covers beside the other");
        assert_eq!(plain(&[b""], "empty"), "empty");
        for quoted in ["\u{fffd}key", "\u{ff}key"] {
            assert_eq!(plain(&[b"\xffkey"], &format!("no {quoted}!")), "no [redacted]!", "bytes that are no UTF-8");
        }
        assert_eq!(plain(&["schl\u{fc}ssel".as_bytes()], "no schl\u{fc}ssel"), "no [redacted]");
    }
}

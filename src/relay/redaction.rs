//! Removes header values from texts of servers. Servers may quote the values that they were shown.

use std::sync::OnceLock;

use http::HeaderValue;

use super::quotes::Quotes;
use super::shown_values::ShownValues;

/// The values that a text must not contain.
#[derive(Default)]
pub(crate) struct Redaction {
    values: Vec<HeaderValue>,
    /// The forms in which the values may be quoted, made for the first text.
    own: OnceLock<Quotes>,
    /// Values that the server is shown on other streams.
    others: ShownValues,
}

impl Redaction {
    /// Hides these values, and parts of them.
    pub(crate) fn of<'v>(values: impl IntoIterator<Item = &'v HeaderValue>) -> Self {
        let values = values.into_iter().cloned().collect();
        Self { values, own: OnceLock::new(), others: ShownValues::default() }
    }

    /// Also removes the values that the server is shown on other streams.
    pub(crate) fn and(self, others: &ShownValues) -> Self {
        Self { others: others.clone(), ..self }
    }

    /// Returns a text without the values, cut to the length that is kept. It is read once: what replaces a value is not read again.
    pub(crate) fn apply(&self, text: String) -> String {
        if text.is_empty() {
            return text;
        }
        let own = self.own.get_or_init(|| Quotes::of(&self.values));
        let (bytes, others) = (text.as_bytes(), self.others.configured());
        let of_clients = self.others.of_clients_in(bytes, KEPT);
        if own.is_empty() && others.is_empty() && of_clients.is_empty() {
            return text;
        }
        let of_client = |at: usize| of_clients.get(at).copied().unwrap_or_default();
        let (mut plain, mut was_hidden) = (String::with_capacity(bytes.len().min(KEPT)), false);
        let mut hidden_to = 0;
        for (at, letter) in text.char_indices().take_while(|(at, letter)| at + letter.len_utf8() <= KEPT) {
            let mut is_hidden = false;
            for at in at..at + letter.len_utf8() {
                let rest = &bytes[at..];
                let found = own.length_at(rest).max(others.length_at(rest)).max(of_client(at));
                hidden_to = hidden_to.max(at + found);
                is_hidden |= at < hidden_to;
            }
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

/// The core keeps no longer error texts. A value across that end is still found.
const KEPT: usize = 4096;
const REDACTED: &str = "[redacted]";

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(values: &[&'static [u8]], text: &str) -> String {
        let values: Vec<_> = values.iter().map(|value| HeaderValue::from_bytes(value).unwrap()).collect();
        Redaction::of(&values).apply(text.into())
    }

    #[test]
    fn a_text_is_read_once_and_nothing_of_a_value_is_left_in_it() {
        // The replacement of one value contains the others.
        assert_eq!(plain(&[b"e", b"d", b"[redacted]"], "need [redacted]"), "n[redacted] [redacted]");
        let text = plain(&[b"e", b"d", b"c"], &"e-".repeat(1000));
        assert_eq!(text.len(), 1000 * ("[redacted]".len() + 1));
        let long = format!("{}long-value and more", "-".repeat(KEPT - 4));
        assert_eq!(plain(&[b"long-value"], &long), format!("{}[redacted]", "-".repeat(KEPT - 4)), "cut within it");
        assert_eq!(plain(&[b"ab", b"abcd"], "abcd ab"), "[redacted] [redacted]", "the longest");
        assert_eq!(plain(&[b"ab", b"bcd"], "abcd!"), "[redacted]!", "all of what one covers beside the other");
        assert_eq!(plain(&[b""], "empty"), "empty");
        for quoted in ["\u{fffd}key", "\u{ff}key"] {
            assert_eq!(plain(&[b"\xffkey"], &format!("no {quoted}!")), "no [redacted]!", "bytes that are no UTF-8");
        }
        assert_eq!(plain(&["schl\u{fc}ssel".as_bytes()], "no schl\u{fc}ssel"), "no [redacted]");
    }

    #[test]
    fn parts_of_a_value_are_hidden_from_eight_letters_on() {
        let token: &[&[u8]] = &[b"b1gs33d-long-token"];
        for (text, left) in [
            ("ends with ng-token", "ends with [redacted]"),
            ("begins with b1gs33d-lo...", "begins with [redacted]..."),
            ("has 1gs33d-l in it", "has [redacted] in it"),
            ("a token is long", "a token is long"),
        ] {
            assert_eq!(plain(token, text), left);
        }
        let cut = plain(&["\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}".as_bytes()], "\u{fc}\u{fc}\u{fc}\u{fc}.");
        assert_eq!(cut, "[redacted].", "whole letters");
    }

    #[test]
    fn what_a_connection_was_ended_with_is_quoted_as_code() {
        let values: [&[u8]; 2] = [b"a\"b\\c", b"\xfcber"];
        for value in values {
            let debug = format!("connection error received ({:?})", bytes::Bytes::from_static(value));
            assert_eq!(plain(&[value], &debug), "connection error received (b\"[redacted]\")");
        }
    }

    #[test]
    fn values_that_other_streams_to_the_server_show_are_hidden_too() {
        let (shown, values) = (ShownValues::default(), ["token-one", "token-other"].map(HeaderValue::from_static));
        let kept = shown.keep(values.to_vec());
        let redaction = || Redaction::default().and(&shown);
        let text = || "token-one and token-other".to_owned();
        assert_eq!(redaction().apply(text()), "[redacted] and [redacted]");
        drop(kept);
        assert_eq!(redaction().apply(text()), "[redacted] and [redacted]", "of a stream that has ended");
        assert_eq!(Redaction::of(&values[..1]).apply("its token-other".into()), "its token-other");
    }
}

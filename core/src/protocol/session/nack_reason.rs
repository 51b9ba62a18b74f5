//! The text of a NACK. A client wrote it, so it is bounded and escaped. What looks like key material is replaced, because a client may quote the
//! resource that it rejects.
//!
//! What is replaced, in this order:
//! 1. PEM, from `-----BEGIN` to the end of its `-----END` line, or of the text.
//! 2. The value after a field that holds secrets ([`SECRET_FIELDS`]) and `:` or `=`.
//! 3. An encoded run: 32 or more characters of base64 that are all hexadecimal, or have upper case, lower case and a digit.

use crate::proto::Request;
use crate::xds::Name;
use crate::xds::truncate;

/// Returns the reason as it is kept: redacted, without control characters, and of at most `limit` bytes.
pub fn clean(text: &str, limit: usize) -> Box<str> {
    // If the limit cuts a secret, enough of it is read to recognize it.
    let redacted = redact(&truncate(text, limit + SHORTEST_RUN));
    escape(&redacted, limit).into()
}

/// Returns at most `limit` bytes of a text, with escapes for control characters and invisible ones.
pub(super) fn escape(text: &str, limit: usize) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        let before = escaped.len();
        if letter.is_control() || is_invisible(letter) {
            escaped.extend(letter.escape_default());
        } else {
            escaped.push(letter);
        }
        if escaped.len() > limit {
            escaped.truncate(before);
            break;
        }
    }
    escaped
}

/// Returns the names that the reason of a NACK may quote, if the request is one.
pub fn names_quoted_by(request: &Request, limit: usize) -> Vec<Name> {
    let error = match request {
        Request::Sotw(request) => request.error_detail.as_ref(),
        Request::Delta(request) => request.error_detail.as_ref(),
    };
    error.map(|status| quoted_names(&status.message, limit)).unwrap_or_default()
}

/// Returns the names that a reason may quote: words before a colon, as in `cluster(s) a: too old, b: too new`, and texts in quotation marks. The
/// caller finds out which of them are resources.
fn quoted_names(text: &str, limit: usize) -> Vec<Name> {
    let text = truncate(text, limit);
    let words = text.split_whitespace().filter_map(|word| {
        let word = word.trim_start_matches(['(', '[', '{', '<', '"', '\'', '`']);
        word.strip_suffix(':').map(|word| word.trim_end_matches([')', ']', '}', '>', '"', '\'', '`']))
    });
    let marked = ['"', '\'', '`'].into_iter().flat_map(|mark| between(&text, mark));
    let mut names: Vec<Name> = Vec::new();
    for name in words.chain(marked).filter(|name| !name.is_empty()).map(Name::canonical) {
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() == MOST_QUOTED {
            break;
        }
    }
    names
}

/// Returns the texts between two marks of this kind. An apostrophe within a word is not a mark.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let mut open = None;
    text.match_indices(mark).filter_map(move |(at, found)| match open {
        Some(from) if !is_word(text[at + found.len()..].chars().next()) => {
            open = None;
            Some(&text[from..at])
        }
        None if !is_word(text[..at].chars().next_back()) => {
            open = Some(at + found.len());
            None
        }
        _ => None,
    })
}

fn redact(text: &str) -> String {
    redact_runs(&redact_fields(&redact_pem(text)))
}

fn redact_pem(text: &str) -> String {
    let (mut redacted, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find("-----BEGIN") {
        redacted.push_str(&rest[..begin]);
        redacted.push_str(REDACTED);
        let end = rest[begin..].find("-----END").map(|end| begin + end + "-----END".len());
        let closed = end.and_then(|end| Some(end + rest[end..].find("-----")? + "-----".len()));
        rest = closed.map_or("", |closed| &rest[closed..]);
    }
    redacted + rest
}

fn redact_fields(text: &str) -> String {
    let lower = text.to_ascii_lowercase(); // of the same length
    let (mut redacted, mut kept, mut at) = (String::new(), 0, 0);
    while at < text.len() {
        let field = SECRET_FIELDS.into_iter().find(|field| lower.as_bytes()[at..].starts_with(field.as_bytes()));
        at += field.map_or(1, str::len);
        let Some(value) = field.and_then(|_| value_after(text, at)) else { continue };
        redacted.push_str(&text[kept..value]);
        redacted.push_str(REDACTED);
        at = value + length_of_value(&text[value..]);
        kept = at;
    }
    redacted + &text[kept..]
}

/// Returns where the value of a field begins, if a value follows that is not replaced already. The field ends at `at`.
fn value_after(text: &str, at: usize) -> Option<usize> {
    let sign = text[at..].trim_start_matches(['"', '\'', '\\', ' ']).strip_prefix([':', '='])?;
    let value = sign.trim_start();
    (!value.is_empty() && !value.starts_with(REDACTED)).then_some(text.len() - value.len())
}

/// Returns the length of a value. A quoted value ends with the next mark of its kind that is not escaped, any other at a space, comma or line break.
fn length_of_value(value: &str) -> usize {
    let Some(mark) = value.chars().next().filter(|mark| ['"', '\'', '`'].contains(mark)) else {
        return value.find([' ', ',', '\n']).unwrap_or(value.len());
    };
    let mut is_escaped = false;
    for (at, letter) in value.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == mark => return at + 1,
            _ => {}
        }
    }
    value.len()
}

fn redact_runs(text: &str) -> String {
    let (mut redacted, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_base64(letter)).unwrap_or(rest.len());
        let run = &rest[..end];
        redacted.push_str(if is_encoded(run) { REDACTED } else { run });
        let next = rest[end..].find(is_base64).map_or(rest.len(), |next| end + next);
        redacted.push_str(&rest[end..next]);
        rest = &rest[next..];
    }
    redacted
}

fn is_base64(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || ['+', '/', '=', '_', '-'].contains(&letter)
}

fn is_encoded(run: &str) -> bool {
    let has = |is: fn(&u8) -> bool| run.as_bytes().iter().any(is);
    let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    run.len() >= SHORTEST_RUN && (mixed || run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a character changes the direction of writing, separates lines, or has no width.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

const REDACTED: &str = "[redacted]";
/// Fields of Envoy's messages that hold secrets, and common ones, in lower case.
const SECRET_FIELDS: [&str; 9] = [
    "inline_string",
    "inline_bytes",
    "inlinestring",
    "inlinebytes",
    "private_key",
    "client_secret",
    "clientsecret",
    "password",
    "token",
];
const SHORTEST_RUN: usize = 32;
/// How many names are read from one reason.
pub(super) const MOST_QUOTED: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const LIMIT: usize = 4096;

    fn names(text: &str) -> Vec<String> {
        quoted_names(text, LIMIT).iter().map(Name::to_string).collect()
    }

    #[test]
    fn names_are_found_in_the_reasons_of_envoy_and_grpc() {
        let envoy =
            "Error adding/updating cluster(s) bad: cannot create an EDS cluster without an EDS config, 10.0.0.1:80: no";
        assert_eq!(names(envoy), ["bad", "10.0.0.1:80"]);
        assert_eq!(names("Error adding/updating listener(s) listener_0: unknown 'tcp' filter"), ["listener_0", "tcp"]);
        let core =
            "xDS response validation errors: [resource index 0: cluster-3: INVALID_ARGUMENT: [field:lb error:x]]";
        assert!(names(core).contains(&"cluster-3".to_owned()));
        assert_eq!(names("CDS response Cluster 'outbound|80||a.b' validation error: x"), ["error", "outbound|80||a.b"]);
        assert_eq!(names(r#"resource "a b" isn't "c""#), ["a b", "c"]);
        assert_eq!(names("didn't find `route`, can't go on"), ["route"]);
        assert_eq!(names("xdstp://x/t.L/id?b=2&a=1: bad"), ["xdstp://x/t.L/id?a=1&b=2"], "in canonical form");
        assert_eq!(names("the cluster in use is bad"), [""; 0], "words in prose are no names");
        assert_eq!(names(&(0..1000).map(|number| format!("n{number}: ")).collect::<String>()).len(), MOST_QUOTED);
    }

    #[test]
    fn key_material_is_replaced_and_the_rest_stays() {
        let base64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        let cases = [
            (format!("bad -----BEGIN PRIVATE KEY-----\n{base64}\n-----END PRIVATE KEY----- end"), "bad [redacted] end"),
            (format!("bad -----BEGIN PRIVATE KEY-----\\n{base64}"), "bad [redacted]"),
            (format!("key {base64}: no"), "key [redacted]: no"),
            ("hash 0123456789abcdef0123456789abcdef01".into(), "hash [redacted]"),
            (r#"private_key { inline_string: "hun\"ter2" } x"#.into(), "private_key { inline_string: [redacted] } x"),
            (r#"{"inlineBytes":"aGk=","a":1}"#.into(), r#"{"inlineBytes":[redacted],"a":1}"#),
            ("password=hunter2, Token: abc def".into(), "password=[redacted], Token: [redacted] def"),
            (r#"token: "open"#.into(), "token: [redacted]"),
        ];
        for (text, kept) in cases {
            assert_eq!(&*clean(&text, LIMIT), kept, "{text}");
        }
        for kept in [
            "Error adding/updating cluster(s) outbound|8080||productpage.default.svc.cluster.local: no",
            "listener 550e8400-e29b-41d4-a716-446655440000: unknown",
            "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext is unknown",
            "the token is missing",
        ] {
            assert_eq!(&*clean(kept, LIMIT), kept);
        }
    }

    #[test]
    fn a_run_is_taken_for_key_material_from_its_thirty_second_letter_on() {
        let digits = |count| format!("hash {}", "0a".repeat(20).split_at(count).0);
        assert_eq!(&*clean(&digits(31), LIMIT), digits(31));
        assert_eq!(&*clean(&digits(32), LIMIT), "hash [redacted]");
    }

    #[test]
    fn a_run_that_the_limit_cuts_is_replaced_too() {
        let text = format!("{} {}", "x".repeat(90), "aB3".repeat(100));
        assert_eq!(&*clean(&text, 100), format!("{} [redacted", "x".repeat(90)));
    }

    #[test]
    fn control_characters_are_escaped_and_a_megabyte_is_cut() {
        assert_eq!(&*clean("a\r\nb\u{1b}[31m\u{202e}c\0", LIMIT), "a\\r\\nb\\u{1b}[31m\\u{202e}c\\u{0}");
        assert_eq!(clean(&"\u{1}".repeat(1 << 20), LIMIT).len(), LIMIT / 5 * 5);
        assert_eq!(clean(&"é".repeat(1 << 20), LIMIT).len(), LIMIT);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..Default::default() })]

        #[test]
        fn any_text_is_bounded_and_has_no_control_characters(text in "(?s).{0,200}", limit in 0usize..100) {
            let kept = clean(&text, limit);
            prop_assert!(kept.len() <= limit && !kept.chars().any(char::is_control));
            prop_assert!(quoted_names(&text, limit).len() <= MOST_QUOTED);
        }

        #[test]
        fn no_part_of_a_key_is_left_wherever_it_stands(before in "[a-z \"':=-]{0,40}", after in "[a-z \"':=-]{0,40}") {
            let key = "9sQz7Rk2".repeat(8);
            let kept = clean(&format!("{before} {key} {after}"), LIMIT);
            prop_assert!(!kept.contains("9sQz7Rk2"), "{kept}");
        }
    }
}

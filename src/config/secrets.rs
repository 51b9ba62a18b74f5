//! Hides secrets that get into a file by mistake: keys and tokens belong in files of their own. Only the value of a header may be a secret in the
//! configuration, and it is never shown.

/// Returns a text as it may be shown: without key material, and without the user and password of a URI.
pub(super) fn without_secrets(text: &str) -> String {
    if is_secret(text) {
        return REDACTED.into();
    }
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    // A password may contain any character, so everything before the last @ belongs to it.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{REDACTED}@{host}"),
        None => text.into(),
    }
}

/// Whether a text has content that belongs in a file of its own: a key or a certificate in PEM, or a JSON web token.
pub(super) fn is_secret(text: &str) -> bool {
    let is_token = || text.trim().starts_with("eyJ") && text.matches('.').count() == 2 && text.len() > SHORTEST_TOKEN;
    text.contains("-----BEGIN ") || is_token()
}

/// Whether a text in place of a header's name may contain the value too. No message quotes such a text.
pub(super) fn may_have_value(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let rest = name.strip_prefix(':').unwrap_or(name); // a pseudo-header of HTTP/2
    rest.len() > LONGEST_NAME || !rest.bytes().all(is_of_name)
}

/// Returns a text with the names of environment variables in place of their values, since a message may quote a value.
pub(super) fn without_values(text: &str, variables: &[(String, String)]) -> String {
    let mut known: Vec<_> = variables.iter().filter(|(_, value)| value.len() > 2).collect();
    known.sort_by_key(|(_, value)| std::cmp::Reverse(value.len())); // one value may be a part of another
    known.iter().fold(text.to_owned(), |text, (name, value)| {
        let quoted = format!("{value:?}");
        let quoted = quoted.trim_matches('"');
        [value.as_str(), quoted].iter().fold(text, |text, value| text.replace(*value, &format!("${{{name}}}")))
    })
}

pub(super) const LONGEST_NAME: usize = 64;
pub(super) const REDACTED: &str = "[redacted]";
/// Header, claims and signature of a token are always longer together.
const SHORTEST_TOKEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_key_material_are_not_shown_and_the_rest_is() {
        let token = format!("eyJhbGciOiJSUzI1NiJ9.{}.c2lnbmF0dXJl", "e".repeat(30));
        for (text, shown) in [
            ("https://cp.example:1/a?b", "https://cp.example:1/a?b"),
            ("https://user:pass@cp.example:1/a", "https://[redacted]@cp.example:1/a"),
            ("https://user:p/a@s?s@cp.example", "https://[redacted]@cp.example"),
            ("a@b", "a@b"),
            ("-----BEGIN PRIVATE KEY-----\nMII", "[redacted]"),
            (&token, "[redacted]"),
            ("eyJ.a.b", "eyJ.a.b"),
            ("a.b.c", "a.b.c"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn values_of_the_environment_are_replaced_by_their_names_also_as_messages_quote_them() {
        let variables =
            [("A", "hush"), ("B", "hush\"more"), ("C", "18")].map(|(name, value)| (name.into(), value.into()));
        let shown = |text: &str| without_values(text, &variables);
        assert_eq!(shown("invalid \"hush\": 18"), "invalid \"${A}\": 18", "what is short stands for many things");
        assert_eq!(shown(&format!("invalid {:?}", "hush\"more")), "invalid \"${B}\"");
    }
}

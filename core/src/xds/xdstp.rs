//! New-style names: `xdstp://authority/type/id?context`, parsed and brought into the canonical form in which they are compared.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

const SCHEME: &str = "xdstp:";

/// The decoded parts of a new-style name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xdstp {
    pub(crate) authority: String,
    /// Full message name, without any prefix.
    pub kind: String,
    /// The segments between the slashes. An encoded slash is part of a segment (NAME-12).
    id: Vec<String>,
    context: BTreeMap<String, String>,
}

/// Why a text that begins like a new-style name is invalid (NAME-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// The name ends where its authority would begin.
    #[error("there is no // after the scheme")]
    NoAuthority,
    /// The name has no type.
    #[error("it names no type")]
    NoType,
    /// An escape cannot be read.
    #[error("an escape is not a percent sign and two hexadecimal digits of a readable text")]
    Escape,
    /// A context parameter cannot be read.
    #[error("a context parameter has no key")]
    Context,
    /// The name has directives.
    #[error("directives belong into resources, not into requests")]
    Directives,
}

impl Xdstp {
    /// Whether a text is a new-style name, valid or not.
    pub fn is_new_style(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Reads a new-style name.
    pub fn parse(text: &str) -> Result<Self, NameFault> {
        let rest = text.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("//")).ok_or(NameFault::NoAuthority)?;
        if rest.contains('#') {
            return Err(NameFault::Directives);
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = path.split_once('/').ok_or(NameFault::NoType)?;
        let (kind, id) = path.split_once('/').unwrap_or((path, ""));
        if kind.is_empty() {
            return Err(NameFault::NoType);
        }
        let mut context = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key.is_empty() {
                return Err(NameFault::Context);
            }
            context.insert(decoded(key)?, decoded(value)?); // the last value of a key counts (NAME-11)
        }
        let id = id.split('/').map(decoded).collect::<Result<_, _>>()?;
        Ok(Self { authority: decoded(authority)?, kind: decoded(kind)?, id, context })
    }

    /// Whether the name is that of a collection, which is subscribed as a whole (NAME-23).
    pub fn is_glob(&self) -> bool {
        self.id.last().is_some_and(|last| last == "*")
    }

    /// Returns the glob that has this name as a member: equal except for the last segment (NAME-24).
    pub(crate) fn parent(&self) -> Self {
        let mut parent = self.clone();
        if let Some(last) = parent.id.last_mut() {
            *last = "*".into();
        }
        parent
    }
}

/// Returns the authority at the start of a name template. The rest of a template is not parsed.
pub fn authority_of_template(text: &str) -> Option<String> {
    let (authority, _) = text.strip_prefix(SCHEME)?.strip_prefix("//")?.split_once('/')?;
    decoded(authority).ok()
}

impl fmt::Display for Xdstp {
    /// Writes the canonical form: parameters sorted by key, and nothing escaped without need (NAME-7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}//")?;
        encode(f, &self.authority, "%/?#")?;
        f.write_char('/')?;
        encode(f, &self.kind, "%/?#")?;
        for segment in &self.id {
            f.write_char('/')?;
            encode(f, segment, "%/:?#[]")?;
        }
        for (at, (key, value)) in self.context.iter().enumerate() {
            f.write_char(if at == 0 { '?' } else { '&' })?;
            encode(f, key, "%#[]&=")?;
            f.write_char('=')?;
            encode(f, value, "%#[]&=")?;
        }
        Ok(())
    }
}

/// Escapes reserved characters, and those that a URI must not contain.
fn encode(f: &mut fmt::Formatter<'_>, text: &str, reserved: &str) -> fmt::Result {
    for letter in text.chars() {
        match letter {
            _ if !reserved.contains(letter) && !letter.is_control() && letter != ' ' => f.write_char(letter)?,
            _ => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            }
        }
    }
    Ok(())
}

/// Decodes one component, after the name was split (NAME-8).
fn decoded(text: &str) -> Result<String, NameFault> {
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2).ok_or(NameFault::Escape)?;
        let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or(NameFault::Escape);
        bytes.push((digit(0)? * 16 + digit(1)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| NameFault::Escape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn canonical(text: &str) -> String {
        Xdstp::parse(text).unwrap().to_string()
    }

    #[test]
    fn name_6_and_name_7_the_order_of_parameters_does_not_count() {
        let one = canonical("xdstp://a/t.L/id?b=2&a=1");
        assert_eq!(one, canonical("xdstp://a/t.L/id?a=1&b=2"));
        assert_eq!(one, "xdstp://a/t.L/id?a=1&b=2");
        assert_ne!(one, canonical("xdstp://a/t.L/id?a=1&b=3"));
        assert_ne!(one, canonical("xdstp://b/t.L/id?a=1&b=2"));
    }

    #[test]
    fn name_12_escapes_that_mean_the_same_are_the_same() {
        assert_eq!(canonical("xdstp://x/t.L/a%2Db"), canonical("xdstp://x/t.L/a-b"));
        assert_eq!(canonical("xdstp://x/t.L/a%2db"), "xdstp://x/t.L/a-b");
        assert_ne!(canonical("xdstp://x/t.L/a%2Fb"), canonical("xdstp://x/t.L/a/b"));
        assert_eq!(canonical("xdstp://x/t.L/a%2fb"), "xdstp://x/t.L/a%2Fb");
        assert_eq!(canonical("xdstp://x/t.L/i?k%3D=%26"), "xdstp://x/t.L/i?k%3D=%26");
        assert_eq!(canonical("xdstp://x/t.L/%C3%A4"), "xdstp://x/t.L/ä");
    }

    #[test]
    fn name_3_and_name_4_the_authority_may_be_empty_and_the_id_have_slashes() {
        let name = Xdstp::parse("xdstp:///t.L/a/b/c").unwrap();
        assert_eq!((name.authority.as_str(), name.kind.as_str()), ("", "t.L"));
        assert_eq!(name.to_string(), "xdstp:///t.L/a/b/c");
    }

    #[test]
    fn name_10_name_11_and_name_13_invalid_names_have_an_error_each() {
        for (text, fault) in [
            ("xdstp:/a/t/i", NameFault::NoAuthority),
            ("xdstp:a", NameFault::NoAuthority),
            ("xdstp://a", NameFault::NoType),
            ("xdstp://a/", NameFault::NoType),
            ("xdstp://a/t/%2", NameFault::Escape),
            ("xdstp://a/t/%zz", NameFault::Escape),
            ("xdstp://a/t/%ff", NameFault::Escape),
            ("xdstp://a/t/i?=1", NameFault::Context),
            ("xdstp://a/t/i#entry=x", NameFault::Directives),
        ] {
            assert_eq!(Xdstp::parse(text), Err(fault), "{text}");
        }
        assert_eq!(canonical("xdstp://a/t/i?k=1&k=2"), "xdstp://a/t/i?k=2");
    }

    #[test]
    fn name_24_a_glob_matches_one_more_segment_in_the_same_context() {
        let glob = Xdstp::parse("xdstp://a/t.L/foo/*?x=1").unwrap();
        assert!(glob.is_glob() && !Xdstp::parse("xdstp://a/t.L/foo*").unwrap().is_glob());
        let matches = |text: &str| Xdstp::parse(text).unwrap().parent() == glob;
        assert!(matches("xdstp://a/t.L/foo/bar?x=1"));
        for other in ["foo/bar", "foo/bar/baz?x=1", "foo/bar?x=1&y=2", "bar?x=1", "foo?x=1"] {
            assert!(!matches(&format!("xdstp://a/t.L/{other}")), "{other}");
        }
        assert!(!matches("xdstp://b/t.L/foo/bar?x=1") && !matches("xdstp://a/t.M/foo/bar?x=1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
        #[test]
        fn the_canonical_form_is_a_name_with_the_same_parts(text in "xdstp:(//)?[a%2/?&=:#*.é ]{0,24}") {
            if let Ok(name) = Xdstp::parse(&text) {
                prop_assert_eq!(Xdstp::parse(&name.to_string()), Ok(name));
            }
        }
    }
}

//! Headers that a server is shown for all clients.

use http::HeaderName;
use weir_core::xds::HeaderName as FreeName;

use crate::config::checker::Checker;
use crate::config::diagnostic::FilePosition;
use crate::config::files::look_at_header_value;
use crate::config::form::{Located, Unquoted};
use crate::config::raw::{HeaderEntry, Headers};
use crate::config::secrets::{LONGEST_NAME, may_have_value};
use crate::upstream::{HeaderSource, ServerHeader, header_value};

/// Returns the headers, ordered by name.
pub(super) fn check(raw: &Option<Located<Headers>>, checker: &mut Checker) -> Vec<ServerHeader> {
    let entries = raw.iter().flat_map(|headers| headers.0.0.iter());
    let headers = entries.filter_map(|(name, entry)| {
        let name = name_of(name, &entry.place, checker);
        let value = source(entry, checker);
        Some(ServerHeader { name: name?, value: value? })
    });
    headers.collect()
}

fn name_of(name: &str, place: &FilePosition, checker: &mut Checker) -> Option<HeaderName> {
    let Err(fault) = FreeName::parse(name) else { return HeaderName::from_bytes(name.as_bytes()).ok() };
    let what = if may_have_value(name) { "name of a header".into() } else { format!("header {name:?}") };
    checker.fault(place, format!("invalid {what}: expected {fault}"));
    None
}

fn source(entry: &Located<Unquoted<HeaderEntry>>, checker: &mut Checker) -> Option<HeaderSource> {
    let HeaderEntry { value, file, environment } = &entry.value.0;
    let expected = "invalid value: expected one line of text, of at most 4 KiB";
    match (value, file, environment) {
        (Some(text), None, None) => {
            let value = header_value(text.0.as_bytes());
            if value.is_none() {
                checker.fault(&text.place, expected);
            }
            value.map(HeaderSource::Given)
        }
        (None, Some(file), None) => Some(HeaderSource::File(checker.file(file, look_at_header_value))),
        (None, None, Some(name)) => {
            let Some(text) = checker.variable(&name.0) else {
                let fault = match is_plain(&name.value.0) {
                    true => format!("undefined environment variable {}", name.value.0),
                    false => "undefined environment variable: expected the name of one".into(),
                };
                checker.fault(&name.place, fault);
                return None;
            };
            let value = header_value(text.as_bytes());
            if value.is_none() {
                checker.fault(&name.place, expected);
            }
            value.map(|value| HeaderSource::Variable(name.value.0.clone(), value))
        }
        _ => {
            checker.lacks(&entry.place, "expected exactly one of value, file, environment");
            None
        }
    }
}

/// Whether a text looks like the name of a variable, and not like the value of a header.
fn is_plain(name: &str) -> bool {
    let is_of_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_of_word && name.len() <= LONGEST_NAME && !name.starts_with(|first: char| first.is_ascii_digit())
}

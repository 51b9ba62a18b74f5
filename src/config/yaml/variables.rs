//! Environment variables in values: `${NAME}` stands for a variable, `$$` for a dollar sign. They are substituted after the file was parsed, so their
//! text is always a single value and never syntax.

use std::cell::RefCell;

use super::node::{Node, Scalar, Value};
use crate::config::diagnostic::Diagnostics;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum VariableError {
    #[error("undefined environment variable {0}; write $${{{0}}} for the text itself")]
    Undefined(String),
    #[error("invalid variable reference {0:?}: expected ${{NAME}}, or $$ for a dollar sign")]
    Invalid(String),
}

/// Substitutes variables in all values of a tree, and reports values for which that fails.
pub(in crate::config) fn expand(
    node: &mut Node,
    environment: &dyn Fn(&str) -> Option<String>,
    found: &mut Diagnostics,
) {
    match &mut node.value {
        Value::Scalar(Scalar::Text(text)) if text.contains('$') => {
            let used = RefCell::new(Vec::new());
            let noted = |name: &str| {
                let value = environment(name)?;
                used.borrow_mut().push((name.to_owned(), value.clone()));
                Some(value)
            };
            let result = expanded(text, &noted);
            found.note_values(used.into_inner());
            match result {
                Ok(whole) => *text = whole,
                Err(error) => {
                    found.fault(&node.place, error.to_string());
                    node.value = Value::Faulty;
                }
            }
        }
        Value::Scalar(_) | Value::Faulty => {}
        Value::List(items) => items.iter_mut().for_each(|item| expand(item, environment, found)),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| expand(&mut entry.node, environment, found)),
    }
}

/// Substitutes variables in a text. A dollar sign before any other character stays.
fn expanded(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableError> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        let length = match rest.as_bytes().get(1) {
            Some(b'{') => {
                let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                out.push_str(&value_of(&rest[..end], environment)?);
                end
            }
            next => {
                out.push('$');
                if next == Some(&b'$') { 2 } else { 1 }
            }
        };
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out)
}

fn value_of(reference: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableError> {
    let name = reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).filter(|name| is_name(name));
    let name = name.ok_or_else(|| VariableError::Invalid(reference.into()))?;
    environment(name).ok_or_else(|| VariableError::Undefined(name.into()))
}

fn is_name(text: &str) -> bool {
    let letters = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    !text.is_empty() && letters(text) && !text.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_once_and_dollars_are_escaped_by_dollars() {
        let environment = |name: &str| match name {
            "HOST" => Some("cp.example".to_owned()),
            "NESTED" => Some("${HOST}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (text, whole) in [
            ("https://${HOST}:18000", "https://cp.example:18000"),
            ("${HOST}${EMPTY}${HOST}", "cp.examplecp.example"),
            ("$${HOST} $$ $5 a$", "${HOST} $ $5 a$"),
            ("${NESTED}", "${HOST}"),
            ("$$${HOST}", "$cp.example"),
        ] {
            assert_eq!(expanded(text, &environment).as_deref(), Ok(whole), "{text}");
        }
        let failed = |text: &str| expanded(text, &environment).unwrap_err().to_string();
        assert_eq!(failed("a ${PORT} b"), "undefined environment variable PORT; write $${PORT} for the text itself");
        for (text, part) in [("a ${b-c} d", "${b-c}"), ("${5}", "${5}"), ("x${HOST", "${HOST"), ("${}", "${}")] {
            let expected = format!("invalid variable reference {part:?}: expected ${{NAME}}, or $$ for a dollar sign");
            assert_eq!(failed(text), expected);
        }
    }
}

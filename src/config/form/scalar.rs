//! Forms of single values, and of enumerations.

use serde_json::{Value as Json, json};

use super::reader::Reader;
use crate::config::yaml::{Node, Scalar, Value};

/// A value of the wrong form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {found}: expected {expected}")]
pub struct ValueError {
    what: &'static str,
    found: String,
    expected: String,
}

impl ValueError {
    pub(super) fn new(what: &'static str, found: &Scalar, expected: impl Into<String>) -> Self {
        Self { what, found: found.to_string(), expected: expected.into() }
    }
}

/// Implements a form for a type, by the function that parses a scalar and its JSON schema.
macro_rules! scalar_form {
    ($form:ty, $parse:expr, $schema:expr) => {
        impl $crate::config::form::reader::Form for $form {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::Reader,
            ) -> Option<Self> {
                $crate::config::form::scalar::read(node, reader, $parse)
            }

            fn schema() -> serde_json::Value {
                $schema
            }
        }
    };
}
pub(super) use scalar_form;

/// Declares an enumeration whose values are words. The first is the default.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $first:ident = $first_word:literal $(, $variant:ident = $word:literal)* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub(in crate::config) enum $name {
            #[default]
            $first,
            $($variant),*
        }

        impl $crate::config::form::reader::Form for $name {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::Reader,
            ) -> Option<Self> {
                let index = $crate::config::form::scalar::word_index(node, &[$first_word $(, $word)*], reader)?;
                [Self::$first $(, Self::$variant)*].get(index).copied()
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$first_word $(, $word)*] })
            }
        }
    };
}
pub(in crate::config) use words;

pub(super) fn read<T>(node: &Node, reader: &mut Reader, parse: impl Fn(&Scalar) -> Result<T, ValueError>) -> Option<T> {
    match &node.value {
        Value::Scalar(scalar) => parse(scalar).map_err(|error| reader.found.fault(&node.place, error.to_string())).ok(),
        Value::Faulty => None,
        Value::List(_) | Value::Map(_) => {
            reader.expected(node, "a single value");
            None
        }
    }
}

pub(in crate::config) fn word_index(node: &Node, words: &[&str], reader: &mut Reader) -> Option<usize> {
    let found = match &node.value {
        Value::Scalar(Scalar::Text(text)) => words.iter().position(|word| word == text),
        Value::Faulty => return None,
        _ => None,
    };
    if found.is_none() {
        reader.expected(node, &alternatives(words));
    }
    found
}

fn alternatives(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// Returns the schema, or text of this pattern: a value with an environment variable is text in the file.
pub(super) fn or_text(schema: Json, pattern: &str) -> Json {
    json!({ "anyOf": [schema, text_like(pattern)] })
}

/// Returns the schema of text that matches a pattern or contains an environment variable.
pub(super) fn text_like(pattern: &str) -> Json {
    json!({ "type": "string", "pattern": format!("^({pattern})$|{VARIABLE}") })
}

const VARIABLE: &str = r"\$\{";

scalar_form!(bool, flag, or_text(json!({ "type": "boolean" }), "true|false"));

fn flag(scalar: &Scalar) -> Result<bool, ValueError> {
    match scalar {
        Scalar::Flag(flag) => Ok(*flag),
        Scalar::Text(text) if text == "true" => Ok(true),
        Scalar::Text(text) if text == "false" => Ok(false),
        scalar => Err(ValueError::new("value", scalar, "true or false")),
    }
}

//! Forms of single values, and of enumerations.

use serde_json::{Value as Json, json};

use super::reader::ValueReader;
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

/// Implements a form for a type. The arguments are the form's name in pages, the function that parses a scalar, the JSON schema, and, if a default
/// or a report may have to be written, the function that writes the value.
macro_rules! scalar_form {
    ($form:ty, $name:expr, $parse:expr, $schema:expr $(, $json:expr)?) => {
        impl $crate::config::form::reader::Form for $form {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::ValueReader,
            ) -> Option<Self> {
                $crate::config::form::scalar::read(node, reader, $parse)
            }

            fn schema() -> serde_json::Value {
                $schema
            }

            fn name() -> String {
                $name.into()
            }

            $(fn json(&self) -> Option<serde_json::Value> {
                let written: fn(&Self) -> serde_json::Value = $json;
                Some(written(self))
            })?
        }
    };
}
pub(super) use scalar_form;

/// Declares an enumeration whose values are words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::config) enum $name {
            $($variant),+
        }

        $crate::config::form::scalar::words_for!($name { $($variant = $word),+ });
    };
}
pub(in crate::config) use words;

/// Implements the form of an enumeration with these words as its values.
macro_rules! words_for {
    ($name:ty { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $crate::config::form::reader::Form for $name {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::ValueReader,
            ) -> Option<Self> {
                let index = $crate::config::form::scalar::word_index(node, &[$($word),+], reader)?;
                [$(Self::$variant),+].get(index).copied()
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),+] })
            }

            fn name() -> String {
                [$($word),+].map(|word| format!("`{word}`")).join(", ")
            }

            fn json(&self) -> Option<serde_json::Value> {
                match self {
                    $(Self::$variant => Some($word.into())),+
                }
            }
        }
    };
}
pub(in crate::config) use words_for;

pub(super) fn read<T>(
    node: &Node,
    reader: &mut ValueReader,
    parse: impl Fn(&Scalar) -> Result<T, ValueError>,
) -> Option<T> {
    match &node.value {
        Value::Scalar(scalar) => parse(scalar).map_err(|error| reader.found.fault(&node.place, error.to_string())).ok(),
        Value::Faulty => None,
        Value::List(_) | Value::Map(_) => {
            reader.expected(node, "a single value");
            None
        }
    }
}

pub(in crate::config) fn word_index(node: &Node, words: &[&str], reader: &mut ValueReader) -> Option<usize> {
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

scalar_form!(bool, "bool", flag, or_text(json!({ "type": "boolean" }), "true|false"), |flag| (*flag).into());

fn flag(scalar: &Scalar) -> Result<bool, ValueError> {
    match scalar {
        Scalar::Flag(flag) => Ok(*flag),
        Scalar::Text(text) if text == "true" => Ok(true),
        Scalar::Text(text) if text == "false" => Ok(false),
        scalar => Err(ValueError::new("value", scalar, "true or false")),
    }
}

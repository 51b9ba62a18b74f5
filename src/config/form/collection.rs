//! Lists of values, and mappings whose keys are names.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::located::Located;
use super::reader::{Form, ValueReader};
use super::row::Inner;
use crate::config::yaml::{Node, Scalar, Value};

/// A list with at least one item.
#[derive(Debug, Clone)]
pub(in crate::config) struct NonEmpty<T>(pub(crate) Vec<Located<T>>);

/// One value, or a list with at least one item.
#[derive(Debug, Clone)]
pub(in crate::config) struct OneOrMore<T>(pub(crate) Vec<Located<T>>);

/// Values by names that the author of the file chooses.
#[derive(Debug, Clone)]
pub(in crate::config) struct Names<T>(pub(crate) BTreeMap<String, Located<T>>);

/// A section, or a mapping of names, in place of which an operator may have written the secret itself: no message quotes the value.
#[derive(Debug)]
pub(in crate::config) struct Unquoted<T>(pub(crate) T);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Form> Form for Vec<Located<T>> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        if node.is_null() {
            return Some(Vec::new());
        }
        match &node.value {
            Value::List(items) => Some(read_items(items, reader)),
            Value::Faulty => None,
            _ => {
                reader.expected(node, "a list");
                None
            }
        }
    }

    fn schema() -> Json {
        json!({ "type": ["array", "null"], "items": T::schema() })
    }

    fn name() -> String {
        list_of(&T::name())
    }

    fn inner() -> Inner {
        items_of::<T>()
    }
}

impl<T: Form> Form for NonEmpty<T> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        match &node.value {
            Value::List(items) if !items.is_empty() => Some(Self(read_items(items, reader))),
            Value::Faulty => None,
            Value::List(_) => {
                reader.found.fault(&node.place, "empty list: expected at least one item");
                None
            }
            _ => {
                reader.expected(node, "a list with at least one item");
                None
            }
        }
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema(), "minItems": 1 })
    }

    fn name() -> String {
        list_of(&T::name())
    }

    fn inner() -> Inner {
        items_of::<T>()
    }
}

impl<T: Form> Form for OneOrMore<T> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        match &node.value {
            Value::List(_) => NonEmpty::read(node, reader).map(|NonEmpty(items)| Self(items)),
            _ => Located::read(node, reader).map(|one| Self(vec![one])),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [T::schema(), NonEmpty::<T>::schema()] })
    }

    fn name() -> String {
        format!("{}, or a list", T::name())
    }
}

impl<T: Form> Form for Names<T> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        let entries = match &node.value {
            _ if node.is_null() => return Some(Self::default()),
            Value::Map(entries) => entries,
            Value::Faulty => return None,
            _ => {
                reader.expected(node, "a mapping of names");
                return None;
            }
        };
        let read = entries.iter().filter_map(|entry| {
            let value = Located::read(&entry.node, reader)?;
            Some((entry.key.clone(), value))
        });
        Some(Self(read.collect()))
    }

    fn schema() -> Json {
        json!({ "type": ["object", "null"], "additionalProperties": T::schema() })
    }

    fn name() -> String {
        "map".into()
    }

    fn inner() -> Inner {
        Inner { items: ".<name>", ..T::inner() }
    }
}

impl<T: Form> Form for Unquoted<T> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        if matches!(&node.value, Value::Scalar(scalar) if !matches!(scalar, Scalar::Null)) {
            let inner = T::inner();
            let keys = inner.rows.iter().map(|row| row.key).collect::<Vec<_>>().join(", ");
            let of = if inner.items.is_empty() { "a mapping with" } else { "a mapping of names, each with" };
            reader.found.fault(&node.place, format!("invalid value: expected {of} one of {keys}"));
            return None;
        }
        T::read(node, reader).map(Self)
    }

    fn schema() -> Json {
        T::schema()
    }

    fn name() -> String {
        T::name()
    }

    fn inner() -> Inner {
        T::inner()
    }
}

fn list_of(name: &str) -> String {
    if name == "map" { "list".into() } else { format!("list of {name}") }
}

fn items_of<T: Form>() -> Inner {
    Inner { items: "[]", ..T::inner() }
}

/// Items of the wrong form are reported and left out.
fn read_items<T: Form>(items: &[Node], reader: &mut ValueReader) -> Vec<Located<T>> {
    items.iter().filter_map(|item| Located::read(item, reader)).collect()
}

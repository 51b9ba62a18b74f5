//! The tree of values.

use std::fmt;

use crate::config::diagnostic::FilePosition;
use crate::config::secrets::without_secrets;

#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Node {
    pub(crate) place: FilePosition,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, Default)]
pub(in crate::config) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<YamlEntry>),
    /// A value whose fault was already reported; no further fault of it is reported.
    #[default]
    Faulty,
}

#[derive(Debug, Clone)]
pub(in crate::config) struct YamlEntry {
    pub(crate) key: String,
    /// The place of the key.
    pub(crate) place: FilePosition,
    pub(crate) node: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) enum Scalar {
    Null,
    Flag(bool),
    Integer(i128),
    Float(f64),
    Text(String),
}

impl Node {
    /// Returns a null at a place where a value could be.
    pub(crate) fn null_at(place: FilePosition) -> Self {
        Self { place, value: Value::Scalar(Scalar::Null) }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(Scalar::Null))
    }

    /// Returns the value as messages show it: as written, or `a list` and the like.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_string(),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
            Value::Faulty => "a faulty value".into(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{:?}", without_secrets(text)),
        }
    }
}

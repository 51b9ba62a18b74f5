//! Mappings whose keys are known.

use serde_json::{Map, Value as Json, json};

use super::located::Field;
use super::reader::{Form, ValueReader};
use super::row::{Pages, Presence, Row};
use crate::config::diagnostic::FilePosition;
use crate::config::yaml::{Node, Value, YamlEntry};

/// Declares a mapping as a structure: its keys, each with its purpose, a form, a default if it has one, and notes ([`Row`]). The structure reads
/// itself and reports every fault. The JSON schema, `weir check`, the pages of `docs` and the comments of config/relay.yaml are made from the
/// same rows.
macro_rules! section {
    ($(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $key:ident: $field:ty $(= $default:expr)? $(, $note:ident($value:expr))*;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub(in crate::config) struct $name {
            $($(#[doc = $doc])+ pub $key: $field),+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $crate::config::form::section::by_default!($($default)?)),+ }
            }
        }

        impl $crate::config::form::section::Section for $name {
            fn rows() -> Vec<$crate::config::form::Row> {
                let defaults = Self::default();
                vec![$($crate::config::form::section::row_of(stringify!($key), concat!($($doc, "\n"),+), &defaults.$key)
                    $(.$note($value))*),+]
            }

            fn given(&self) -> Vec<Option<&$crate::config::diagnostic::FilePosition>> {
                vec![$($crate::config::form::Field::given(&self.$key)),+]
            }

            fn values(&self) -> Vec<Option<serde_json::Value>> {
                vec![$($crate::config::form::Field::json(&self.$key)),+]
            }
        }

        impl $crate::config::form::reader::Form for $name {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::ValueReader,
            ) -> Option<Self> {
                let keys = $crate::config::form::section::Keys::of(node, &[$(stringify!($key)),+], reader)?;
                let defaults = Self::default();
                Some(Self { $($key: keys.read(stringify!($key), defaults.$key, reader)),+ })
            }

            fn schema() -> serde_json::Value {
                $crate::config::form::section::schema::<Self>(concat!($($about),+))
            }

            fn name() -> String {
                "map".into()
            }

            fn inner() -> $crate::config::form::row::Inner {
                $crate::config::form::row::Inner {
                    items: "",
                    rows: <Self as $crate::config::form::section::Section>::rows(),
                }
            }
        }
    };
}
pub(in crate::config) use section;

/// The value of a key that the file does not set.
macro_rules! by_default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $crate::config::form::Setting::by_default($default)
    };
}
pub(in crate::config) use by_default;

/// What the declaration of a section provides besides reading it.
pub(in crate::config) trait Section: Form {
    fn rows() -> Vec<Row>;

    /// Returns where the file sets the keys, in the order of the rows.
    fn given(&self) -> Vec<Option<&FilePosition>>;

    /// Returns the values in force, in the order of the rows.
    fn values(&self) -> Vec<Option<Json>>;
}

/// The entries of one mapping, whose keys are all known.
pub(in crate::config) struct Keys<'n> {
    place: &'n FilePosition,
    entries: &'n [YamlEntry],
}

impl<'n> Keys<'n> {
    /// Reports all unknown keys. A mapping without keys may be written as null.
    pub(crate) fn of(node: &'n Node, known: &[&str], reader: &mut ValueReader) -> Option<Self> {
        let entries: &[YamlEntry] = match &node.value {
            _ if node.is_null() => &[],
            Value::Map(entries) => entries,
            Value::Faulty => return None,
            _ => {
                reader.expected(node, &format!("a mapping with keys such as {}", known[0]));
                return None;
            }
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            reader.unknown_key(entry, &node.place, known);
        }
        Some(Self { place: &node.place, entries })
    }

    /// Reads a key, with its default.
    pub(crate) fn read<F: Field>(&self, key: &str, default: F, reader: &mut ValueReader) -> F {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        default.read_key(entry.map(|entry| &entry.node), self.place, key, reader)
    }
}

/// Returns the row of a key without its notes.
pub(in crate::config) fn row_of<F: Field>(key: &'static str, doc: &'static str, default: &F) -> Row {
    Row {
        key,
        doc,
        schema: F::Value::schema,
        inner: F::Value::inner,
        presence: F::PRESENCE,
        default: default.json(),
        applies: None,
        absent: None,
        only: None,
        pages: Pages { form: F::Value::name, example: None },
    }
}

/// Returns the JSON schema of a section.
pub(in crate::config) fn schema<S: Section>(about: &str) -> Json {
    let (mut properties, mut needed) = (Map::new(), Vec::new());
    for row in S::rows() {
        let mut schema = (row.schema)();
        schema["description"] = row.summary().into();
        needed.extend((row.presence == Presence::Needed).then(|| Json::from(row.key)));
        if let Some(default) = row.default {
            schema["default"] = default;
        }
        properties.insert(row.key.into(), schema);
    }
    let mut schema = json!({
        "type": ["object", "null"],
        "description": about.trim(),
        "properties": properties,
        "additionalProperties": false,
    });
    if !needed.is_empty() {
        schema["type"] = "object".into(); // null is not valid
        schema["required"] = needed.into();
    }
    schema
}

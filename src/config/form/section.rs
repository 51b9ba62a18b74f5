//! Mappings whose keys are known.

use serde_json::{Map, Value as Json, json};

use super::located::Field;
use super::reader::Reader;
use crate::config::diagnostic::Place;
use crate::config::yaml::{Entry, Node, Value};

/// Declares a mapping as a structure: its keys, each with a form, a description, and the default if that is one value. The structure reads
/// itself and reports every fault. The descriptions also appear in the JSON schema.
macro_rules! section {
    ($(#[doc = $about:literal])+ $name:ident {
        $($(#[doc = $doc:literal])+ $key:ident: $field:ty $(= $default:literal)?;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Default)]
        pub(in crate::config) struct $name {
            $($(#[doc = $doc])+ pub $key: $field),+
        }

        impl $crate::config::form::reader::Form for $name {
            fn read(
                node: &$crate::config::yaml::Node,
                reader: &mut $crate::config::form::reader::Reader,
            ) -> Option<Self> {
                let keys = $crate::config::form::section::Keys::of(node, &[$(stringify!($key)),+], reader)?;
                Some(Self { $($key: keys.read(stringify!($key), reader)),+ })
            }

            fn schema() -> serde_json::Value {
                let mut schema = $crate::config::form::section::SectionSchema::new(concat!($($about),+));
                $(
                    let default: &[serde_json::Value] = &[$($default.into())?];
                    schema.key::<$field>(stringify!($key), concat!($($doc),+), default.first());
                )+
                schema.done()
            }
        }
    };
}
pub(in crate::config) use section;

/// The keys of one mapping, all of them known.
pub(in crate::config) struct Keys<'n> {
    place: &'n Place,
    entries: &'n [Entry],
}

impl<'n> Keys<'n> {
    /// Reports all unknown keys. A mapping without keys may be left empty.
    pub(crate) fn of(node: &'n Node, known: &[&str], reader: &mut Reader) -> Option<Self> {
        let entries: &[Entry] = match &node.value {
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

    pub(crate) fn read<F: Field>(&self, key: &str, reader: &mut Reader) -> F {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        F::read_key(entry.map(|entry| &entry.node), self.place, key, reader)
    }
}

pub(in crate::config) struct SectionSchema {
    about: String,
    properties: Map<String, Json>,
    needed: Vec<Json>,
}

impl SectionSchema {
    pub(crate) fn new(about: &str) -> Self {
        Self { about: about.trim().into(), properties: Map::new(), needed: Vec::new() }
    }

    pub(crate) fn key<F: Field>(&mut self, key: &str, about: &str, default: Option<&Json>) {
        let mut schema = F::value_schema();
        schema["description"] = about.trim().into();
        if let Some(default) = default {
            schema["default"] = default.clone();
        }
        self.properties.insert(key.into(), schema);
        if F::IS_NEEDED {
            self.needed.push(key.into());
        }
    }

    pub(crate) fn done(self) -> Json {
        let mut schema = json!({
            "type": ["object", "null"],
            "description": self.about,
            "properties": self.properties,
            "additionalProperties": false,
        });
        if !self.needed.is_empty() {
            schema["type"] = "object".into(); // null is not valid
            schema["required"] = self.needed.into();
        }
        schema
    }
}

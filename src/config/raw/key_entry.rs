//! Entries of `views.key`: fields by their names, and fields of which a part counts.

use serde_json::{Value as Json, json};
use weir_core::xds::KeyField;

use crate::config::form::{Form, Located, MetadataPath, Name, Needed, NonEmpty, Positive, ValueReader, section};
use crate::config::yaml::{Node, Value};

/// One entry of `views.key`.
#[derive(Debug)]
pub(in crate::config) enum KeyEntry {
    /// A field by its name.
    Field(KeyField),
    /// A field of which a part counts.
    Parts(Box<KeyParts>),
}

section! {
    /// A field of which a part counts; exactly one key.
    KeyParts {
        /// All of the metadata but some values.
        metadata: Option<Located<ExceptEntry>>;
        /// One part of the id.
        id: Option<Located<IdPartEntry>>;
    }
}

section! {
    /// Metadata but some values.
    ExceptEntry {
        /// The paths of the values that do not count, such as NAME or LABELS.hash.
        except: Needed<NonEmpty<MetadataPath>>;
    }
}

section! {
    /// One part of an id.
    IdPartEntry {
        /// Which one: 1 is the first.
        part: Needed<Positive>;
        /// What separates the parts.
        of: Needed<Name>;
    }
}

impl Form for KeyEntry {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        match &node.value {
            Value::Map(_) => KeyParts::read(node, reader).map(Box::new).map(Self::Parts),
            _ => KeyField::read(node, reader).map(Self::Field),
        }
    }

    fn schema() -> Json {
        let mut parts = KeyParts::schema();
        parts["type"] = "object".into(); // null is not valid
        json!({ "anyOf": [KeyField::schema(), parts] })
    }

    fn name() -> String {
        KeyField::name()
    }
}

//! Parses a text to a tree, with the parser of resource files. The tree has the positions of keys and values, and all keys of a mapping, so
//! that duplicates are reported like other faults.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options, Spanned};

use super::error::words;
use super::node::{Node, Scalar, Value, YamlEntry};
use crate::config::diagnostic::{Diagnostics, FilePosition};

/// Reads the only document of a text; an empty document is null.
pub(in crate::config) fn read(text: &str, found: &mut Diagnostics) -> Option<Node> {
    let drafts = match serde_saphyr::from_multiple_with_options::<Spanned<Draft>>(text, options()) {
        Ok(drafts) => drafts,
        Err(error) => {
            let place = error.location().map_or_else(FilePosition::default, |location| place(location, String::new()));
            found.fault(&place, words(error.without_snippet()));
            return None;
        }
    };
    if let Some(second) = drafts.get(1) {
        let count = drafts.len();
        found.fault(&place(second.referenced, String::new()), format!("expected one YAML document, found {count}"));
        return None;
    }
    let empty =
        || Node { place: FilePosition { line: 1, column: 1, path: String::new() }, value: Value::Scalar(Scalar::Null) };
    Some(drafts.into_iter().next().map_or_else(empty, |draft| node(draft, String::new(), found)))
}

fn options() -> Options {
    let mut options = Options::default();
    options.strict_booleans = true; // otherwise a word such as `off` would be false
    options.with_snippet = false;
    options.duplicate_keys = DuplicateKeyPolicy::LastWins; // yields both entries
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    options
}

fn node(draft: Spanned<Draft>, path: String, found: &mut Diagnostics) -> Node {
    let place = place(draft.referenced, path);
    let value = match draft.value {
        Draft::Scalar(scalar) => Value::Scalar(scalar),
        Draft::List(items) => {
            let items = items.into_iter().enumerate();
            Value::List(items.map(|(index, item)| node(item, place.item(index), found)).collect())
        }
        Draft::Map(entries) => Value::Map(entries_of(entries, &place, found)),
    };
    Node { place, value }
}

/// Returns the entries of a mapping. The first of duplicate keys counts.
fn entries_of(
    drafts: Vec<(Spanned<String>, Spanned<Draft>)>,
    map: &FilePosition,
    found: &mut Diagnostics,
) -> Vec<YamlEntry> {
    let mut entries: Vec<YamlEntry> = Vec::with_capacity(drafts.len());
    for (key, value) in drafts {
        let path = map.key(&key.value);
        let place = place(key.referenced, path.clone());
        if let Some(first) = entries.iter().find(|entry| entry.key == key.value) {
            let quoted = if map.may_quote(&key.value) { format!(" {:?}", key.value) } else { String::new() };
            found.fault(&place, format!("duplicate key{quoted}: already in line {}", first.place.line));
            continue;
        }
        entries.push(YamlEntry { key: key.value, place, node: node(value, path, found) });
    }
    entries
}

fn place(location: Location, path: String) -> FilePosition {
    FilePosition { line: location.line(), column: location.column(), path }
}

enum Draft {
    Scalar(Scalar),
    List(Vec<Spanned<Draft>>),
    Map(Vec<(Spanned<String>, Spanned<Draft>)>),
}

impl<'de> Deserialize<'de> for Draft {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DraftVisitor)
    }
}

struct DraftVisitor;

macro_rules! scalars {
    ($($visit:ident: $of:ty => $scalar:expr;)*) => {
        $(fn $visit<E>(self, value: $of) -> Result<Draft, E> {
            let scalar: fn($of) -> Scalar = $scalar;
            Ok(Draft::Scalar(scalar(value)))
        })*
    };
}

impl<'de> Visitor<'de> for DraftVisitor {
    type Value = Draft;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    scalars! {
        visit_bool: bool => Scalar::Flag;
        visit_i64: i64 => |number| Scalar::Integer(number.into());
        visit_u64: u64 => |number| Scalar::Integer(number.into());
        visit_i128: i128 => Scalar::Integer;
        visit_u128: u128 => |number| Scalar::Float(number as f64);
        visit_f64: f64 => Scalar::Float;
        visit_str: &str => |text| Scalar::Text(text.into());
        visit_bytes: &[u8] => |bytes| Scalar::Text(String::from_utf8_lossy(bytes).into());
    }

    fn visit_unit<E>(self) -> Result<Draft, E> {
        Ok(Draft::Scalar(Scalar::Null))
    }

    fn visit_none<E>(self) -> Result<Draft, E> {
        Ok(Draft::Scalar(Scalar::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Draft, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Draft, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Draft::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Draft, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Draft::Map(map))
    }
}

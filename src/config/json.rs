//! Reads JSON field by field: a missing field or one of the wrong type is a fault that names the field (BOOT-24). Unused fields are ignored
//! (BOOT-2).

use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::diagnostic::{Diagnostic, Diagnostics, FilePosition};
use super::files::FileFault;
use super::json_tree;
use super::yaml::{Node, Scalar, Value, YamlEntry};

pub(super) struct JsonReader {
    found: Diagnostics,
    /// Whether to check files that the relay opens only when it needs them.
    opens_files: bool,
}

/// An object and its place.
pub(super) struct Object<'a> {
    fields: &'a [YamlEntry],
    place: &'a FilePosition,
}

impl<'a> Object<'a> {
    /// Returns the place of a field, or of the object if the field is missing.
    pub(crate) fn place(&self, key: &str) -> &'a FilePosition {
        self.field(key).map_or(self.place, |node| &node.place)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.field(key).is_some()
    }

    fn field(&self, key: &str) -> Option<&'a Node> {
        self.fields.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

impl JsonReader {
    pub(crate) fn of(path: &Path, opens_files: bool) -> Self {
        Self { found: Diagnostics::of(path), opens_files }
    }

    /// Parses a text. serde_json decides whether it is valid.
    pub(crate) fn parse(&mut self, text: &str) -> Option<Node> {
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Some(json_tree::read(text, &mut self.found)),
            Err(error) => {
                let place =
                    FilePosition { line: error.line() as u64, column: error.column() as u64, path: String::new() };
                self.found.fault(&place, syntax_words(&error));
                None
            }
        }
    }

    pub(crate) fn root<'a>(&mut self, node: &'a Node) -> Option<Object<'a>> {
        self.as_object(node)
    }

    pub(crate) fn text<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<&'a str> {
        self.typed(of, key, "a string", |value| match value {
            Value::Scalar(Scalar::Text(text)) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(crate) fn needed_text<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<&'a str> {
        let text = self.text(of, key);
        if !of.has(key) {
            self.fault(of.place, format!("missing field {key:?}"));
        }
        if text == Some("") {
            self.fault(of.place(key), "empty value: expected text");
        }
        text
    }

    /// Returns false if the field is missing.
    pub(crate) fn flag(&mut self, of: &Object, key: &str) -> bool {
        let flag = self.typed(of, key, "true or false", |value| match value {
            Value::Scalar(Scalar::Flag(flag)) => Some(*flag),
            _ => None,
        });
        flag.unwrap_or(false)
    }

    pub(crate) fn object<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<Object<'a>> {
        of.field(key).and_then(|node| self.as_object(node))
    }

    pub(crate) fn texts<'a>(&mut self, of: &Object<'a>, key: &str) -> Vec<&'a str> {
        let texts = self.list(of, key).iter().filter_map(|node| match &node.value {
            Value::Scalar(Scalar::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn objects<'a>(&mut self, of: &Object<'a>, key: &str) -> Vec<Object<'a>> {
        self.list(of, key).iter().filter_map(|node| self.as_object(node)).collect()
    }

    pub(crate) fn needed_objects<'a>(&mut self, of: &Object<'a>, key: &str, expected: &str) -> Vec<Object<'a>> {
        let before = self.faults().len();
        let objects = self.objects(of, key);
        if objects.is_empty() && self.faults().len() == before {
            self.fault(of.place(key), format!("missing item in {key:?}: expected {expected}"));
        }
        objects
    }

    /// Returns the objects of a map, by their names.
    pub(crate) fn members<'a>(&mut self, of: &Object<'a>, key: &str) -> Vec<(&'a str, Object<'a>)> {
        let Some(map) = self.object(of, key) else { return Vec::new() };
        map.fields.iter().filter_map(|entry| Some((entry.key.as_str(), self.as_object(&entry.node)?))).collect()
    }

    pub(crate) fn fault(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.found.fault(place, reason);
    }

    pub(crate) fn warn(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.found.warn(place, reason);
    }

    pub(crate) fn faults(&self) -> &[Diagnostic] {
        &self.found.faults
    }

    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        self.found
    }

    /// Notes a file that a field names, and checks it if files are to be checked.
    pub(crate) fn look(
        &mut self,
        of: &Object,
        key: &str,
        file: &Option<PathBuf>,
        look: impl FnOnce(&Path) -> Result<(), FileFault>,
    ) {
        file.iter().for_each(|file| self.found.name(file));
        if let Some(file) = file.as_ref().filter(|_| self.opens_files)
            && let Err(fault) = look(file)
        {
            self.found.unusable(of.place(key), fault.to_string());
        }
    }

    fn list<'a>(&mut self, of: &Object<'a>, key: &str) -> &'a [Node] {
        let list = self.typed(of, key, "a list", |value| match value {
            Value::List(items) => Some(items.as_slice()),
            _ => None,
        });
        list.unwrap_or_default()
    }

    fn typed<'a, T>(
        &mut self,
        of: &Object<'a>,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let node = of.field(key)?;
        let read = read(&node.value);
        if read.is_none() {
            self.unexpected(node, expected);
        }
        read
    }

    fn as_object<'a>(&mut self, node: &'a Node) -> Option<Object<'a>> {
        if let Value::Map(fields) = &node.value {
            return Some(Object { fields, place: &node.place });
        }
        self.unexpected(node, "an object");
        None
    }

    fn unexpected(&mut self, node: &Node, expected: &str) {
        let shown = match &node.value {
            Value::Map(_) => "an object".into(), // the JSON word
            _ => node.shown(),
        };
        self.fault(&node.place, format!("invalid value {shown}: expected {expected}"));
    }
}

fn syntax_words(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        Category::Eof => "invalid JSON: the file ends before all quotes and brackets are closed",
        _ => "invalid JSON: expected a value, a comma or a closing bracket",
    }
}

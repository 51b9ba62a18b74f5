//! JSON, field by field: what has another type, or is missing, becomes a fault that names the field (BOOT-24). Fields that nobody
//! asks for are not looked at (BOOT-2).

use std::path::Path;

use serde_json::{Map, Value};

use super::Diagnostic;

pub(super) struct JsonReader<'f> {
    pub path: &'f Path,
    pub faults: Vec<Diagnostic>,
}

/// An object, and the keys that lead to it.
pub(super) struct Object<'a> {
    fields: &'a Map<String, Value>,
    at: String,
}

impl<'a> Object<'a> {
    pub fn place(&self, key: &str) -> String {
        if self.at.is_empty() { key.into() } else { format!("{}.{key}", self.at) }
    }

    pub fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }
}

impl JsonReader<'_> {
    pub fn root<'a>(&mut self, value: &'a Value) -> Option<Object<'a>> {
        self.as_object(value, String::new())
    }

    pub fn text<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<&'a str> {
        self.typed(of, key, "a string", Value::as_str)
    }

    pub fn needed_text<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<&'a str> {
        let text = self.text(of, key);
        if !of.has(key) {
            self.fault(&of.place(key), "it is missing");
        }
        if text == Some("") {
            self.fault(&of.place(key), "it is empty");
        }
        text
    }

    /// A field that is not there is false.
    pub fn flag(&mut self, of: &Object, key: &str) -> bool {
        self.typed(of, key, "true or false", Value::as_bool).unwrap_or(false)
    }

    pub fn object<'a>(&mut self, of: &Object<'a>, key: &str) -> Option<Object<'a>> {
        of.fields.get(key).and_then(|value| self.as_object(value, of.place(key)))
    }

    pub fn list<'a>(&mut self, of: &Object<'a>, key: &str) -> &'a [Value] {
        self.typed(of, key, "a list", Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub fn objects<'a>(&mut self, of: &Object<'a>, key: &str) -> Vec<Object<'a>> {
        let list = self.list(of, key).iter().enumerate();
        list.filter_map(|(number, value)| self.as_object(value, format!("{}[{number}]", of.place(key)))).collect()
    }

    pub fn needed_objects<'a>(&mut self, of: &Object<'a>, key: &str, reason: &str) -> Vec<Object<'a>> {
        let before = self.faults.len();
        let objects = self.objects(of, key);
        if objects.is_empty() && self.faults.len() == before {
            self.fault(&of.place(key), reason);
        }
        objects
    }

    /// The objects of a map, by their names.
    pub fn members<'a>(&mut self, of: &Object<'a>, key: &str) -> Vec<(&'a str, Object<'a>)> {
        let Some(map) = self.object(of, key) else { return Vec::new() };
        let members = map.fields.iter().map(|(name, value)| (name.as_str(), value, format!("{}[{name:?}]", map.at)));
        members.filter_map(|(name, value, at)| Some((name, self.as_object(value, at)?))).collect()
    }

    pub fn fault(&mut self, at: &str, reason: &str) {
        self.faults.push(Diagnostic { path: self.path.into(), line: None, at: at.into(), reason: reason.into() });
    }

    fn typed<'a, T>(
        &mut self,
        of: &Object<'a>,
        key: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = of.fields.get(key)?;
        let read = read(value);
        if read.is_none() {
            self.fault(&of.place(key), &format!("it is {} and has to be {wanted}", kind(value)));
        }
        read
    }

    fn as_object<'a>(&mut self, value: &'a Value, at: String) -> Option<Object<'a>> {
        if let Some(fields) = value.as_object() {
            return Some(Object { fields, at });
        }
        let place = if at.is_empty() { "the file" } else { &at };
        self.fault(place, &format!("it is {} and has to be an object", kind(value)));
        None
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

//! The configuration as operators are shown it: the file, with the defaults where the file sets nothing, and without secrets.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Number, Value as Json};

use super::files::hash_of;
use super::raw;
use super::schema::schema;
use super::secrets::{REDACTED, without_secrets};
use super::yaml::{Node, Scalar, Value};
use crate::config_status::ConfigFacts;

/// A configuration for operators.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShownConfig {
    pub(crate) file: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub(crate) sha256: String,
    pub(crate) config: Json,
    /// SHA-256 of the bootstrap, if the servers come from one.
    pub(crate) bootstrap: Option<String>,
    /// The values that the command line sets in place of the file's.
    pub(crate) command_line: Map<String, Json>,
}

impl ShownConfig {
    pub(super) fn empty_of(file: &Path, text: &str) -> Self {
        Self { file: file.into(), sha256: hash_of(text.as_bytes()), ..Self::default() }
    }

    /// Uses the tree before variables are substituted: a value from the environment is shown by the variable's name.
    pub(super) fn with_tree(self, tree: &Node) -> Self {
        let mut config = json_of(tree, &without_secrets);
        hide(&mut config, schema());
        fill(&mut config, schema());
        Self { config, ..self }
    }

    /// Returns the facts about the file with which the relay starts.
    pub(crate) fn facts(self, read: SystemTime) -> ConfigFacts {
        let Self { file, sha256, config, bootstrap, command_line } = self;
        let (pending, error, reloads, failures) = (Vec::new(), None, 0, 0);
        let command_line = command_line.into();
        ConfigFacts {
            file,
            sha256,
            config: config.into(),
            bootstrap,
            command_line,
            read,
            pending,
            error,
            reloads,
            failures,
        }
    }
}

/// Replaces the values that not even operators may see. Where a key has a value of the wrong form, that value may be the secret.
pub(super) fn hide(value: &mut Json, schema: &Json) {
    if schema["writeOnly"] == true && !value.is_null() {
        *value = REDACTED.into();
    }
    for (key, value) in value.as_object_mut().into_iter().flatten() {
        let schema = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
        hide(value, schema);
    }
    value.as_array_mut().into_iter().flatten().for_each(|item| hide(item, &schema["items"]));
}

/// Returns a tree as JSON, with its texts mapped by `text_of`.
pub(super) fn json_of(node: &Node, text_of: &dyn Fn(&str) -> String) -> Json {
    match &node.value {
        Value::Scalar(Scalar::Null) | Value::Faulty => Json::Null,
        Value::Scalar(Scalar::Flag(flag)) => Json::Bool(*flag),
        Value::Scalar(Scalar::Integer(number)) => i64::try_from(*number).map_or(Json::Null, Json::from),
        Value::Scalar(Scalar::Float(number)) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Scalar(Scalar::Text(text)) => Json::String(text_of(text)),
        Value::List(items) => items.iter().map(|item| json_of(item, text_of)).collect(),
        Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), json_of(&entry.node, text_of))).collect(),
    }
}

/// Inserts the defaults of all sections.
pub(super) fn fill(value: &mut Json, schema: &Json) {
    let is_polled = value.get("rest").is_some();
    let has_no_effect = |key: &str| match raw::KINDS.iter().find(|(of, _)| *of == key) {
        Some((_, Some(kinds))) => is_polled && !kinds.contains("rest") || !is_polled && *kinds == "rest",
        _ => false,
    };
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        match value.get_mut(key) {
            Some(given) if schema["items"].is_object() => {
                given.as_array_mut().into_iter().flatten().for_each(|item| fill(item, &schema["items"]));
            }
            Some(given) if given.is_object() => fill(given, schema),
            Some(Json::Null) | None => {
                let default = match schema.get("default") {
                    _ if has_no_effect(key) => None,
                    Some(default) => Some(default.clone()),
                    None => section(schema),
                };
                if let (Some(default), Some(map)) = (default, value.as_object_mut()) {
                    map.insert(key.clone(), default);
                }
            }
            Some(_) => {}
        }
    }
}

/// Returns the defaults of a section that the file leaves out, if they apply without it.
fn section(schema: &Json) -> Option<Json> {
    if !schema["properties"].is_object() || schema.get("required").is_some() {
        return None;
    }
    let mut inner = Json::Object(Map::new());
    fill(&mut inner, schema);
    inner.as_object().is_some_and(|inner| !inner.is_empty()).then_some(inner)
}

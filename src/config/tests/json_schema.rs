//! Validates values against the part of JSON schema that `weir schema` uses.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

/// Whether a value is valid by a schema. A keyword that is not known here fails the test.
pub(super) fn accepts(schema: &Value, value: &Value) -> bool {
    let rules = schema.as_object().expect("a schema is an object");
    rules.iter().all(|(word, rule)| match word.as_str() {
        "type" => {
            types(rule).contains(&type_of(value)) || type_of(value) == "integer" && types(rule).contains(&"number")
        }
        "enum" => rule.as_array().unwrap().contains(value),
        "anyOf" => rule.as_array().unwrap().iter().any(|schema| accepts(schema, value)),
        "properties" => members(value).all(|(key, value)| rule.get(key).is_none_or(|schema| accepts(schema, value))),
        "additionalProperties" => members(value).all(|(key, value)| {
            let is_known = schema["properties"].get(key).is_some();
            is_known || if rule.is_object() { accepts(rule, value) } else { rule.as_bool().unwrap() }
        }),
        "required" => {
            !value.is_object() || rule.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some())
        }
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(rule, item))),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| is_match(rule.as_str().unwrap(), text)),
        "$schema" | "title" | "description" | "default" | "writeOnly" => true,
        word => panic!("{word} is not known"),
    })
}

fn is_match(pattern: &str, text: &str) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        let regex = known.entry(pattern.into()).or_insert_with(|| Regex::new(pattern).unwrap());
        regex.is_match(text)
    })
}

fn types(rule: &Value) -> Vec<&str> {
    match rule {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        rule => vec![rule.as_str().unwrap()],
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

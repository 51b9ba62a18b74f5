//! Messages to proto3 JSON.

use std::collections::HashSet;

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};
use serde_json::{Map, Number, Value as Json, json};

use super::encode::{key_text, sorted};
use super::error::{Outcome, Problem, Step, refuse};
use super::from_json::{FromJson, part};
use super::{ANY, MAX_DEPTH, Strictness, UnknownAny, body_of, decode, is_special, too_deep, type_name, words};

/// The text in place of a sensitive value.
pub const REDACTED: &str = "[redacted]";
/// The key of the object in place of an Any without a descriptor, in dumps for people. Such an object cannot be parsed as a message.
pub const UNDECODED: &str = "[no descriptor]";

pub(super) struct ToJson<'t> {
    pub(crate) pool: &'t DescriptorPool,
    pub(crate) unknown: UnknownAny,
    /// Full names of the fields that are redacted.
    pub(crate) redact: Option<&'t HashSet<String>>,
    /// Whether fields have the names of their proto files.
    pub(crate) original_names: bool,
}

impl ToJson<'_> {
    pub(crate) fn message(&self, message: &DynamicMessage, depth: usize) -> Outcome<Json> {
        if depth > MAX_DEPTH {
            return too_deep();
        }
        match message.descriptor().full_name() {
            ANY => self.any(message, depth),
            name if is_special(name) => self.special(name, message, depth),
            _ => self.plain(message, depth).map(Json::Object),
        }
    }

    /// Redacts the content of a TypedStruct, which has a type too. Without a descriptor of that type, all of it may be sensitive. Returns `None`
    /// if there is no content.
    fn typed_struct(&self, fields: &Map<String, Json>, depth: usize) -> Option<Json> {
        let value = fields.get("value")?;
        let type_url = fields.get("typeUrl").and_then(Json::as_str).unwrap_or_default();
        let Some(descriptor) = self.pool.get_message_by_name(type_name(type_url)) else {
            return Some(Json::from(REDACTED));
        };
        let reader = FromJson { pool: self.pool, strictness: Strictness::Lenient };
        let shown = reader.message(&descriptor, value, depth).and_then(|held| self.message(&held, depth));
        Some(shown.unwrap_or_else(|_| Json::from(REDACTED)))
    }

    fn plain(&self, message: &DynamicMessage, depth: usize) -> Outcome<Map<String, Json>> {
        if message.extensions().next().is_some() {
            return refuse("it has proto2 extensions, and these are not read here");
        }
        let mut fields = Map::new();
        for (field, value) in message.fields() {
            let json = if self.redact.is_some_and(|names| names.contains(field.full_name())) {
                Json::String(REDACTED.into())
            } else {
                self.field(&field, value, depth)
                    .map_err(|problem| problem.under(Step::Field(field.json_name().into())))?
            };
            let name = if self.original_names { field.name() } else { field.json_name() };
            fields.insert(name.to_owned(), json);
        }
        let is_typed_struct =
            matches!(message.descriptor().full_name(), "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct");
        if self.redact.is_some()
            && is_typed_struct
            && let Some(value) = self.typed_struct(&fields, depth + 1)
        {
            fields.insert("value".into(), value);
        }
        Ok(fields)
    }

    fn field(&self, field: &FieldDescriptor, value: &Value, depth: usize) -> Outcome<Json> {
        let kind = field.kind();
        match value {
            Value::List(values) => {
                let items = values.iter().enumerate().map(|(index, value)| {
                    self.single(&kind, value, depth).map_err(|problem| problem.under(Step::Index(index)))
                });
                items.collect::<Outcome<_>>().map(Json::Array)
            }
            Value::Map(values) => {
                let Some(entry) = kind.as_message().filter(|entry| entry.is_map_entry()) else {
                    return refuse("it is a map that has no entry type");
                };
                let value_kind = entry.map_entry_value_field().kind();
                let entries = sorted(values).into_iter().map(|(key, value)| {
                    let key = key_text(key);
                    match self.single(&value_kind, value, depth + 1) {
                        Ok(json) => Ok((key, json)),
                        Err(problem) => Err(problem.under(Step::Key(key))),
                    }
                });
                entries.collect::<Outcome<_>>().map(Json::Object)
            }
            _ => self.single(&kind, value, depth),
        }
    }

    pub(crate) fn single(&self, kind: &Kind, value: &Value, depth: usize) -> Outcome<Json> {
        Ok(match value {
            Value::Message(message) => self.message(message, depth + 1)?,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::I32(number) => Json::from(*number),
            Value::U32(number) => Json::from(*number),
            // JSON numbers are exact only up to 53 bits.
            Value::I64(number) => Json::String(number.to_string()),
            Value::U64(number) => Json::String(number.to_string()),
            Value::F32(number) => float(f64::from(*number), || number.to_string().parse().ok()),
            Value::F64(number) => float(*number, || Some(*number)),
            Value::String(text) => Json::String(text.clone()),
            Value::Bytes(bytes) => Json::String(words::base64_of(bytes)),
            Value::EnumNumber(number) => match kind.as_enum() {
                Some(of) if of.full_name() == "google.protobuf.NullValue" => Json::Null,
                Some(of) => of.get_value(*number).map_or_else(|| Json::from(*number), |value| Json::from(value.name())),
                None => Json::from(*number),
            },
            Value::List(_) | Value::Map(_) => return refuse("its value does not fit its descriptor"),
        })
    }

    fn any(&self, any: &DynamicMessage, depth: usize) -> Outcome<Json> {
        let Some((type_url, body)) = body_of(any) else {
            return match any.fields().next() {
                None => Ok(Json::Object(Map::new())),
                Some(_) => refuse("it is an Any that does not say of what type it is"),
            };
        };
        let Some(descriptor) = self.pool.get_message_by_name(type_name(type_url)) else {
            return match self.unknown {
                UnknownAny::Refuse => Err(Problem::unknown_type(type_name(type_url))),
                UnknownAny::Wrap if self.redact.is_some() => {
                    Ok(json!({ UNDECODED: { "type_url": type_url, "size": body.len(), "bytes": REDACTED } }))
                }
                UnknownAny::Wrap => Ok(
                    json!({ UNDECODED: { "type_url": type_url, "size": body.len(), "bytes": words::base64_of(body) } }),
                ),
            };
        };
        let special = descriptor.full_name() == ANY || is_special(descriptor.full_name());
        let body = decode(descriptor, body)?;
        let mut fields = if special {
            let value = self.message(&body, depth + 1).map_err(|problem| problem.under(Step::Field("value".into())))?;
            Map::from_iter([("value".to_owned(), value)])
        } else if depth + 1 > MAX_DEPTH {
            return too_deep();
        } else {
            self.plain(&body, depth + 1)?
        };
        fields.insert("@type".into(), Json::String(type_url.to_owned()));
        Ok(Json::Object(fields))
    }

    fn special(&self, name: &str, message: &DynamicMessage, depth: usize) -> Outcome<Json> {
        let descriptor = message.descriptor();
        let get = |number: u32| Ok::<_, Problem>(message.get_field(&part(&descriptor, number)?).into_owned());
        match name {
            "google.protobuf.Duration" | "google.protobuf.Timestamp" => {
                let (Value::I64(seconds), Value::I32(nanos)) = (get(1)?, get(2)?) else {
                    return refuse(format!("{name} is not the usual one"));
                };
                let text = match name {
                    "google.protobuf.Duration" => words::duration_text(seconds, nanos),
                    _ => words::timestamp_text(seconds, nanos),
                };
                let out_of_range =
                    || Problem::new(format!("{seconds} s and {nanos} ns are out of range, or of two signs"));
                text.map(Json::String).ok_or_else(out_of_range)
            }
            "google.protobuf.FieldMask" => {
                let Value::List(paths) = get(1)? else { return refuse(format!("{name} is not the usual one")) };
                let paths: Option<Vec<String>> = paths.iter().map(|path| path.as_str().map(str::to_owned)).collect();
                let text = paths.as_deref().and_then(words::field_mask_text);
                text.map(Json::String).ok_or_else(|| Problem::new("it has a path that JSON cannot say"))
            }
            "google.protobuf.Value" => match message.fields().next() {
                None => Ok(Json::Null),
                Some((_, Value::F64(number))) if !number.is_finite() && self.unknown == UnknownAny::Refuse => {
                    refuse(format!("JSON has no number {number}"))
                }
                Some((field, value)) => self.single(&field.kind(), value, depth),
            },
            // Struct, ListValue and the wrappers have the form of their only field, even if it has its default.
            _ => {
                let field = part(&descriptor, 1)?;
                self.field(&field, &message.get_field(&field), depth)
            }
        }
    }
}

/// Formats whole numbers without a fraction, as other writers do. `shortest` returns the shortest decimal of the same number.
fn float(number: f64, shortest: impl FnOnce() -> Option<f64>) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_nan() {
        return Json::from("NaN");
    }
    if number.is_infinite() {
        return Json::from(if number > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if number.fract() == 0.0 && number.abs() <= EXACT && (number != 0.0 || number.is_sign_positive()) {
        return Json::from(number as i64);
    }
    shortest().and_then(Number::from_f64).map_or_else(|| Json::from(number), Json::Number)
}

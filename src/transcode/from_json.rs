//! proto3 JSON to messages. Both spellings of a field are accepted, and every error has the path of its field.

use std::collections::HashMap;

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    Value,
};
use serde_json::{Map, Value as Json};

use super::encode::Encoder;
use super::error::{Outcome, Problem, Step, refuse};
use super::{ANY, MAX_DEPTH, Strictness, is_special, too_deep, type_name, words};

pub(super) struct FromJson<'t> {
    pub(crate) pool: &'t DescriptorPool,
    pub(crate) strictness: Strictness,
}

impl FromJson<'_> {
    pub(crate) fn message(&self, descriptor: &MessageDescriptor, json: &Json, depth: usize) -> Outcome<DynamicMessage> {
        if depth > MAX_DEPTH {
            return too_deep();
        }
        match descriptor.full_name() {
            ANY => self.any(descriptor, json, depth),
            name if is_special(name) => self.special(descriptor, json, depth),
            _ => self.plain(descriptor, object(json)?, false, depth),
        }
    }

    fn plain(
        &self,
        descriptor: &MessageDescriptor,
        fields: &Map<String, Json>,
        in_any: bool,
        depth: usize,
    ) -> Outcome<DynamicMessage> {
        let mut message = DynamicMessage::new(descriptor.clone());
        for (key, json) in fields {
            if in_any && (key == "@type" || (key == "value" && descriptor.full_name() == "google.protobuf.Empty")) {
                continue;
            }
            self.member(&mut message, fields, key, json, depth)
                .map_err(|problem| problem.under(Step::Field(key.clone())))?;
        }
        Ok(message)
    }

    fn member(
        &self,
        message: &mut DynamicMessage,
        fields: &Map<String, Json>,
        key: &str,
        json: &Json,
        depth: usize,
    ) -> Outcome<()> {
        let descriptor = message.descriptor();
        let Some(field) = descriptor.get_field_by_json_name(key).or_else(|| descriptor.get_field_by_name(key)) else {
            return match self.strictness {
                Strictness::Lenient => Ok(()),
                Strictness::Strict => refuse(format!("{} has no such field", descriptor.full_name())),
            };
        };
        if key != field.name() && fields.contains_key(field.name()) {
            return refuse(format!("it is there a second time, as {}", field.name()));
        }
        if json.is_null() && !takes_null(&field) {
            return Ok(());
        }
        let Some(value) = self.field(&field, json, depth)? else { return Ok(()) };
        if let Some(oneof) = field.containing_oneof()
            && let Some(other) = oneof.fields().find(|other| message.has_field(other))
        {
            return refuse(format!("only one of it and {} may be there", other.json_name()));
        }
        set(message, &field, value)
    }

    /// Reads a field; `None` if the name of an enum value is unknown and unknown names are ignored.
    fn field(&self, field: &FieldDescriptor, json: &Json, depth: usize) -> Outcome<Option<Value>> {
        let kind = field.kind();
        if field.is_map() {
            self.map(&kind, json, depth).map(Some)
        } else if field.is_list() {
            let Json::Array(items) = json else { return wrong(json, "a list") };
            let mut values = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let value = self.single(&kind, item, depth).map_err(|problem| problem.under(Step::Index(index)))?;
                values.extend(value);
            }
            Ok(Some(Value::List(values)))
        } else {
            self.single(&kind, json, depth)
        }
    }

    fn map(&self, kind: &Kind, json: &Json, depth: usize) -> Outcome<Value> {
        let Some(entry) = kind.as_message().filter(|entry| entry.is_map_entry()) else {
            return refuse("it is a map that has no entry type");
        };
        let (key_kind, value_kind) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        let mut values = HashMap::new();
        for (key, json) in object(json)? {
            let under = |problem: Problem| problem.under(Step::Key(key.clone()));
            let map_key = map_key(&key_kind, key).map_err(under)?;
            if let Some(value) = self.single(&value_kind, json, depth + 1).map_err(under)?
                && values.insert(map_key, value).is_some()
            {
                return refuse("this key is there twice").map_err(under);
            }
        }
        Ok(Value::Map(values))
    }

    fn single(&self, kind: &Kind, json: &Json, depth: usize) -> Outcome<Option<Value>> {
        Ok(Some(match kind {
            Kind::Message(descriptor) => Value::Message(self.message(descriptor, json, depth + 1)?),
            Kind::Enum(descriptor) => return self.enumerated(descriptor, json),
            Kind::Bool => match json {
                Json::Bool(flag) => Value::Bool(*flag),
                _ => return wrong(json, "true or false"),
            },
            Kind::String => Value::String(text(json)?.to_owned()),
            Kind::Bytes => match words::bytes_of(text(json)?) {
                Some(bytes) => Value::Bytes(bytes.into()),
                None => return refuse("it is no base64"),
            },
            Kind::Double => Value::F64(float(json)?),
            Kind::Float => {
                let double = float(json)?;
                let single = double as f32;
                if single.is_infinite() && double.is_finite() {
                    return refuse("it is too large for a float");
                }
                Value::F32(single)
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(integer(json)?),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(integer(json)?),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(integer(json)?),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(integer(json)?),
        }))
    }

    fn enumerated(&self, descriptor: &EnumDescriptor, json: &Json) -> Outcome<Option<Value>> {
        match json {
            Json::Null if descriptor.full_name() == "google.protobuf.NullValue" => Ok(Some(Value::EnumNumber(0))),
            Json::String(name) => match (descriptor.get_value_by_name(name), self.strictness) {
                (Some(value), _) => Ok(Some(Value::EnumNumber(value.number()))),
                (None, Strictness::Lenient) => Ok(None),
                (None, Strictness::Strict) => refuse(format!("{name:?} is no value of {}", descriptor.full_name())),
            },
            Json::Number(_) => Ok(Some(Value::EnumNumber(integer(json)?))),
            _ => wrong(json, "the name of a value"),
        }
    }

    fn any(&self, descriptor: &MessageDescriptor, json: &Json, depth: usize) -> Outcome<DynamicMessage> {
        let fields = object(json)?;
        let mut any = DynamicMessage::new(descriptor.clone());
        if fields.is_empty() {
            return Ok(any);
        }
        let Some(type_url) = fields.get("@type") else { return refuse("it has no @type, which says what it is") };
        let under = |problem: Problem| problem.under(Step::Field("@type".into()));
        let type_url = text(type_url).map_err(under)?;
        if !type_url.contains('/') {
            return refuse(format!("it has to be a type URL, such as type.googleapis.com/{type_url}")).map_err(under);
        }
        let Some(inner) = self.pool.get_message_by_name(type_name(type_url)) else {
            return Err(Problem::unknown_type(type_name(type_url)));
        };
        let body = if inner.full_name() == ANY || is_special(inner.full_name()) {
            self.wrapped(&inner, fields, depth)?
        } else {
            self.plain(&inner, fields, true, depth + 1)?
        };
        let body = Encoder { pool: self.pool, anys: false }.bytes(&body, depth + 1)?;
        set(&mut any, &part(descriptor, 1)?, Value::String(type_url.to_owned()))?;
        set(&mut any, &part(descriptor, 2)?, Value::Bytes(body.into()))?;
        Ok(any)
    }

    /// Reads a message with a special JSON form in an Any, which has it under `value`.
    fn wrapped(&self, inner: &MessageDescriptor, fields: &Map<String, Json>, depth: usize) -> Outcome<DynamicMessage> {
        let stranger = fields.keys().find(|key| *key != "@type" && *key != "value");
        if let (Some(stranger), Strictness::Strict) = (stranger, self.strictness) {
            let step = Step::Field(stranger.clone());
            return refuse(format!("an Any of {} has no field but value", inner.full_name()))
                .map_err(|it: Problem| it.under(step));
        }
        let Some(value) = fields.get("value") else {
            return refuse(format!("it has no value, which an Any of {} has", inner.full_name()));
        };
        self.message(inner, value, depth + 1).map_err(|problem| problem.under(Step::Field("value".into())))
    }

    fn special(&self, descriptor: &MessageDescriptor, json: &Json, depth: usize) -> Outcome<DynamicMessage> {
        let mut message = DynamicMessage::new(descriptor.clone());
        let mut put = |number: u32, value: Value| set(&mut message, &part(descriptor, number)?, value);
        match descriptor.full_name() {
            "google.protobuf.Duration" => {
                let Some((seconds, nanos)) = words::duration_of(text(json)?) else {
                    return refuse(format!("invalid duration {json}: expected seconds, such as \"1.5s\""));
                };
                put(1, Value::I64(seconds))?;
                put(2, Value::I32(nanos))?;
            }
            "google.protobuf.Timestamp" => {
                let Some((seconds, nanos)) = words::timestamp_of(text(json)?) else {
                    return refuse(format!("{json} is no time, such as \"2026-01-31T12:00:00Z\""));
                };
                put(1, Value::I64(seconds))?;
                put(2, Value::I32(nanos))?;
            }
            "google.protobuf.FieldMask" => {
                let Some(paths) = words::field_mask_of(text(json)?) else { return refuse("it is no list of fields") };
                put(1, Value::List(paths.into_iter().map(Value::String).collect()))?;
            }
            "google.protobuf.Value" => {
                let number = match json {
                    Json::Null => 1,
                    Json::Number(_) => 2,
                    Json::String(_) => 3,
                    Json::Bool(_) => 4,
                    Json::Object(_) => 5,
                    Json::Array(_) => 6,
                };
                if let Some(value) = self.field(&part(descriptor, number)?, json, depth)? {
                    put(number, value)?;
                }
            }
            // Struct, ListValue and the wrappers have the JSON form of their only field.
            _ => {
                if let Some(value) = self.field(&part(descriptor, 1)?, json, depth)? {
                    put(1, value)?;
                }
            }
        }
        Ok(message)
    }
}

/// Returns a field of one of protobuf's own messages.
pub(super) fn part(descriptor: &MessageDescriptor, number: u32) -> Outcome<FieldDescriptor> {
    descriptor.get_field(number).ok_or_else(|| Problem::new(format!("{} is not the usual one", descriptor.full_name())))
}

fn set(message: &mut DynamicMessage, field: &FieldDescriptor, value: Value) -> Outcome<()> {
    message
        .try_set_field(field, value)
        .map_err(|error| Problem::new(format!("it does not fit its descriptor: {error}")))
}

fn takes_null(field: &FieldDescriptor) -> bool {
    match field.kind() {
        _ if field.is_list() || field.is_map() => false,
        Kind::Message(descriptor) => descriptor.full_name() == "google.protobuf.Value",
        Kind::Enum(descriptor) => descriptor.full_name() == "google.protobuf.NullValue",
        _ => false,
    }
}

fn map_key(kind: &Kind, text: &str) -> Outcome<MapKey> {
    fn number<T: std::str::FromStr>(text: &str) -> Outcome<T> {
        text.parse().map_err(|_| Problem::new("this key has to be a whole number in range"))
    }
    Ok(match kind {
        Kind::String => MapKey::String(text.to_owned()),
        Kind::Bool => match text {
            "true" => MapKey::Bool(true),
            "false" => MapKey::Bool(false),
            _ => return refuse("this key has to be true or false"),
        },
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(number(text)?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(number(text)?),
        Kind::Uint32 | Kind::Fixed32 => MapKey::U32(number(text)?),
        Kind::Uint64 | Kind::Fixed64 => MapKey::U64(number(text)?),
        _ => return refuse("it is a map whose keys have no JSON form"),
    })
}

fn integer<T: TryFrom<i128>>(json: &Json) -> Outcome<T> {
    let number = match json {
        Json::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .or_else(|| words::whole(number.as_f64()?)),
        Json::String(text) => words::integer_of(text),
        _ => return wrong(json, "a whole number"),
    };
    let Some(number) = number else { return refuse(format!("{json} is no whole number")) };
    T::try_from(number).or_else(|_| refuse(format!("{json} is out of range")))
}

fn float(json: &Json) -> Outcome<f64> {
    let number = match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => words::float_of(text),
        _ => return wrong(json, "a number"),
    };
    number.map_or_else(|| refuse(format!("{json} is no number")), Ok)
}

fn text(json: &Json) -> Outcome<&str> {
    json.as_str().map_or_else(|| wrong(json, "a string"), Ok)
}

fn object(json: &Json) -> Outcome<&Map<String, Json>> {
    json.as_object().map_or_else(|| wrong(json, "an object"), Ok)
}

fn wrong<T>(json: &Json, wanted: &str) -> Outcome<T> {
    refuse(format!("it is {} and has to be {wanted}", kind_of(json)))
}

pub(super) fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

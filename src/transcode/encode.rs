//! Encodes messages to bytes that depend only on the content: fields by number, maps by key, then unknown fields in their order.

use prost_reflect::prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use super::error::{Outcome, Step, refuse};
use super::{ANY, MAX_DEPTH, body_of, decode, too_deep};

pub(super) struct Encoder<'t> {
    pub(crate) pool: &'t DescriptorPool,
    /// Whether the bodies of Anys are made canonical too. Bodies that this module has written already are canonical.
    pub(crate) anys: bool,
}

impl Encoder<'_> {
    pub(crate) fn bytes(&self, message: &DynamicMessage, depth: usize) -> Outcome<Vec<u8>> {
        if depth > MAX_DEPTH {
            return too_deep();
        }
        let mut out = Vec::new();
        if self.anys
            && message.descriptor().full_name() == ANY
            && let Some(()) = self.any(message, &mut out, depth)?
        {
            return Ok(out);
        }
        if message.extensions().next().is_some() {
            return refuse("it has proto2 extensions, and these are not read here");
        }
        for (field, value) in message.fields() {
            self.field(&field, value, &mut out, depth)
                .map_err(|problem| problem.under(Step::Field(field.name().into())))?;
        }
        message.unknown_fields().for_each(|field| field.encode(&mut out));
        Ok(out)
    }

    /// Writes an Any with a canonical body. Returns `None` and writes nothing if the body cannot be decoded.
    fn any(&self, message: &DynamicMessage, out: &mut Vec<u8>, depth: usize) -> Outcome<Option<()>> {
        let Some((type_url, body)) = body_of(message) else { return Ok(None) };
        let Some(descriptor) = self.pool.get_message_by_name(super::type_name(type_url)) else { return Ok(None) };
        let body = decode(descriptor, body)?;
        let body = self.bytes(&body, depth + 1)?;
        payload_field(1, type_url.as_bytes(), out);
        if !body.is_empty() {
            payload_field(2, &body, out);
        }
        message.unknown_fields().for_each(|field| field.encode(out));
        Ok(Some(()))
    }

    fn field(&self, field: &FieldDescriptor, value: &Value, out: &mut Vec<u8>, depth: usize) -> Outcome<()> {
        let kind = field.kind();
        match value {
            Value::List(values) if field.is_packed() => {
                let mut packed = Vec::new();
                values.iter().for_each(|value| _ = scalar(value, &kind, &mut packed));
                payload_field(field.number(), &packed, out);
            }
            Value::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    self.single(field, &kind, value, out, depth)
                        .map_err(|problem| problem.under(Step::Index(index)))?;
                }
            }
            Value::Map(values) => {
                let Some(entry) = kind.as_message().filter(|entry| entry.is_map_entry()) else {
                    return refuse("it is a map that has no entry type");
                };
                let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
                let value_kind = value_field.kind();
                for (key, value) in sorted(values) {
                    let mut bytes = Vec::new();
                    let plain = Value::from(key.clone());
                    if plain != key_field.default_value() {
                        self.single(&key_field, &key_field.kind(), &plain, &mut bytes, depth)?;
                    }
                    if matches!(value, Value::Message(_)) || *value != value_field.default_value() {
                        self.single(&value_field, &value_kind, value, &mut bytes, depth + 1)
                            .map_err(|problem| problem.under(Step::Key(key_text(key))))?;
                    }
                    payload_field(field.number(), &bytes, out);
                }
            }
            _ => self.single(field, &kind, value, out, depth)?,
        }
        Ok(())
    }

    fn single(
        &self,
        field: &FieldDescriptor,
        kind: &Kind,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Outcome<()> {
        match value {
            Value::Message(message) => {
                let bytes = self.bytes(message, depth + 1)?;
                if field.is_group() {
                    encode_key(field.number(), WireType::StartGroup, out);
                    out.extend_from_slice(&bytes);
                    encode_key(field.number(), WireType::EndGroup, out);
                } else {
                    payload_field(field.number(), &bytes, out);
                }
            }
            Value::String(text) => payload_field(field.number(), text.as_bytes(), out),
            Value::Bytes(bytes) => payload_field(field.number(), bytes, out),
            _ => {
                let mut bytes = Vec::new();
                let Some(wire_type) = scalar(value, kind, &mut bytes) else {
                    return refuse("its value does not fit its descriptor");
                };
                encode_key(field.number(), wire_type, out);
                out.extend_from_slice(&bytes);
            }
        }
        Ok(())
    }
}

fn payload_field(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn scalar(value: &Value, kind: &Kind, out: &mut Vec<u8>) -> Option<WireType> {
    let varint = match (value, kind) {
        (Value::Bool(flag), _) => u64::from(*flag),
        (Value::EnumNumber(number), _) | (Value::I32(number), Kind::Int32) => i64::from(*number) as u64,
        (Value::I32(number), Kind::Sint32) => u64::from(((number << 1) ^ (number >> 31)) as u32),
        (Value::I64(number), Kind::Int64) => *number as u64,
        (Value::I64(number), Kind::Sint64) => ((number << 1) ^ (number >> 63)) as u64,
        (Value::U32(number), Kind::Uint32) => u64::from(*number),
        (Value::U64(number), Kind::Uint64) => *number,
        _ => return fixed(value, out),
    };
    encode_varint(varint, out);
    Some(WireType::Varint)
}

fn fixed(value: &Value, out: &mut Vec<u8>) -> Option<WireType> {
    match value {
        Value::I32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::U32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::F32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::I64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::U64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::F64(number) => out.extend_from_slice(&number.to_le_bytes()),
        _ => return None,
    }
    let short = matches!(value, Value::I32(_) | Value::U32(_) | Value::F32(_));
    Some(if short { WireType::ThirtyTwoBit } else { WireType::SixtyFourBit })
}

/// Returns the entries of a map by key: a HashMap has another order in every process.
pub(super) fn sorted(map: &std::collections::HashMap<MapKey, Value>) -> Vec<(&MapKey, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

pub(super) fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(flag) => flag.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}

//! Messages to proto text in a fixed order, so that equal content gives equal text.

use std::fmt::Write;

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};

use super::encode::{key_text, sorted};
use super::error::{Outcome, Problem, Step, refuse};
use super::{ANY, MAX_DEPTH, UnknownAny, body_of, decode, too_deep, type_name};

pub(super) struct ToText<'t> {
    pub(crate) pool: &'t DescriptorPool,
    pub(crate) unknown: UnknownAny,
    pub(crate) out: String,
    pub(crate) indent: usize,
}

impl ToText<'_> {
    pub(crate) fn message(&mut self, message: &DynamicMessage, depth: usize) -> Outcome<()> {
        if depth > MAX_DEPTH {
            return too_deep();
        }
        if message.descriptor().full_name() == ANY && self.any(message, depth)? {
            return Ok(());
        }
        if message.extensions().next().is_some() {
            return refuse("it has proto2 extensions, and these are not read here");
        }
        for (field, value) in message.fields() {
            self.field(&field, value, depth).map_err(|problem| problem.under(Step::Field(field.name().into())))?;
        }
        // They cannot be parsed by their numbers, so they are written as comments.
        for unknown in message.unknown_fields() {
            self.line(&format!("# field {}, which has no descriptor", unknown.number()));
        }
        Ok(())
    }

    /// Writes the body of an Any, and returns whether it could. Otherwise the caller writes its bytes.
    fn any(&mut self, any: &DynamicMessage, depth: usize) -> Outcome<bool> {
        let Some((type_url, body)) = body_of(any) else { return Ok(false) };
        let descriptor = self.pool.get_message_by_name(type_name(type_url));
        match (descriptor, self.unknown) {
            (Some(descriptor), _) if is_readable(type_url) => {
                let body = decode(descriptor, body)?;
                self.block(&format!("[{type_url}]"), |this| this.message(&body, depth + 1))?;
                Ok(true)
            }
            (None, UnknownAny::Refuse) => Err(Problem::unknown_type(type_name(type_url))),
            _ => Ok(false),
        }
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, depth: usize) -> Outcome<()> {
        let kind = field.kind();
        match value {
            Value::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    self.single(field.name(), &kind, value, depth)
                        .map_err(|problem| problem.under(Step::Index(index)))?;
                }
            }
            Value::Map(values) => {
                let Some(entry) = kind.as_message().filter(|entry| entry.is_map_entry()) else {
                    return refuse("it is a map that has no entry type");
                };
                let value_kind = entry.map_entry_value_field().kind();
                for (key, value) in sorted(values) {
                    let written = match key {
                        MapKey::String(text) => quoted(text.as_bytes(), true),
                        _ => key_text(key),
                    };
                    self.block(field.name(), |this| {
                        this.line(&format!("key: {written}"));
                        this.single("value", &value_kind, value, depth + 1)
                    })
                    .map_err(|problem| problem.under(Step::Key(key_text(key))))?;
                }
            }
            _ => self.single(field.name(), &kind, value, depth)?,
        }
        Ok(())
    }

    fn single(&mut self, name: &str, kind: &Kind, value: &Value, depth: usize) -> Outcome<()> {
        let written = match value {
            Value::Message(message) => return self.block(name, |this| this.message(message, depth + 1)),
            Value::Bool(flag) => flag.to_string(),
            Value::I32(number) => number.to_string(),
            Value::U32(number) => number.to_string(),
            Value::I64(number) => number.to_string(),
            Value::U64(number) => number.to_string(),
            Value::F32(number) => float(f64::from(*number), format!("{number:?}")),
            Value::F64(number) => float(*number, format!("{number:?}")),
            Value::String(text) => quoted(text.as_bytes(), true),
            Value::Bytes(bytes) => quoted(bytes, false),
            Value::EnumNumber(number) => {
                let known = kind.as_enum().and_then(|of| Some(of.get_value(*number)?.name().to_owned()));
                known.unwrap_or_else(|| number.to_string())
            }
            Value::List(_) | Value::Map(_) => return refuse("its value does not fit its descriptor"),
        };
        self.line(&format!("{name}: {written}"));
        Ok(())
    }

    fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self) -> Outcome<()>) -> Outcome<()> {
        self.line(&format!("{head} {{"));
        self.indent += 2;
        let done = inside(self);
        self.indent -= 2;
        self.line("}");
        done
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:indent$}{text}", "", indent = self.indent);
    }
}

/// Whether a type URL can be written in brackets: one slash, with plain words around it.
fn is_readable(type_url: &str) -> bool {
    let word = |text: &str| {
        let mut parts = text.split('.');
        parts.all(|part| {
            part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    type_url.split_once('/').is_some_and(|(domain, name)| word(domain) && word(name))
}

fn float(number: f64, shortest: String) -> String {
    if number.is_nan() {
        "nan".into()
    } else if number.is_infinite() {
        if number > 0.0 { "inf".into() } else { "-inf".into() }
    } else {
        shortest
    }
}

/// Quotes bytes. Bytes outside of ASCII are written in octal, unless they are characters of a text.
fn quoted(bytes: &[u8], text: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    let escaped = |byte: u8, out: &mut String| match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x20..=0x7e => out.push(char::from(byte)),
        _ => _ = write!(out, "\\{byte:03o}"),
    };
    match std::str::from_utf8(bytes) {
        Ok(letters) if text => {
            for letter in letters.chars() {
                match u8::try_from(letter) {
                    Ok(byte) if byte < 0x80 => escaped(byte, &mut out),
                    _ if letter.is_alphanumeric() => out.push(letter),
                    _ => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escaped(byte, &mut out)),
                }
            }
        }
        _ => bytes.iter().for_each(|byte| escaped(*byte, &mut out)),
    }
    out.push('"');
    out
}

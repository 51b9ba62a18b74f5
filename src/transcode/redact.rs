//! Removes what is sensitive from messages, as Envoy does in its dumps: texts and bytes are replaced, and the structure stays.

use std::collections::HashSet;

use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use serde_json::Value as Json;

use super::error::Outcome;
use super::from_json::FromJson;
use super::to_json::{REDACTED, ToJson};
use super::{ANY, MAX_DEPTH, Strictness, UnknownAny, body_of, decode, encode::Encoder, too_deep, type_name};

pub(super) struct Redactor<'t> {
    pub(crate) pool: &'t DescriptorPool,
    /// Full names of the sensitive fields. Everything inside them is sensitive too.
    pub(crate) sensitive: &'t HashSet<String>,
}

impl Redactor<'_> {
    /// Replaces sensitive values. Fields without a descriptor are dropped, because they may be sensitive.
    pub(crate) fn message(&self, message: &mut DynamicMessage, is_sensitive: bool, depth: usize) -> Outcome<()> {
        if depth > MAX_DEPTH {
            return too_deep();
        }
        message.take_unknown_fields().for_each(drop);
        match message.descriptor().full_name() {
            ANY => return self.any(message, is_sensitive, depth),
            "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct" => self.typed_struct(message, depth)?,
            _ => {}
        }
        let mut cleared = Vec::new();
        for (field, value) in message.fields_mut() {
            let is_sensitive = is_sensitive || self.sensitive.contains(field.full_name());
            if !self.value(value, is_sensitive, depth)? {
                cleared.push(field);
            }
        }
        cleared.iter().for_each(|field| message.clear_field(field));
        Ok(())
    }

    /// Replaces a value. Returns false if it has no redacted form.
    fn value(&self, value: &mut Value, is_sensitive: bool, depth: usize) -> Outcome<bool> {
        match value {
            Value::Message(message) => self.message(message, is_sensitive, depth + 1)?,
            Value::List(values) => {
                for value in values.iter_mut() {
                    if !self.value(value, is_sensitive, depth)? {
                        return Ok(false);
                    }
                }
            }
            Value::Map(values) => {
                for value in values.values_mut() {
                    if !self.value(value, is_sensitive, depth)? {
                        return Ok(false);
                    }
                }
            }
            Value::String(text) if is_sensitive => *text = REDACTED.into(),
            Value::Bytes(bytes) if is_sensitive => *bytes = REDACTED.into(),
            _ => return Ok(!is_sensitive),
        }
        Ok(true)
    }

    /// Redacts the body of an Any. If its type has no descriptor, the body is dropped.
    fn any(&self, any: &mut DynamicMessage, is_sensitive: bool, depth: usize) -> Outcome<()> {
        let Some((type_url, body)) = body_of(any) else { return Ok(()) };
        let body = match self.pool.get_message_by_name(type_name(type_url)) {
            None => Vec::new(),
            Some(descriptor) => {
                let mut held = decode(descriptor, body)?;
                self.message(&mut held, is_sensitive, depth + 1)?;
                Encoder { pool: self.pool, anys: true }.bytes(&held, 0)?
            }
        };
        any.set_field_by_number(2, Value::Bytes(body.into()));
        Ok(())
    }

    /// Redacts the content of a TypedStruct, which has a type too. Drops parts that cannot be read as this type, and all of it without a descriptor.
    fn typed_struct(&self, message: &mut DynamicMessage, depth: usize) -> Outcome<()> {
        let Some(type_url) = message.get_field_by_number(1).and_then(|value| value.as_str().map(str::to_owned)) else {
            return Ok(());
        };
        let Some(descriptor) = self.pool.get_message_by_name(type_name(&type_url)) else {
            message.clear_field_by_number(2);
            return Ok(());
        };
        let Some(field) = message.get_field_by_number(2).map(|value| value.into_owned()) else { return Ok(()) };
        let Some(held) = field.as_message() else { return Ok(()) };
        let writer = ToJson { pool: self.pool, unknown: UnknownAny::Wrap, redact: None, original_names: false };
        let reader = FromJson { pool: self.pool, strictness: Strictness::Lenient };
        let redacted = || -> Outcome<DynamicMessage> {
            let mut typed = reader.message(&descriptor, &writer.message(held, depth)?, depth)?;
            self.message(&mut typed, false, depth + 1)?;
            let json: Json = writer.message(&typed, depth)?;
            reader.message(&held.descriptor(), &json, depth)
        };
        match redacted() {
            Ok(redacted) => message.set_field_by_number(2, Value::Message(redacted)),
            Err(_) => message.clear_field_by_number(2),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::transcode::{Strictness, Transcoder};

    const CONTEXT: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";

    fn redacted(message: &str, value: serde_json::Value) -> serde_json::Value {
        let transcoder = Transcoder::envoy();
        let bytes = transcoder.from_json(message, &value, Strictness::Strict).unwrap();
        let without = transcoder.redacted(message, &bytes).unwrap();
        let shown = transcoder.dumped_json(message, &bytes).unwrap();
        let read = transcoder.from_json(message, &shown, Strictness::Strict).expect("it keeps the form of the message");
        assert_eq!(transcoder.canonical(message, &without).unwrap(), read);
        shown
    }

    #[test]
    fn what_is_sensitive_is_replaced_in_anys_and_typed_structs_too() {
        let key = json!({"inlineBytes": "aGlkZGVu"});
        let context = json!({"commonTlsContext": {"tlsCertificates": [{"privateKey": key, "certificateChain": {"inlineString": "chain"}}]}});
        let mut any = context.clone();
        any["@type"] = format!("type.googleapis.com/{CONTEXT}").into();
        let typed = json!({
            "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
            "typeUrl": format!("type.googleapis.com/{CONTEXT}"),
            "value": context,
        });
        for held in [any, typed] {
            let shown = redacted("envoy.config.core.v3.TransportSocket", json!({"name": "tls", "typedConfig": held}));
            let text = shown.to_string();
            assert!(
                !text.contains("aGlkZGVu") && text.contains("W3JlZGFjdGVkXQ==") && text.contains("chain"),
                "{text}"
            );
        }
    }

    #[test]
    fn fields_without_a_descriptor_are_dropped() {
        let transcoder = Transcoder::envoy();
        let unknown = [0xba, 0xbb, 0x01, 0x03, b'k', b'e', b'y']; // field 2999
        let cluster =
            transcoder.from_json("envoy.config.cluster.v3.Cluster", &json!({"name": "a"}), Strictness::Strict);
        let cluster = cluster.unwrap();
        let both = [&cluster[..], &unknown].concat();
        assert_eq!(transcoder.redacted("envoy.config.cluster.v3.Cluster", &both).unwrap(), cluster);
    }

    /// Tests each element of lists and maps, in each kind of wrapping.
    #[test]
    fn nothing_that_is_sensitive_is_shown_after_the_first_element() {
        let certificate = |number: u32| json!({"certificateChain": {"inlineString": "chain"}, "privateKey": {"inlineString": format!("hush-{number}")}});
        let context = |numbers: &[u32]| {
            let all: Vec<_> = numbers.iter().copied().map(certificate).collect();
            json!({"@type": format!("type.googleapis.com/{CONTEXT}"), "commonTlsContext": {"tlsCertificates": all}})
        };
        let socket = |numbers: &[u32]| json!({"name": "tls", "typedConfig": context(numbers)});
        let matched = |name: &str, numbers: &[u32]| json!({"name": name, "transportSocket": socket(numbers)});
        let shown = redacted(
            "envoy.config.cluster.v3.Cluster",
            json!({
                "name": "a",
                "transportSocket": socket(&[1, 2]),
                "transportSocketMatches": [matched("one", &[3]), matched("two", &[4, 5])],
                "typedExtensionProtocolOptions": {"x": context(&[6]), "y": context(&[7])},
            }),
        );
        let text = shown.to_string();
        assert!(!text.contains("hush"), "{text}");
        assert_eq!((text.matches("[redacted]").count(), text.matches("\"chain\"").count()), (7, 7), "{text}");
    }

    /// A number has no form without a value, so its field is left out. A value of another type than its field states could be anything.
    #[test]
    fn what_has_no_redacted_form_is_left_out() {
        let key = json!({"filename": "k", "watchedDirectory": {"path": "p"}});
        let provider = json!({"providerName": "p", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.Int32Value", "value": 7}});
        let shown = redacted(
            "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
            json!({"privateKey": key, "privateKeyProvider": provider, "certificateChain": {"filename": "c"}}),
        );
        assert_eq!(
            shown["private_key"],
            json!({"filename": "[redacted]", "watched_directory": {"path": "[redacted]"}})
        );
        assert_eq!(shown["certificate_chain"], json!({"filename": "c"}));
        assert!(!shown.to_string().contains('7'), "{shown}");

        let secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
        let unreadable =
            json!({"typeUrl": secret, "value": {"name": 5, "genericSecret": {"secret": {"inlineString": "hush"}}}});
        for name in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
            assert_eq!(redacted(name, unreadable.clone()), json!({"type_url": secret}));
            let unknown = json!({"typeUrl": "type.googleapis.com/acme.Login", "value": {"client_secret": "hush"}});
            assert_eq!(redacted(name, unknown), json!({"type_url": "type.googleapis.com/acme.Login"}));
        }
    }
}

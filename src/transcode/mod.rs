//! Converts messages with known descriptors between bytes and the forms that people and REST clients use: proto3 JSON, YAML and proto text.
//! The resulting bytes depend only on the content, so that content versions are stable.
//!
//! Fields without a descriptor are kept in bytes, and cannot be shown in JSON.

pub mod document;
pub mod yaml;

mod content_difference;
mod descriptors;
mod encode;
mod error;
mod from_json;
mod from_text;
mod locate;
mod redact;
mod to_json;
mod to_text;
mod tree;
mod words;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

use self::content_difference::{Comparer, Found};
use self::encode::Encoder;
use self::error::{Outcome, Problem, refuse};
use self::from_json::FromJson;
use self::redact::Redactor;
use self::to_json::ToJson;
use self::to_text::ToText;
use self::tree::Tree;

pub use self::content_difference::ContentDifference;
pub use self::error::TranscodeError;
pub use self::to_json::{REDACTED, UNDECODED};

/// The limit on the nesting of messages, including the bodies of Anys. Protobuf has the same limit for one body.
pub const MAX_DEPTH: usize = 100;

const ANY: &str = "google.protobuf.Any";
const NODE: &str = "envoy.config.core.v3.Node";
/// The maximum number of fields that are shown in which two nodes differ.
const MOST_NODE_FIELDS: usize = 1000;

/// How to convert an Any without a descriptor to JSON or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownAny {
    /// Fails the conversion.
    Refuse,
    /// Shows an object marked as undecoded: for people, never for clients.
    Wrap,
}

/// How to treat fields and enum values in JSON that are not in the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Unknown fields are errors.
    Strict,
    /// Unknown fields are ignored.
    Lenient,
}

/// Provides a transcoder when one is needed: most relays never need one.
pub(crate) type Descriptors = Arc<dyn Fn() -> Arc<Transcoder> + Send + Sync>;

/// Converts messages by their descriptors.
#[derive(Debug)]
pub struct Transcoder {
    pool: DescriptorPool,
    sensitive: OnceLock<HashSet<String>>,
}

impl Transcoder {
    /// Returns the transcoder with the embedded descriptors, which are unpacked at the first use in the process.
    pub fn envoy() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Transcoder>> = OnceLock::new();
        let load = || Self::with_descriptor_sets(&[]).expect("the embedded descriptors load, and a test says so");
        SHARED.get_or_init(load).clone()
    }

    /// Returns a transcoder with an operator's FileDescriptorSets too; their files replace embedded ones of the same name.
    pub fn with_descriptor_sets(sets: &[Bytes]) -> Result<Arc<Self>, TranscodeError> {
        Ok(Arc::new(Self { pool: descriptors::load(sets)?, sensitive: OnceLock::new() }))
    }

    /// Whether there is a descriptor for the message, given by its full name without a prefix such as `type.googleapis.com/`.
    pub fn knows(&self, message: &str) -> bool {
        self.pool.get_message_by_name(message).is_some()
    }

    /// Converts an encoded message of this type name to its JSON form.
    pub fn to_json(
        &self,
        message: &str,
        bytes: &[u8],
        unknown: UnknownAny,
    ) -> Result<serde_json::Value, TranscodeError> {
        self.json(message, bytes, unknown, None)
    }

    /// Like [`Self::to_json`], without the fields that are marked as sensitive.
    pub fn redacted_json(
        &self,
        message: &str,
        bytes: &[u8],
        unknown: UnknownAny,
    ) -> Result<serde_json::Value, TranscodeError> {
        self.json(message, bytes, unknown, Some(self.sensitive()))
    }

    /// Converts an encoded message to JSON as Envoy's dumps have it: without what is sensitive, and with field names as in the proto files. The
    /// result can be parsed as that message.
    pub fn dumped_json(&self, message: &str, bytes: &[u8]) -> Result<serde_json::Value, TranscodeError> {
        let to_json = ToJson { pool: &self.pool, unknown: UnknownAny::Wrap, redact: None, original_names: true };
        let redacted = self.redacted_message(message, bytes);
        redacted.and_then(|read| to_json.message(&read, 0)).map_err(|problem| problem.of(message))
    }

    /// Returns an encoded message without what is sensitive, and without fields that have no descriptor.
    pub fn redacted(&self, message: &str, bytes: &[u8]) -> Result<Bytes, TranscodeError> {
        let redacted = self.redacted_message(message, bytes);
        let encoded = redacted.and_then(|read| Encoder { pool: &self.pool, anys: true }.bytes(&read, 0));
        encoded.map(Bytes::from).map_err(|problem| problem.of(message))
    }

    fn redacted_message(&self, message: &str, bytes: &[u8]) -> Outcome<DynamicMessage> {
        let mut read = self.read(message, bytes)?;
        Redactor { pool: &self.pool, sensitive: self.sensitive() }.message(&mut read, false, 0)?;
        Ok(read)
    }

    fn sensitive(&self) -> &HashSet<String> {
        self.sensitive.get_or_init(|| descriptors::sensitive(&self.pool))
    }

    /// Converts the JSON form of a message of this type name to canonical bytes.
    pub fn from_json(
        &self,
        message: &str,
        json: &serde_json::Value,
        strictness: Strictness,
    ) -> Result<Bytes, TranscodeError> {
        let read = || {
            let read = FromJson { pool: &self.pool, strictness }.message(&self.descriptor(message)?, json, 0)?;
            Encoder { pool: &self.pool, anys: false }.bytes(&read, 0)
        };
        read().map(Bytes::from).map_err(|problem| problem.of(message))
    }

    /// Converts an encoded message to its JSON form, written as YAML.
    pub fn to_yaml(&self, message: &str, bytes: &[u8], unknown: UnknownAny) -> Result<String, TranscodeError> {
        let json = self.to_json(message, bytes, unknown)?;
        yaml::write(&json).map_err(|error| Problem::new(error.to_string()).of(message))
    }

    /// Converts an encoded message to proto text. Fields without a descriptor appear as comments.
    pub fn to_text(&self, message: &str, bytes: &[u8], unknown: UnknownAny) -> Result<String, TranscodeError> {
        // An Any whose type URL cannot be written in text shows its bytes, which have to be canonical too.
        let bytes = self.canonical(message, bytes)?;
        let write = || {
            let mut text = ToText { pool: &self.pool, unknown, out: String::new(), indent: 0 };
            text.message(&self.read(message, &bytes)?, 0)?;
            Ok(text.out)
        };
        write().map_err(|problem: Problem| problem.of(message))
    }

    /// Converts protobuf's text format to canonical bytes.
    pub fn from_text(&self, message: &str, text: &str) -> Result<Bytes, TranscodeError> {
        let read = || {
            let read = from_text::parse(&self.pool, self.descriptor(message)?, text)?;
            Encoder { pool: &self.pool, anys: true }.bytes(&read, 0)
        };
        read().map(Bytes::from).map_err(|problem| problem.of(message))
    }

    /// Returns the canonical bytes of a message: maps sorted, also within Anys of known types, and unknown fields kept.
    pub fn canonical(&self, message: &str, bytes: &[u8]) -> Result<Bytes, TranscodeError> {
        let encoded =
            self.read(message, bytes).and_then(|read| Encoder { pool: &self.pool, anys: true }.bytes(&read, 0));
        encoded.map(Bytes::from).map_err(|problem| problem.of(message))
    }

    /// Returns the first place in which two encoded messages of one type differ; `None` if their contents are equal. Without a descriptor, bytes
    /// are compared as they are.
    pub fn difference(&self, message: &str, first: &[u8], second: &[u8]) -> Option<ContentDifference> {
        let comparer = Comparer { pool: &self.pool, sensitive: self.sensitive(), limit: 1 };
        let found = comparer.bodies(self.pool.get_message_by_name(message), first, second);
        Some(found.into_iter().next()?.into_difference())
    }

    /// Returns the fields in which encoded nodes differ, in the spelling of a sharing key if a key can have them. Values are not included.
    pub fn differing_node_fields(&self, nodes: &[impl AsRef<[u8]>]) -> BTreeSet<String> {
        let comparer = Comparer { pool: &self.pool, sensitive: self.sensitive(), limit: MOST_NODE_FIELDS };
        let descriptor = self.pool.get_message_by_name(NODE);
        let Some((first, others)) = nodes.split_first() else { return BTreeSet::new() };
        let found = others.iter().flat_map(|other| comparer.bodies(descriptor.clone(), first.as_ref(), other.as_ref()));
        found.map(Found::into_node_field).collect()
    }

    fn json(
        &self,
        message: &str,
        bytes: &[u8],
        unknown: UnknownAny,
        redact: Option<&HashSet<String>>,
    ) -> Result<serde_json::Value, TranscodeError> {
        let to_json = ToJson { pool: &self.pool, unknown, redact, original_names: false };
        self.read(message, bytes).and_then(|read| to_json.message(&read, 0)).map_err(|problem| problem.of(message))
    }

    fn read(&self, message: &str, bytes: &[u8]) -> Outcome<DynamicMessage> {
        decode(self.descriptor(message)?, bytes)
    }

    fn descriptor(&self, message: &str) -> Outcome<MessageDescriptor> {
        self.pool.get_message_by_name(message).ok_or_else(|| Problem::unknown_type(message))
    }
}

/// Parses a JSON text. Unlike serde_json, it rejects duplicate keys.
pub fn parse_json(text: &[u8]) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_slice::<Tree>(text).map(|Tree(value)| value)
}

/// Returns the message name in a type URL.
pub fn type_name(type_url: &str) -> &str {
    type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
}

fn decode(descriptor: MessageDescriptor, bytes: &[u8]) -> Outcome<DynamicMessage> {
    let name = descriptor.full_name().to_owned();
    DynamicMessage::decode(descriptor, bytes)
        .map_err(|error| Problem::new(format!("these bytes are no {name}: {error}")))
}

/// Returns the type URL and the body of an Any, if it has a type.
fn body_of(any: &DynamicMessage) -> Option<(&str, &[u8])> {
    let (mut type_url, mut body): (_, &[u8]) = (None, &[]);
    for (field, value) in any.fields() {
        match (field.number(), value) {
            (1, Value::String(text)) => type_url = Some(text.as_str()),
            (2, Value::Bytes(bytes)) => body = bytes,
            _ => return None,
        }
    }
    type_url.map(|type_url| (type_url, body))
}

/// Whether a message other than Any has a special JSON form.
fn is_special(name: &str) -> bool {
    let Some(name) = name.strip_prefix("google.protobuf.") else { return false };
    matches!(
        name,
        "Duration"
            | "Timestamp"
            | "FieldMask"
            | "Struct"
            | "ListValue"
            | "Value"
            | "DoubleValue"
            | "FloatValue"
            | "Int64Value"
            | "UInt64Value"
            | "Int32Value"
            | "UInt32Value"
            | "BoolValue"
            | "StringValue"
            | "BytesValue"
    )
}

fn too_deep<T>() -> Outcome<T> {
    refuse(format!("it is nested deeper than {MAX_DEPTH} messages"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_goes_to_bytes_and_back() {
        let transcoder = Transcoder::envoy();
        let json = json!({
            "name": "a",
            "type": "EDS",
            "connectTimeout": "0.250s",
            "typedExtensionProtocolOptions": {
                "x": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicitHttpConfig": { "http2ProtocolOptions": { "maxConcurrentStreams": 100 } },
                },
            },
        });
        let bytes = transcoder.from_json("envoy.config.cluster.v3.Cluster", &json, Strictness::Strict).unwrap();
        let back = transcoder.to_json("envoy.config.cluster.v3.Cluster", &bytes, UnknownAny::Refuse).unwrap();
        assert_eq!(back, json);
        assert_eq!(transcoder.canonical("envoy.config.cluster.v3.Cluster", &bytes).unwrap(), bytes);
    }
}

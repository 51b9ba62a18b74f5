//! Prints resources as YAML, JSON or text, without secrets.

use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::Serialize;
use serde_json::{Value, json};
use weir_core::proto::Any;

use super::query_args::Output;
use super::query_state::ReceivedResource;
use crate::transcode::{REDACTED, Transcoder, UNDECODED, UnknownAny};

pub(super) struct Printer {
    pub(crate) transcoder: Arc<Transcoder>,
    pub(crate) output: Output,
    pub(crate) secrets: bool,
}

/// A resource and its wrapper fields, in the order in which they are printed.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aliases: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
    resource: Value,
}

impl Printer {
    pub(crate) fn document<'a>(&self, name: &'a str, received: &'a ReceivedResource) -> Document<'a> {
        let metadata = received.metadata.as_ref().map(|bytes| {
            let type_url = "type.googleapis.com/envoy.config.core.v3.Metadata".into();
            let mut shown = self.json(&Any { type_url, value: bytes.clone() });
            shown.as_object_mut().map(|fields| fields.remove("@type"));
            shown
        });
        Document {
            name,
            version: &received.version,
            aliases: &received.aliases,
            ttl: received.ttl.map(|ttl| format!("{}s", ttl.as_secs_f64())),
            metadata,
            resource: self.json(&received.resource),
        }
    }

    /// Formats one resource, with a line break at its end.
    pub(crate) fn text(&self, name: &str, received: &ReceivedResource) -> String {
        if self.output == Output::Text {
            return self.proto_text(name, received);
        }
        let yaml = serde_saphyr::to_string(&self.document(name, received));
        yaml.unwrap_or_else(|error| format!("name: {name:?} # it cannot be written as YAML: {error}\n"))
    }

    /// Whether the resource has fields that are redacted.
    pub(crate) fn has_secrets(&self, received: &ReceivedResource) -> bool {
        let bytes = received.resource.encode_to_vec();
        let redacted = self.transcoder.redacted_json(ANY, &bytes, UnknownAny::Wrap);
        match (self.transcoder.to_json(ANY, &bytes, UnknownAny::Wrap), redacted) {
            (Ok(full), Ok(redacted)) => full != redacted,
            (Err(_), _) | (_, Err(_)) => true, // a resource that cannot be read may have secrets
        }
    }

    fn proto_text(&self, name: &str, received: &ReceivedResource) -> String {
        let mut out = format!("# {}", plain(name));
        if !received.version.is_empty() {
            let _ = write!(out, ", version {}", plain(&received.version)); // writing to a String does not fail
        }
        if !self.secrets && self.has_secrets(received) {
            return out + "\n# contains secrets; --show-secrets shows it in this format\n";
        }
        let text = self.transcoder.to_text(ANY, &received.resource.encode_to_vec(), UnknownAny::Wrap);
        out + "\n" + &text.unwrap_or_else(|error| format!("# it cannot be shown: {error}\n"))
    }

    fn json(&self, any: &Any) -> Value {
        let bytes = any.encode_to_vec();
        let shown = match self.secrets {
            true => self.transcoder.to_json(ANY, &bytes, UnknownAny::Wrap),
            false => self.transcoder.redacted_json(ANY, &bytes, UnknownAny::Wrap),
        };
        // Bytes that do not parse as their type are printed too: the user may be looking for exactly that.
        shown.unwrap_or_else(|error| {
            let bytes = if self.secrets { STANDARD.encode(&any.value) } else { REDACTED.into() };
            json!({ "@type": any.type_url, UNDECODED: { "reason": error.to_string(), "bytes": bytes } })
        })
    }
}

/// Escapes control characters: names come from servers, and terminals execute what is printed.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

const ANY: &str = "google.protobuf.Any";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_travels_beside_a_resource_is_shown_with_it() {
        let body =
            Any { type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(), value: bytes::Bytes::new() };
        let metadata = json!({"filterMetadata": {"f": {"k": "v"}}});
        let encoded = Transcoder::envoy().from_json(
            "envoy.config.core.v3.Metadata",
            &metadata,
            crate::transcode::Strictness::Strict,
        );
        let received = ReceivedResource {
            version: "7".into(),
            aliases: vec!["x".into(), "y".into()],
            ttl: Some(Duration::from_millis(1500)),
            metadata: Some(encoded.unwrap()),
            constraints: None,
            do_not_cache: false,
            resource: body.clone(),
        };
        let printer = Printer { transcoder: Transcoder::envoy(), output: Output::Json, secrets: false };
        let shown = serde_json::to_value(printer.document("a", &received)).unwrap();
        let resource = json!({"@type": body.type_url});
        let expected = json!({
            "name": "a", "version": "7", "aliases": ["x", "y"], "ttl": "1.5s", "metadata": metadata, "resource": resource,
        });
        assert_eq!(shown, expected);
        let bare =
            ReceivedResource { version: String::new(), aliases: Vec::new(), ttl: None, metadata: None, ..received };
        let shown = serde_json::to_value(printer.document("a", &bare)).unwrap();
        assert_eq!(shown, json!({"name": "a", "resource": resource}));
    }
}

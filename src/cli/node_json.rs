//! Reads a node in JSON, in either spelling of its fields, as bootstrap files and dumps contain it.

use std::collections::BTreeMap;

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde::Deserialize;

use weir_core::proto::node::node::UserAgentVersionType;
use weir_core::proto::node::{self, Node};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NodeJson {
    pub(crate) id: String,
    pub(crate) cluster: String,
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    locality: Option<Locality>,
    #[serde(alias = "buildVersion")]
    build_version: String,
    #[serde(alias = "userAgentName")]
    user_agent_name: String,
    #[serde(alias = "userAgentVersion")]
    user_agent_version: Option<String>,
    #[serde(alias = "userAgentBuildVersion")]
    user_agent_build_version: Option<BuildVersion>,
    extensions: Vec<Extension>,
    #[serde(alias = "clientFeatures")]
    client_features: Vec<String>,
    #[serde(alias = "dynamicParameters")]
    dynamic_parameters: BTreeMap<String, ContextParams>,
    /// Sharing keys may contain these addresses; this type does not know whether the key in use does.
    #[serde(alias = "listeningAddresses")]
    listening_addresses: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Locality {
    region: String,
    zone: String,
    #[serde(alias = "subZone")]
    sub_zone: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BuildVersion {
    version: Option<SemanticVersion>,
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SemanticVersion {
    #[serde(alias = "majorNumber")]
    major_number: u32,
    #[serde(alias = "minorNumber")]
    minor_number: u32,
    patch: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Extension {
    name: String,
    category: String,
    #[serde(alias = "typeDescriptor")]
    type_descriptor: String,
    version: Option<BuildVersion>,
    disabled: bool,
    #[serde(alias = "typeUrls")]
    type_urls: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContextParams {
    params: BTreeMap<String, String>,
}

impl NodeJson {
    /// Whether the node has addresses, which cannot be converted here.
    pub(crate) fn has_addresses(&self) -> bool {
        !self.listening_addresses.is_empty()
    }

    pub(crate) fn into_node(self) -> Node {
        let version = match (self.user_agent_version, self.user_agent_build_version) {
            (_, Some(build)) => Some(UserAgentVersionType::UserAgentBuildVersion(build.into())),
            (Some(text), None) => Some(UserAgentVersionType::UserAgentVersion(text)),
            (None, None) => None,
        };
        let context = |(kind, params): (String, ContextParams)| (kind, node::ContextParams { params: params.params });
        Node {
            id: self.id,
            cluster: self.cluster,
            metadata: self.metadata.map(object),
            locality: self.locality.map(|Locality { region, zone, sub_zone }| node::Locality {
                region,
                zone,
                sub_zone,
            }),
            build_version: self.build_version,
            user_agent_name: self.user_agent_name,
            user_agent_version_type: version,
            extensions: self.extensions.into_iter().map(node::Extension::from).collect(),
            client_features: self.client_features,
            listening_addresses: Vec::new(),
            dynamic_parameters: self.dynamic_parameters.into_iter().map(context).collect(),
        }
    }
}

impl From<BuildVersion> for node::BuildVersion {
    fn from(build: BuildVersion) -> Self {
        let version = build.version.map(|SemanticVersion { major_number, minor_number, patch }| {
            node::SemanticVersion { major_number, minor_number, patch }
        });
        Self { version, metadata: build.metadata.map(object) }
    }
}

impl From<Extension> for node::Extension {
    fn from(extension: Extension) -> Self {
        let Extension { name, category, type_descriptor, version, disabled, type_urls } = extension;
        Self { name, category, type_descriptor, version: version.map(Into::into), disabled, type_urls }
    }
}

fn object(fields: serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key, value_of(value))).collect() }
}

fn value_of(json: serde_json::Value) -> Value {
    Value {
        kind: Some(match json {
            serde_json::Value::Null => Kind::NullValue(0),
            serde_json::Value::Bool(flag) => Kind::BoolValue(flag),
            serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
            serde_json::Value::String(text) => Kind::StringValue(text),
            serde_json::Value::Array(values) => {
                Kind::ListValue(ListValue { values: values.into_iter().map(value_of).collect() })
            }
            serde_json::Value::Object(fields) => Kind::StructValue(object(fields)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with every field that the JSON form may have here, in the spelling of protobuf.
    const ALL: &str = r#"{
        "id": "i", "cluster": "c", "build_version": "old", "user_agent_name": "envoy", "user_agent_version": "text",
        "locality": {"region": "r", "zone": "z", "sub_zone": "s"}, "client_features": ["f", "g"],
        "metadata": {"a": [1, true, null, "x"], "b": {"c": 2.5}},
        "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 2, "patch": 3}, "metadata": {"k": "v"}},
        "extensions": [{"name": "n", "category": "h", "type_descriptor": "t", "disabled": true, "type_urls": ["u"],
                        "version": {"version": {"patch": 9}}}],
        "dynamic_parameters": {"T": {"params": {"p": "q"}}}
    }"#;

    fn read(text: &str) -> Node {
        serde_json::from_str::<NodeJson>(text).unwrap_or_else(|error| panic!("{error}")).into_node()
    }

    fn version(major_number: u32, minor_number: u32, patch: u32) -> Option<node::SemanticVersion> {
        Some(node::SemanticVersion { major_number, minor_number, patch })
    }

    #[test]
    fn every_field_is_read_in_either_spelling() {
        let value = |kind| Value { kind: Some(kind) };
        let text = |text: &str| value(Kind::StringValue(text.into()));
        let list = [Kind::NumberValue(1.0), Kind::BoolValue(true), Kind::NullValue(0)].map(value);
        let list = ListValue { values: list.into_iter().chain([text("x")]).collect() };
        let inner = Struct { fields: [("c".to_owned(), value(Kind::NumberValue(2.5)))].into() };
        let metadata = [("a", Kind::ListValue(list)), ("b", Kind::StructValue(inner))];
        let metadata = metadata.map(|(key, kind)| (key.to_owned(), value(kind)));
        let build = node::BuildVersion {
            version: version(1, 2, 3),
            metadata: Some(Struct { fields: [("k".to_owned(), text("v"))].into() }),
        };
        let extension = node::Extension {
            name: "n".into(),
            category: "h".into(),
            type_descriptor: "t".into(),
            version: Some(node::BuildVersion { version: version(0, 0, 9), metadata: None }),
            disabled: true,
            type_urls: vec!["u".into()],
        };
        let params = node::ContextParams { params: [("p".to_owned(), "q".to_owned())].into() };
        let expected = Node {
            id: "i".into(),
            cluster: "c".into(),
            metadata: Some(Struct { fields: metadata.into() }),
            locality: Some(node::Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() }),
            build_version: "old".into(),
            user_agent_name: "envoy".into(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
            extensions: vec![extension],
            client_features: vec!["f".into(), "g".into()],
            listening_addresses: Vec::new(),
            dynamic_parameters: [("T".to_owned(), params)].into(),
        };
        assert_eq!(read(ALL), expected);
        let camel = ["build_version", "user_agent_name", "user_agent_version", "sub_zone", "client_features"];
        let others = ["user_agent_build_version", "major_number", "minor_number", "type_descriptor", "type_urls"];
        let spelled =
            camel.into_iter().chain(others).chain(["dynamic_parameters"]).fold(ALL.to_owned(), |text, key| {
                let mut parts = key.split('_');
                let first = parts.next().unwrap_or_default().to_owned();
                let whole =
                    parts.fold(first, |whole, part| format!("{whole}{}{}", part[..1].to_uppercase(), &part[1..]));
                text.replace(&format!("\"{key}\""), &format!("\"{whole}\""))
            });
        assert!(!spelled.contains('_'), "{spelled}");
        assert_eq!(read(&spelled), expected);
    }

    #[test]
    fn a_version_in_words_counts_where_there_is_none_in_numbers() {
        let node = read(r#"{"user_agent_version": "1.2"}"#);
        assert_eq!(node.user_agent_version_type, Some(UserAgentVersionType::UserAgentVersion("1.2".into())));
        assert_eq!(read("{}"), Node::default());
        let with_addresses: NodeJson = serde_json::from_str(r#"{"listeningAddresses": [{}]}"#).unwrap();
        assert!(with_addresses.has_addresses() && !NodeJson::default().has_addresses());
    }
}

//! Reads a node in JSON, in either spelling of its fields, as bootstrap files and dumps contain it.

use std::collections::BTreeMap;

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde::Deserialize;

use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{self, Node};

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
    /// Sharing keys may use these addresses if configured; this code does not know whether they do.
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

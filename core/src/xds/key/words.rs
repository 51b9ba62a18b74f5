//! The parts of a node as text for operators (KEY-20).

use prost::Message;
use prost_types::{Struct, Value, value::Kind};
use xxhash_rust::xxh3::xxh3_128;

use super::fields::KeyField;
use super::metadata::without;
use super::tenant::{TENANT, claimed_tenant};
use super::{content_features, major_and_minor, part_of, sorted_extensions, unknown_fields};
use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{ContextParams, Node};

/// Returns a line for one part of a node. It is empty if the node does not have the part.
pub(super) fn words(field: &KeyField, node: &Node, encoded: &[u8]) -> String {
    let place = || part_of(node);
    let listed = |parts: Vec<String>| parts.join(" ");
    match field {
        KeyField::Id => node.id.clone(),
        KeyField::IdPart(part) => part.of(&node.id).to_owned(),
        KeyField::Cluster => node.cluster.clone(),
        KeyField::Locality => [place().region, place().zone, place().sub_zone].join("/").trim_matches('/').to_owned(),
        KeyField::Region => place().region,
        KeyField::Zone => place().zone,
        KeyField::SubZone => place().sub_zone,
        KeyField::Metadata => node.metadata.as_ref().map(|object| as_json(object).to_string()).unwrap_or_default(),
        KeyField::MetadataExcept(paths) => {
            let mut metadata = node.metadata.clone();
            if let Some(object) = &mut metadata {
                object.fields.remove(TENANT);
            }
            without(paths, &metadata).map(|object| as_json(&object).to_string()).unwrap_or_default()
        }
        KeyField::MetadataPath(path) => {
            let mut value = node.metadata.as_ref().map(as_json);
            for key in path {
                value = value.and_then(|mut object| object.get_mut(key).map(serde_json::Value::take));
            }
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        KeyField::UserAgent => {
            let version = match node.user_agent_version_type.as_ref().map(major_and_minor) {
                Some(UserAgentVersionType::UserAgentVersion(text)) => text,
                Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
                    let version = build.version.unwrap_or_default();
                    format!("{}.{}", version.major_number, version.minor_number)
                }
                None => node.build_version.clone(),
            };
            listed(vec![node.user_agent_name.clone(), version]).trim().to_owned()
        }
        KeyField::Extensions => match sorted_extensions(node) {
            extensions if extensions.is_empty() => String::new(),
            extensions => {
                let all: Vec<u8> = extensions.iter().flat_map(Message::encode_to_vec).collect();
                format!("{} ({:08x})", extensions.len(), xxh3_128(&all) as u32)
            }
        },
        KeyField::ClientFeatures => listed(content_features(node)),
        KeyField::ListeningAddresses => match node.listening_addresses.len() {
            0 => String::new(),
            count => format!("{count} addresses"),
        },
        KeyField::DynamicParameters => {
            let one = |(kind, context): (&String, &ContextParams)| format!("{kind}={:?}", context.params);
            listed(node.dynamic_parameters.iter().map(one).collect())
        }
        KeyField::Tenant => claimed_tenant(node).unwrap_or_default(),
        KeyField::Header(_) => String::new(), // a node has no headers
        KeyField::Unknown => match unknown_fields(encoded).len() {
            0 => String::new(),
            bytes => format!("{bytes} bytes"),
        },
    }
}

fn as_json(object: &Struct) -> serde_json::Value {
    object.fields.iter().filter(|(key, _)| *key != TENANT).map(|(key, value)| (key.clone(), json_of(value))).collect()
}

fn json_of(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_of).collect(),
        Some(Kind::StructValue(object)) => as_json(object),
    }
}

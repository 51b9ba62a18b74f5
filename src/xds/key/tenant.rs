//! The tenant of a node: a reserved value in its metadata, by which relays tell each other whose a client is.

use prost_types::{Struct, Value, value::Kind};

use super::fields::KeyField;
use crate::proto::node::{Locality, Node};

/// The key of the reserved value.
pub(super) const TENANT: &str = "weir.tenant";

/// Returns the tenant that a node states. A value that is no text is one that nobody has.
pub(in crate::xds) fn claimed_tenant(node: &Node) -> Option<String> {
    node.metadata.as_ref()?.fields.get(TENANT).map(text_of)
}

/// Takes the tenant out of a node. Metadata that had nothing else is left as if there were none.
pub(super) fn take(node: &mut Node) -> Option<String> {
    let metadata = node.metadata.as_mut()?;
    let taken = metadata.fields.remove(TENANT)?;
    if metadata.fields.is_empty() {
        node.metadata = None;
    }
    Some(text_of(&taken))
}

pub(super) fn set(node: &mut Node, tenant: &str) {
    let value = Value { kind: Some(Kind::StringValue(tenant.into())) };
    node.metadata.get_or_insert_with(Struct::default).fields.insert(TENANT.into(), value);
}

fn text_of(value: &Value) -> String {
    match &value.kind {
        Some(Kind::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}

impl KeyField {
    /// Whether its value is one text, which a rule can permit.
    pub(crate) fn is_text(&self) -> bool {
        use KeyField::*;
        matches!(self, Id | Cluster | Region | Zone | SubZone | MetadataPath(_))
    }

    /// Returns its value, if it is a text. Missing fields outside of the metadata are empty.
    pub(in crate::xds) fn text_in(&self, node: &Node) -> Option<String> {
        let of_place = |part: fn(&Locality) -> &String| {
            Some(node.locality.as_ref().map(|place| part(place).clone()).unwrap_or_default())
        };
        match self {
            Self::Id => Some(node.id.clone()),
            Self::Cluster => Some(node.cluster.clone()),
            Self::Region => of_place(|place| &place.region),
            Self::Zone => of_place(|place| &place.zone),
            Self::SubZone => of_place(|place| &place.sub_zone),
            Self::MetadataPath(path) => {
                let (last, parents) = path.split_last()?;
                let mut object = node.metadata.as_ref()?;
                for key in parents {
                    object = match &object.fields.get(key)?.kind {
                        Some(Kind::StructValue(inner)) => inner,
                        _ => return None,
                    };
                }
                match &object.fields.get(last)?.kind {
                    Some(Kind::StringValue(text)) => Some(text.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

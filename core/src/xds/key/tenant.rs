//! The tenant of a node: a reserved value in its metadata, by which one relay shows another to which tenant a client belongs.

use prost_types::{Struct, Value, value::Kind};

use crate::proto::node::Node;

/// The key of the reserved value.
pub(super) const TENANT: &str = "weir.tenant";

/// Returns the tenant that a node states. A value that is not a text becomes the name of a tenant that does not exist.
pub(in crate::xds) fn claimed_tenant(node: &Node) -> Option<String> {
    node.metadata.as_ref()?.fields.get(TENANT).map(text_of)
}

/// Removes the tenant from a node, and returns it. If the metadata had nothing else, the node has no metadata then.
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

//! Sharing keys.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::{Struct, Value, value::Kind};
use weir_core::proto::node::Node;
use weir_core::xds::{KeyField, KeyRule, wire};

/// A rule and two nodes. A key does not depend on the order of map entries, is the key of the nodes that it stands for upstream, and is
/// equal for nodes that are equal in its fields, and for those alone.
pub fn sharing_keys(data: &[u8]) {
    let [rule, split, rest @ ..] = data else { return };
    let (one, other) = rest.split_at(rest.len() * usize::from(*split) / 256);
    let path = |keys: &[&str]| KeyField::MetadataPath(keys.iter().copied().map(String::from).collect());
    let rule = match rule % 4 {
        0 => KeyRule::default(),
        1 => KeyRule::of(vec![KeyField::Id, KeyField::Region, KeyField::Zone, KeyField::SubZone, path(&["a", "b"])]),
        2 => KeyRule::of(vec![path(&["a"]), path(&["a", "b", "c"]), KeyField::ListeningAddresses, KeyField::Unknown]),
        _ => KeyRule::of(vec![KeyField::Cluster, KeyField::Metadata]),
    };
    let keys = [one, other].map(|node| {
        let key = rule.key(node).ok()?;
        assert_eq!(rule.key(&key.upstream_node()).as_ref(), Ok(&key), "tiers of relays agree");
        if let Some(member) = key.member_node(node) {
            assert_eq!(rule.key(&member.encoded()).as_ref(), Ok(&key), "also where a client is shown");
        }
        assert_eq!(rule.key(&with_maps_reversed(node)).as_ref(), Ok(&key), "the order of map entries does not count");
        assert_eq!(key.parts(&rule), rule.parts(node), "what operators see of the key and of the node");
        Some(key)
    });
    let by_metadata = KeyRule::of(vec![KeyField::Cluster, KeyField::Metadata]);
    if let [Some(_), Some(_)] = keys {
        let [a, b] = [one, other].map(|node| Node::decode(node).unwrap_or_default());
        let is_same = a.cluster == b.cluster && same_option(a.metadata.as_ref(), b.metadata.as_ref(), same_struct);
        assert_eq!(by_metadata.key(one) == by_metadata.key(other), is_same);
    }
}

/// Returns the node with the entries of all objects in its metadata in the opposite order.
fn with_maps_reversed(encoded: &[u8]) -> Vec<u8> {
    const METADATA: u32 = 3;
    const LAST_KNOWN_FIELD: u32 = 12;
    let mut node = Node::decode(encoded).unwrap_or_default();
    let metadata = node.metadata.take();
    let mut reversed = node.encode_to_vec();
    if let Some(metadata) = &metadata {
        put(&mut reversed, METADATA, &reversed_struct(metadata));
    }
    let unknown = wire::fields(encoded).flatten().filter(|field| field.number > LAST_KNOWN_FIELD);
    reversed.extend(unknown.flat_map(|field| field.raw));
    reversed
}

fn reversed_struct(object: &Struct) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in object.fields.iter().rev() {
        let mut entry = Vec::new();
        put(&mut entry, 2, &reversed_value(value));
        put(&mut entry, 1, key.as_bytes());
        put(&mut out, 1, &entry);
    }
    out
}

fn reversed_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match &value.kind {
        Some(Kind::StructValue(object)) => put(&mut out, 5, &reversed_struct(object)),
        Some(Kind::ListValue(list)) => {
            let mut items = Vec::new();
            list.values.iter().for_each(|item| put(&mut items, 1, &reversed_value(item)));
            put(&mut out, 6, &items);
        }
        _ => out = value.encode_to_vec(),
    }
    out
}

fn put(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn same_option<T>(a: Option<&T>, b: Option<&T>, same: impl Fn(&T, &T) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn same_struct(a: &Struct, b: &Struct) -> bool {
    let same = |((a, one), (b, other)): ((&String, &Value), (&String, &Value))| a == b && same_value(one, other);
    a.fields.len() == b.fields.len() && a.fields.iter().zip(&b.fields).all(same)
}

/// Numbers are compared by their bits, so that NaN equals itself.
fn same_value(a: &Value, b: &Value) -> bool {
    match (&a.kind, &b.kind) {
        (Some(Kind::NumberValue(a)), Some(Kind::NumberValue(b))) => a.to_bits() == b.to_bits(),
        (Some(Kind::StructValue(a)), Some(Kind::StructValue(b))) => same_struct(a, b),
        (Some(Kind::ListValue(a)), Some(Kind::ListValue(b))) => {
            a.values.len() == b.values.len() && a.values.iter().zip(&b.values).all(|(a, b)| same_value(a, b))
        }
        (a, b) => a == b,
    }
}

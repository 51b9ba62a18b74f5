//! Fuzz targets: names, sharing keys, and the scan of encoded messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::{Struct, Value, value::Kind};

use super::key::{KeyField, KeyRule, unknown_fields};
use super::name::Name;
use super::references;
use super::types::{References, TypeTable};
use super::xdstp::Xdstp;
use super::{Authority, wire};
use crate::proto::node::Node;

/// Two names, each on a line. The canonical form is a fixed point, keeps the parts of a name, and is equal for equal parts alone; a name is
/// a member of the collection that contains it, and of no other one.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (one, other) = text.split_once('\n').unwrap_or((text, ""));
    let [name, other_name] = [one, other].map(Name::canonical);
    assert_eq!(Name::canonical(name.as_str()), name);
    match (Xdstp::parse(one), Xdstp::parse(other)) {
        (Ok(parts), Ok(others)) => assert_eq!(parts == others, name == other_name, "{one} and {other}"),
        (Ok(_), Err(_)) => {}
        (Err(_), _) => assert_eq!(name.as_str(), one, "not readable, so unchanged"),
    }
    if let Ok(parts) = Xdstp::parse(one) {
        assert_eq!(Xdstp::parse(name.as_str()).as_ref(), Ok(&parts));
        assert_eq!(Authority::of(&name), Authority::Named(parts.authority));
        assert_ne!(name.is_glob(), name.collection().is_some());
    }
    let both = BTreeMap::from([(name.clone(), ()), (other_name.clone(), ())]);
    for glob in [&name, &other_name].into_iter().filter_map(Name::collection) {
        assert!(glob.is_glob());
        assert_eq!(Name::canonical(glob.as_str()), glob);
        let members: Vec<_> = glob.members_in(&both).map(|(name, ())| name).collect();
        let expected: Vec<_> = both.keys().filter(|name| name.collection().as_ref() == Some(&glob)).collect();
        assert_eq!(members, expected);
    }
}

/// A rule and two nodes. A key does not depend on the order of map entries, is the key of the node that it stands for upstream, and is
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
    let mut node = Node::decode(encoded).unwrap_or_default();
    let metadata = node.metadata.take();
    let mut reversed = node.encode_to_vec();
    if let Some(metadata) = &metadata {
        put(&mut reversed, METADATA, &reversed_struct(metadata));
    }
    reversed.extend(unknown_fields(encoded));
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

/// A type and a body. The scan of fields reads what the decoder reads, and what a body refers to does not depend on the order of its
/// fields. `canonical` is given the name of a message and one encoded, and returns the bytes that stand for all with the same content.
pub fn references(data: &[u8], canonical: impl FnOnce(&str, &[u8]) -> Option<Bytes>) {
    let [kind, body @ ..] = data else { return };
    check_scan(body);
    for (references, number) in [(References::ClusterEndpoints, 0), (References::VirtualHosts, 1)] {
        let named = references::referred(references, "own", body);
        assert!(named.is_none_or(|name| !name.as_str().is_empty()), "reference {number}");
    }
    let kind = TypeTable::new().resolve(LEADING[usize::from(*kind) % LEADING.len()]);
    let found = references::cluster_references(&kind, body);
    let clusters = found.as_ref().map_or(&[][..], |found| &found.clusters);
    assert!(clusters.is_sorted_by(|a, b| a < b), "each once, in order");
    // The decoder takes entries of maps in any form, so bodies that it would write otherwise are left out.
    if let Some(canonical) = canonical(kind.name(), body)
        && sorted(&canonical) == sorted(body)
    {
        assert_eq!(references::cluster_references(&kind, &canonical), found, "the same fields in another order");
    }
}

fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut sorted = bytes.to_vec();
    sorted.sort_unstable();
    sorted
}

const LEADING: [&str; 6] = [
    "envoy.config.listener.v3.Listener",
    "envoy.config.listener.v3.FilterChain",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.route.v3.ScopedRouteConfiguration",
    "envoy.config.route.v3.VirtualHost",
    "envoy.config.cluster.v3.Cluster",
];

/// Compares the scan with the decoder, which skips every field of an empty message.
fn check_scan(body: &[u8]) {
    let fields: Option<Vec<_>> = wire::fields(body).collect();
    assert_eq!(fields.is_some(), <()>::decode(body).is_ok(), "what is read as fields is a message");
    let read: Option<Vec<u8>> = fields.map(|fields| fields.iter().flat_map(|field| field.raw).copied().collect());
    assert!(read.is_none_or(|read| read == body));
}

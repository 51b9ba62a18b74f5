//! Sharing keys: the part of a client's identity that may change what the control plane answers.
//!
//! A key *is* the canonical encoding of the node that upstream will be shown, less what never counts: nothing that differs
//! between two clients of one key can reach the control plane, and `key(upstream_node(k)) == k`, so tiers agree.

mod fields;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost_types::{Struct, Value, value::Kind};
use xxhash_rust::xxh3::xxh3_128;

pub use self::fields::KeyField;
use self::words::words;
use super::wire;
use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{BuildVersion, Locality, Node, SemanticVersion};

/// Client features that concern transport only. The relay satisfies them itself, whoever asks (KEY-8, SOTW-48).
const TRANSPORT_FEATURES: [&str; 8] = [
    "xds.config.resource-in-sotw",
    "xds.config.supports-resource-in-sotw",
    "envoy.config.resource-in-sotw",
    "xds.config.supports-resource-ttl",
    "envoy.config.supports-resource-ttl",
    "envoy.lrs.supports_send_all_clusters",
    RELAY_MARKER,
    ERRORS_FEATURE,
];

/// The feature by which one relay knows another: user-agent rules then do not apply, since the agent is a copied one.
pub(crate) const RELAY_MARKER: &str = "weir.relay";

/// The feature of a client that is no relay and reads `resource_errors`.
pub(crate) const ERRORS_FEATURE: &str = "weir.errors";

/// Which parts of a node make the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    fields: Vec<KeyField>,
}

/// Equal for two clients exactly if they may share everything (KEY-2).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharingKey {
    canonical: Arc<[u8]>,
    /// The clients' own id is part of the key, so the relay must not put one of its making in its place.
    by_id: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node is not a readable message")]
pub struct NodeError;

impl Default for KeyRule {
    /// The whole node without its id and without addresses (KEY-3).
    fn default() -> Self {
        use KeyField::*;
        Self::of(vec![Cluster, Locality, Metadata, UserAgent, Extensions, ClientFeatures, DynamicParameters, Unknown])
    }
}

impl KeyRule {
    pub fn of(fields: Vec<KeyField>) -> Self {
        Self { fields }
    }

    /// The key of a client that sent these bytes as its node.
    pub fn key(&self, encoded_node: &[u8]) -> Result<SharingKey, NodeError> {
        let node = Node::decode(encoded_node).map_err(|_| NodeError)?;
        let mut kept = Node::default();
        let mut unknown = Vec::new();
        for field in &self.fields {
            match field {
                KeyField::Id => kept.id = node.id.clone(),
                KeyField::Cluster => kept.cluster = node.cluster.clone(),
                KeyField::Locality => kept.locality = node.locality.clone(),
                KeyField::Region => part(&mut kept).region = part_of(&node).region,
                KeyField::Zone => part(&mut kept).zone = part_of(&node).zone,
                KeyField::SubZone => part(&mut kept).sub_zone = part_of(&node).sub_zone,
                KeyField::Metadata => kept.metadata = node.metadata.clone(),
                KeyField::MetadataPath(path) => copy_path(path, &node.metadata, &mut kept.metadata),
                KeyField::UserAgent => {
                    kept.build_version = node.build_version.clone();
                    kept.user_agent_name = node.user_agent_name.clone();
                    kept.user_agent_version_type = node.user_agent_version_type.as_ref().map(major_and_minor);
                }
                KeyField::Extensions => kept.extensions = sorted_extensions(&node),
                KeyField::ClientFeatures => kept.client_features = content_features(&node),
                KeyField::ListeningAddresses => kept.listening_addresses = node.listening_addresses.clone(),
                KeyField::DynamicParameters => kept.dynamic_parameters = node.dynamic_parameters.clone(),
                KeyField::Unknown => unknown = unknown_fields(encoded_node),
            }
        }
        if kept.locality.as_ref().is_some_and(|locality| *locality == Locality::default()) {
            kept.locality = None; // an empty one and none are the same place
        }
        let mut canonical = kept.encode_to_vec();
        canonical.extend(unknown);
        Ok(SharingKey { canonical: canonical.into(), by_id: self.fields.contains(&KeyField::Id) })
    }
}

impl KeyRule {
    pub(crate) fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// What each field of the key is for a node, in words for operators (KEY-20).
    pub(crate) fn parts(&self, encoded_node: &[u8]) -> Vec<(KeyField, String)> {
        let node = Node::decode(encoded_node).unwrap_or_default();
        self.fields.iter().map(|field| (field.clone(), words(field, &node, encoded_node))).collect()
    }
}

impl SharingKey {
    /// What made it, as [`KeyRule::parts`] of every node that has it.
    pub(crate) fn parts(&self, rule: &KeyRule) -> Vec<(KeyField, String)> {
        rule.parts(&self.canonical)
    }

    /// The node that stands for every client of this key, made from the key alone (KEY-5, KEY-9).
    pub fn upstream_node(&self) -> Bytes {
        let id = if self.by_id { String::new() } else { format!("weir-{self}") };
        let added = Node { id, client_features: relay_features(), ..Node::default() };
        // Encoded messages merge by standing behind one another, which keeps fields that this build cannot name.
        let mut encoded = self.canonical.to_vec();
        encoded.extend(added.encode_to_vec());
        encoded.into()
    }
}

impl fmt::Display for SharingKey {
    /// A short hash: keys go into logs and file names, node metadata does not (KEY-19).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", xxh3_128(&self.canonical) as u64)
    }
}

impl fmt::Debug for SharingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharingKey({self})")
    }
}

/// What the relay can translate for any client (UP-41).
fn relay_features() -> Vec<String> {
    ["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl", RELAY_MARKER].map(String::from).into()
}

fn content_features(node: &Node) -> Vec<String> {
    let mut features = node.client_features.clone();
    features.retain(|feature| !TRANSPORT_FEATURES.contains(&feature.as_str()));
    features.sort_unstable();
    features.dedup();
    features
}

fn sorted_extensions(node: &Node) -> Vec<crate::proto::node::Extension> {
    let mut extensions = node.extensions.clone();
    extensions.sort_by_cached_key(Message::encode_to_vec);
    extensions
}

fn part(kept: &mut Node) -> &mut Locality {
    kept.locality.get_or_insert_default()
}

fn part_of(node: &Node) -> Locality {
    node.locality.clone().unwrap_or_default()
}

/// Patch releases and build metadata do not change what a control plane configures; major and minor may.
fn major_and_minor(version: &UserAgentVersionType) -> UserAgentVersionType {
    match version {
        UserAgentVersionType::UserAgentVersion(text) => {
            let end = text.match_indices('.').nth(1).map_or(text.len(), |(at, _)| at);
            UserAgentVersionType::UserAgentVersion(text[..end].into())
        }
        UserAgentVersionType::UserAgentBuildVersion(build) => {
            let version = build.version.map(|version| SemanticVersion { patch: 0, ..version });
            UserAgentVersionType::UserAgentBuildVersion(BuildVersion { version, metadata: None })
        }
    }
}

/// Copies the value at `path`, and the objects around it, out of one metadata into another.
fn copy_path(path: &[String], from: &Option<Struct>, to: &mut Option<Struct>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut source = from.as_ref();
    for key in parents {
        source = source.and_then(|object| object.fields.get(key)).and_then(as_object);
    }
    let Some(value) = source.and_then(|object| object.fields.get(last)) else { return };
    let mut target = to.get_or_insert_default();
    for key in parents {
        let child = target.fields.entry(key.clone()).or_insert_with(empty_object);
        if as_object(child).is_none() {
            *child = empty_object();
        }
        let Some(Kind::StructValue(object)) = &mut child.kind else { return };
        target = object;
    }
    target.fields.insert(last.clone(), value.clone());
}

fn as_object(value: &Value) -> Option<&Struct> {
    match &value.kind {
        Some(Kind::StructValue(object)) => Some(object),
        _ => None,
    }
}

fn empty_object() -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields: BTreeMap::new() })) }
}

const LAST_KNOWN_FIELD: u32 = 12;

/// Fields past the last that this build knows, in an order of their own.
fn unknown_fields(encoded_node: &[u8]) -> Vec<u8> {
    let mut unknown: Vec<_> = wire::fields(encoded_node)
        .flatten()
        .filter(|field| field.number > LAST_KNOWN_FIELD)
        .map(|field| (field.number, field.raw))
        .collect();
    unknown.sort_by_key(|(number, _)| *number);
    unknown.into_iter().flat_map(|(_, raw)| raw.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: &str) -> Value {
        Value { kind: Some(Kind::StringValue(value.into())) }
    }

    fn object<const N: usize>(fields: [(&str, Value); N]) -> Struct {
        Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
    }

    fn envoy(id: &str) -> Node {
        Node {
            id: id.into(),
            cluster: "web".into(),
            metadata: Some(object([("tenant", text("a")), ("zone", text("z"))])),
            user_agent_name: "envoy".into(),
            ..Node::default()
        }
    }

    fn key_of(node: &Node) -> SharingKey {
        KeyRule::default().key(&node.encode_to_vec()).unwrap()
    }

    #[test]
    fn key_2_a_listed_value_that_differs_gives_another_key_and_an_unlisted_one_does_not() {
        let other = Node { metadata: Some(object([("tenant", text("b")), ("zone", text("z"))])), ..envoy("1") };
        assert_ne!(key_of(&envoy("1")), key_of(&other));
        let by_zone = KeyRule::of(vec![KeyField::MetadataPath(vec!["zone".into()])]);
        let keys = [envoy("1"), other.clone()].map(|node| by_zone.key(&node.encode_to_vec()).unwrap());
        assert_eq!(keys[0], keys[1]);
        let by_tenant = KeyRule::of(vec![KeyField::MetadataPath(vec!["tenant".into()])]);
        let keys = [envoy("1"), other].map(|node| by_tenant.key(&node.encode_to_vec()).unwrap());
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn key_3_the_id_is_out_by_default_and_in_when_asked_for() {
        assert_eq!(key_of(&envoy("1")), key_of(&envoy("2")));
        let by_id = KeyRule::of(vec![KeyField::Id]);
        let key = |id| by_id.key(&envoy(id).encode_to_vec()).unwrap();
        assert_ne!(key("1"), key("2"));
        assert_eq!(Node::decode(key("1").upstream_node()).unwrap().id, "1");
    }

    #[test]
    fn a_client_without_an_id_is_not_given_one_where_ids_make_the_key() {
        let rule = KeyRule::of(vec![KeyField::Id]);
        let key = rule.key(&[]).unwrap();
        assert_eq!(rule.key(&key.upstream_node()).unwrap(), key);
    }

    #[test]
    fn key_4_metadata_is_compared_canonically() {
        // Two encodings of {a: 1, b: null} whose map entries stand in different order.
        let a = b"\x0a\x0e\x0a\x01a\x12\x09\x11\0\0\0\0\0\0\xf0\x3f";
        let b = b"\x0a\x07\x0a\x01b\x12\x02\x08\0";
        let node = |parts: [&[u8]; 2]| {
            let metadata = parts.concat();
            let mut node = vec![0x1a, metadata.len() as u8];
            node.extend(metadata);
            KeyRule::default().key(&node).unwrap()
        };
        assert_eq!(node([a, b]), node([b, a]));
        let absent = Node { metadata: Some(object([])), ..Node::default() };
        let null =
            Node { metadata: Some(object([("b", Value { kind: Some(Kind::NullValue(0)) })])), ..Node::default() };
        assert_ne!(key_of(&absent), key_of(&null), "null differs from absent");
    }

    #[test]
    fn key_9_transport_features_are_taken_out_and_replaced_upstream() {
        let with = |features: &[&str]| {
            let client_features = features.iter().map(|feature| (*feature).to_owned()).collect();
            key_of(&Node { client_features, ..envoy("1") })
        };
        let plain = with(&["envoy.lb.does_not_support_overprovisioning"]);
        let ttl = with(&["envoy.config.supports-resource-ttl", "envoy.lb.does_not_support_overprovisioning"]);
        assert_eq!(plain, ttl);
        assert_ne!(plain, with(&[]), "features that change content stay in (KEY-7)");
        assert_ne!(plain, with(&["envoy.lb.does_not_support_overprovisioning", "unheard.of"]), "KEY-10");
        let shown = Node::decode(ttl.upstream_node()).unwrap().client_features;
        assert!(!shown.contains(&"envoy.config.supports-resource-ttl".to_owned()), "not as the client spelt it");
        for own in ["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl", RELAY_MARKER] {
            assert!(shown.contains(&own.to_owned()), "{own}: what the relay can read, whoever asks");
        }
    }

    #[test]
    fn wire_7_unknown_fields_belong_to_the_key_and_reach_upstream() {
        let mut encoded = envoy("1").encode_to_vec();
        let known = KeyRule::default().key(&encoded).unwrap();
        encoded.extend(b"\x9a\x06\x01x"); // field 99
        let key = KeyRule::default().key(&encoded).unwrap();
        assert_ne!(key, known);
        assert!(key.upstream_node().windows(4).any(|window| window == b"\x9a\x06\x01x"));
        assert_eq!(KeyRule::default().key(&key.upstream_node()).unwrap(), key);
    }

    #[test]
    fn versions_count_by_major_and_minor() {
        let with = |version: &str| {
            let version = Some(UserAgentVersionType::UserAgentVersion(version.into()));
            key_of(&Node { user_agent_version_type: version, ..envoy("1") })
        };
        assert_eq!(with("1.40.0"), with("1.40.3"));
        assert_ne!(with("1.40.0"), with("1.41.0"));
    }

    #[test]
    fn a_node_that_is_no_message_is_refused() {
        assert_eq!(KeyRule::default().key(&[0x0a, 9]), Err(NodeError));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(|flag| Value { kind: Some(Kind::BoolValue(flag)) }),
            (-9..9i8).prop_map(|number| Value { kind: Some(Kind::NumberValue(number.into())) }),
            "[ab]?".prop_map(|word| text(&word)),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|fields| Value { kind: Some(Kind::StructValue(Struct { fields })) })
        })
    }

    fn field() -> impl Strategy<Value = KeyField> {
        use KeyField::*;
        let plain = vec![Id, Cluster, Region, Locality, SubZone, Metadata, UserAgent, Extensions, ClientFeatures];
        prop_oneof![
            prop::sample::select(plain),
            prop::collection::vec("[a-c]", 1..3).prop_map(MetadataPath),
            Just(Unknown),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_key_of_an_upstream_node_is_the_key_it_was_made_from(
            fields in prop::collection::vec(field(), 0..5),
            metadata in prop::collection::btree_map("[a-c]", value(), 0..3),
            id in "[xy]?", region in "[xy]?", agent in "[0-9](\\.[0-9]){0,3}",
            features in prop::collection::vec("xds.config.resource-in-sotw|f|g", 0..3),
        ) {
            let node = Node {
                id,
                locality: Some(Locality { region, ..Locality::default() }),
                metadata: Some(Struct { fields: metadata }),
                user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(agent)),
                client_features: features,
                ..Node::default()
            };
            let rule = KeyRule::of(fields);
            let key = rule.key(&node.encode_to_vec()).unwrap();
            prop_assert_eq!(&rule.key(&key.upstream_node()).unwrap(), &key);
        }
    }
}

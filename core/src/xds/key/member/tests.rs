use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost_types::{Struct, Value as Json, value::Kind};

use super::*;
use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{Extension, Locality};
use crate::xds::key::RELAY_MARKER;
use crate::xds::{HeaderHashes, KeyField, KeyRule};

const CLAIM: &str = "weir.tenant";

fn text(value: &str) -> Json {
    Json { kind: Some(Kind::StringValue(value.into())) }
}

/// Returns a node with something in each part that a member's node treats specially.
fn gateway(id: &str) -> Node {
    let fields = [("NAMESPACE", text("shop")), ("INSTANCE_IPS", text("10.0.0.7"))];
    Node {
        id: id.into(),
        metadata: Some(Struct { fields: fields.map(|(name, value)| (name.to_owned(), value)).into() }),
        user_agent_name: "envoy".into(),
        extensions: vec![Extension { name: "a".into(), ..Default::default() }],
        client_features: vec!["xds.config.resource-in-sotw".into(), "own.feature".into()],
        ..Node::default()
    }
}

fn claiming(node: Node, tenant: &str) -> Node {
    let mut metadata = node.metadata.clone().unwrap_or_default();
    metadata.fields.insert(CLAIM.into(), text(tenant));
    Node { metadata: Some(metadata), ..node }
}

fn claim_of(node: &MemberNode) -> Option<String> {
    crate::xds::key::claimed_tenant(&Node::decode(node.encoded()).unwrap())
}

#[test]
fn key_9_a_member_is_shown_whole_with_the_features_of_the_relay() {
    let rule = KeyRule::of(vec![KeyField::Cluster]);
    let sent = gateway("router~10.0.0.7~gateway-a.shop~shop.svc");
    let key = rule.key(&sent.encode_to_vec()).unwrap();
    let shown = Node::decode(key.member_node(&sent.encode_to_vec()).unwrap().encoded()).unwrap();
    let mut features = relay_features();
    features.insert(0, "own.feature".into());
    assert_eq!(shown, Node { client_features: features, ..sent });
    assert!(shown.client_features.contains(&RELAY_MARKER.to_owned()));
}

#[test]
fn a_field_that_this_build_does_not_know_is_shown() {
    let mut sent = gateway("a").encode_to_vec();
    sent.extend(b"\x7a\x01x\x82\x01\x01y"); // the fields 15 and 16
    let rule = KeyRule::default();
    let key = rule.key(&sent).unwrap();
    let shown = key.member_node(&sent).unwrap().encoded();
    assert!(shown.windows(7).any(|part| part == b"\x7a\x01x\x82\x01\x01y"));
    assert_eq!(rule.key(&shown).as_ref(), Ok(&key));
}

/// I9: the tenant of a shown client is that of its key, never the one that the client claims.
#[test]
fn i9_a_claim_of_a_client_is_shown_where_it_is_in_the_key_and_nowhere_else() {
    let none = HeaderHashes::default();
    let sent = claiming(gateway("a"), "bank").encode_to_vec();
    let by_tenant = KeyRule::of(vec![KeyField::Cluster, KeyField::Tenant]);
    let judged = by_tenant.key_of_tenant(&sent, Some("shop"), &none).unwrap();
    assert_eq!(claim_of(&judged.member_node(&sent).unwrap()).as_deref(), Some("shop"));
    let without = by_tenant.key_of_tenant(&sent, None, &none).unwrap();
    assert_eq!(claim_of(&without.member_node(&sent).unwrap()), None, "it was judged, and has none");
    let unjudged = by_tenant.key(&sent).unwrap();
    assert_eq!(claim_of(&unjudged.member_node(&sent).unwrap()).as_deref(), Some("bank"), "it shares with no other");
    let for_all = KeyRule::of(Vec::new()).key(&sent).unwrap();
    assert_eq!(claim_of(&for_all.member_node(&sent).unwrap()), None, "one key for all, whatever they claim");
}

/// Encodes one field of a message, of less than 128 bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

/// Returns a node with two entries in each map, written in this order.
fn with_maps(order: [&str; 2]) -> Vec<u8> {
    let of = |name: &str| Struct { fields: [(name.to_owned(), text(name))].into() }.encode_to_vec();
    let flat = order.map(of).concat();
    let nested = field(1, &[field(1, b"nested"), field(2, &field(5, &flat))].concat());
    let parameters = order.map(|name| field(1, &[field(1, name.as_bytes()), field(2, b"1")].concat())).concat();
    let parameters = order.map(|name| field(12, &[field(1, name.as_bytes()), field(2, &parameters)].concat())).concat();
    [field(1, b"a"), field(3, &[flat.clone(), nested].concat()), field(8, &field(2, &flat)), parameters].concat()
}

/// Protobuf gives maps no order, and some languages write them in a different order each time.
#[test]
fn key_4_one_node_is_one_member_in_whatever_order_its_maps_are_written() {
    let [one, other] = [["x", "y"], ["y", "x"]].map(with_maps);
    assert!(one != other && Node::decode(&*one).unwrap() == Node::decode(&*other).unwrap());
    let key = KeyRule::of(vec![KeyField::Cluster, KeyField::Tenant]).key(&one).unwrap();
    let [shown, of_other] = [&one, &other].map(|node| key.member_node(node).unwrap());
    assert_eq!((&shown, shown.encoded(), shown.digest()), (&of_other, of_other.encoded(), of_other.digest()));
    let decoded = Node::decode(shown.encoded()).unwrap();
    assert_eq!(Node { client_features: Vec::new(), ..decoded }, Node::decode(&*one).unwrap());
    let third = key.member_node(&with_maps(["x", "z"])).unwrap();
    assert!(third != shown && third.digest() != shown.digest());
}

#[test]
fn of_two_versions_of_the_user_agent_the_last_one_is_shown() {
    let [text, build] = [field(7, b"1.2"), field(8, &field(1, &[8, 1]))];
    for sent in [[text.clone(), build.clone()].concat(), [build, text].concat()] {
        let key = KeyRule::of(vec![KeyField::UserAgent]).key(&sent).unwrap();
        let shown = Node::decode(key.member_node(&sent).unwrap().encoded()).unwrap();
        assert_eq!(shown.user_agent_version_type, Node::decode(&*sent).unwrap().user_agent_version_type);
    }
}

#[test]
fn a_message_that_cannot_be_read_has_no_member_node() {
    let key = KeyRule::default().key(&[]).unwrap();
    assert_eq!(key.member_node(&[0x0a, 9]), None);
    assert_eq!(key.member_node(&[0x1a, 1, 0xff]), None, "the metadata is none");
}

#[test]
fn what_most_clients_have_in_common_is_apart_from_what_is_their_own() {
    let key = KeyRule::of(Vec::new()).key(&[]).unwrap();
    let [one, other] = ["a", "b"].map(|id| key.member_node(&gateway(id).encode_to_vec()).unwrap());
    assert!(one != other && one.extensions() == other.extensions() && !one.extensions().is_empty());
    assert!(one.own_bytes() < one.encoded().len());
}

fn value() -> impl Strategy<Value = Json> {
    let flat = prop_oneof![
        "[xy]?".prop_map(|of| text(&of)),
        any::<bool>().prop_map(|of| Json { kind: Some(Kind::BoolValue(of)) })
    ];
    flat.prop_recursive(2, 4, 2, |inner| {
        prop::collection::btree_map("[bc]", inner, 0..2)
            .prop_map(|fields| Json { kind: Some(Kind::StructValue(Struct { fields })) })
    })
}

fn metadata() -> impl Strategy<Value = Option<Struct>> {
    let fields = prop::collection::btree_map("[ab]|weir\\.tenant", value(), 0..4);
    prop::option::of(fields.prop_map(|fields: BTreeMap<String, Json>| Struct { fields }))
}

fn key_field() -> impl Strategy<Value = KeyField> {
    use KeyField::*;
    let path = |path: &[&str]| MetadataPath(path.iter().map(ToString::to_string).collect());
    prop::sample::select(vec![
        Id,
        Cluster,
        Locality,
        Region,
        Metadata,
        path(&["a"]),
        path(&["a", "b"]),
        UserAgent,
        Extensions,
        ClientFeatures,
        ListeningAddresses,
        DynamicParameters,
        Unknown,
        Tenant,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    /// KEY-2, I9: the node that is shown for a client has the client's own key, for any key fields, and with or without permissions.
    #[test]
    fn the_key_of_a_members_node_is_the_key_of_the_member(
        fields in prop::collection::vec(key_field(), 0..6),
        metadata in metadata(),
        id in "[xy]?", region in "[xy]?", agent in "[0-9](\\.[0-9]){0,3}",
        features in prop::collection::vec("xds.config.resource-in-sotw|weir.relay|f|g", 0..4),
        extensions in prop::collection::vec("[ef]", 0..3),
        unknown in prop::collection::vec(("[mno]", 13_u8..16), 0..3),
        judged in prop::option::of(prop::option::of("[st]")),
    ) {
        let node = Node {
            id,
            locality: Some(Locality { region, ..Locality::default() }),
            metadata,
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(agent)),
            client_features: features,
            extensions: extensions.into_iter().map(|name| Extension { name, ..Default::default() }).collect(),
            ..Node::default()
        };
        let mut sent = node.encode_to_vec();
        unknown.iter().for_each(|(value, number)| sent.extend([&[number << 3 | 2, 1], value.as_bytes()].concat()));
        let (rule, headers) = (KeyRule::of(fields), HeaderHashes::default());
        let of = |node: &[u8]| match &judged {
            None => rule.key_showing(node, &headers).unwrap(),
            Some(tenant) => rule.key_of_tenant(node, tenant.as_deref(), &headers).unwrap(),
        };
        let key = of(&sent);
        let shown = key.member_node(&sent).unwrap();
        prop_assert_eq!(&of(&shown.encoded()), &key);
        prop_assert_eq!(claim_of(&shown), key.tenant().map(|tenant| tenant.to_string()));
        if judged.is_none() {
            prop_assert_eq!(&rule.key(&shown.encoded()).unwrap(), &key, "the next tier has the same key");
            prop_assert_eq!(key.member_node(&shown.encoded()).unwrap().encoded(), shown.encoded());
        }
    }
}

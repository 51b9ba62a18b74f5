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
fn key_3_the_id_is_out_by_default_and_in_when_requested() {
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
    // Two encodings of {a: 1, b: null} with the map entries in different order.
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
    let null = Node { metadata: Some(object([("b", Value { kind: Some(Kind::NullValue(0)) })])), ..Node::default() };
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
fn a_node_that_is_no_message_is_rejected() {
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
    prop_oneof![prop::sample::select(plain), prop::collection::vec("[a-c]", 1..3).prop_map(MetadataPath), Just(Unknown),]
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

#[test]
fn a_tenant_is_in_the_key_and_leads_back_to_itself_in_the_next_tier() {
    let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::Tenant]);
    let node = Node { cluster: "web".into(), ..envoy("1") }.encode_to_vec();
    let of = |tenant: Option<&str>| rule.key_of_tenant(&node, tenant).unwrap();
    let (pay, bill) = (of(Some("pay")), of(Some("bill")));
    assert!(pay != bill && pay != of(None));
    let upstream = pay.upstream_node();
    assert_eq!(claimed_tenant(&Node::decode(&upstream[..]).unwrap()).as_deref(), Some("pay"));
    assert_eq!(rule.key_of_tenant(&upstream, Some("pay")).unwrap(), pay);
    assert_eq!(rule.key(&upstream).unwrap(), pay, "also where nobody judges");
    assert_eq!(rule.key_of_tenant(&upstream, Some("bill")).unwrap(), bill, "what it states does not count");
    let by_cluster = KeyRule::of(vec![KeyField::Cluster]);
    assert_ne!(by_cluster.key(&upstream), by_cluster.key(&node), "a relay without rules never mixes tenants");
    assert_eq!(by_cluster.key(&by_cluster.key(&upstream).unwrap().upstream_node()), by_cluster.key(&upstream));
    assert_eq!(KeyRule::of(Vec::new()).key(&upstream), KeyRule::of(Vec::new()).key(&node), "the hub has one key");
}

use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost_types::{Value, value::Kind};

mod kept;

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
    let path = || prop::collection::vec("[a-c]", 1..3);
    prop_oneof![
        3 => prop::sample::select(plain),
        2 => path().prop_map(MetadataPath),
        2 => prop::collection::vec(path(), 1..4).prop_map(KeyField::metadata_except),
        2 => (1..4_usize, prop::sample::select(vec!["~", "x", "xx"])).prop_map(|(number, of)| id_part(number, of)),
        1 => Just(Unknown),
    ]
}

fn id_part(number: usize, separator: &str) -> KeyField {
    KeyField::IdPart(IdPart::new(number.try_into().unwrap(), separator).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn the_key_of_an_upstream_node_is_the_key_it_was_made_from(
        fields in prop::collection::vec(field(), 0..5),
        metadata in prop::collection::btree_map("[a-c]", value(), 0..3),
        id in "[xy~]{0,6}", region in "[xy]?", agent in "[0-9](\\.[0-9]){0,3}",
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
        let encoded = node.encode_to_vec();
        let key = rule.key(&encoded).unwrap();
        prop_assert_eq!(&rule.key(&key.upstream_node()).unwrap(), &key);
        prop_assert_eq!(key.parts(&rule), rule.parts(&encoded));
    }
}

#[test]
fn a_tenant_is_in_the_key_and_leads_back_to_itself_in_the_next_tier() {
    let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::Tenant]);
    let node = Node { cluster: "web".into(), ..envoy("1") }.encode_to_vec();
    let of = |tenant: Option<&str>| rule.key_of_tenant(&node, tenant, &HeaderHashes::default()).unwrap();
    let (pay, bill) = (of(Some("pay")), of(Some("bill")));
    assert!(pay != bill && pay != of(None));
    let upstream = pay.upstream_node();
    assert_eq!(claimed_tenant(&Node::decode(&upstream[..]).unwrap()).as_deref(), Some("pay"));
    assert_eq!(rule.key_of_tenant(&upstream, Some("pay"), &HeaderHashes::default()).unwrap(), pay);
    assert_eq!(rule.key(&upstream).unwrap(), pay, "also where nobody judges");
    assert_eq!(
        rule.key_of_tenant(&upstream, Some("bill"), &HeaderHashes::default()).unwrap(),
        bill,
        "what it states does not count"
    );
    let by_cluster = KeyRule::of(vec![KeyField::Cluster]);
    assert_ne!(by_cluster.key(&upstream), by_cluster.key(&node), "a relay without rules never mixes tenants");
    assert_eq!(by_cluster.key(&by_cluster.key(&upstream).unwrap().upstream_node()), by_cluster.key(&upstream));
    assert_eq!(KeyRule::of(Vec::new()).key(&upstream), KeyRule::of(Vec::new()).key(&node), "the hub has one key");
}

/// Returns a node that has something in each field.
fn full() -> Node {
    let version = SemanticVersion { major_number: 1, minor_number: 31, patch: 2 };
    let build = BuildVersion { version: Some(version), metadata: Some(object([("b", text("b"))])) };
    let extension = |name: &str| crate::proto::node::Extension { name: name.into(), ..Default::default() };
    Node {
        locality: Some(Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() }),
        metadata: Some(object([("a", object_value([("b", text("deep"))])), ("c", text("flat"))])),
        build_version: "v2".into(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
        extensions: vec![extension("e"), extension("f")],
        client_features: vec!["f".into(), "g".into()],
        listening_addresses: vec![Bytes::from_static(b"one")],
        dynamic_parameters: [("t".to_owned(), context("1"))].into(),
        ..envoy("1")
    }
}

fn object_value<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value { kind: Some(Kind::StructValue(object(fields))) }
}

fn context(value: &str) -> crate::proto::node::ContextParams {
    crate::proto::node::ContextParams { params: [("p".to_owned(), value.to_owned())].into() }
}

/// Returns changes of single fields of a node, each with its name and the parts of the node that it changes.
fn changes() -> Vec<(&'static str, Vec<&'static str>, Node)> {
    let full = full();
    let place = |change: fn(&mut Locality)| {
        let mut node = full.clone();
        change(node.locality.as_mut().unwrap());
        node
    };
    let build = |minor_number| {
        let version = Some(SemanticVersion { major_number: 1, minor_number, patch: 2 });
        Some(UserAgentVersionType::UserAgentBuildVersion(BuildVersion { version, metadata: None }))
    };
    let metadata = |deep: &str, flat: &str| Some(object([("a", object_value([("b", text(deep))])), ("c", text(flat))]));
    let extension = crate::proto::node::Extension { name: "e".into(), disabled: true, ..Default::default() };
    vec![
        ("id", vec!["id"], Node { id: "2".into(), ..full.clone() }),
        ("cluster", vec!["cluster"], Node { cluster: "other".into(), ..full.clone() }),
        ("region", vec!["locality", "locality.region"], place(|place| place.region = "x".into())),
        ("zone", vec!["locality", "locality.zone"], place(|place| place.zone = "x".into())),
        ("sub_zone", vec!["locality", "locality.sub_zone"], place(|place| place.sub_zone = "x".into())),
        ("deep", vec!["metadata", "metadata.a.b"], Node { metadata: metadata("x", "flat"), ..full.clone() }),
        ("flat", vec!["metadata"], Node { metadata: metadata("deep", "x"), ..full.clone() }),
        ("agent", vec!["user_agent"], Node { user_agent_name: "other".into(), ..full.clone() }),
        ("version", vec!["user_agent"], Node { user_agent_version_type: build(32), ..full.clone() }),
        ("v2 version", vec!["user_agent"], Node { build_version: "x".into(), ..full.clone() }),
        ("extension", vec!["extensions"], Node { extensions: vec![extension], ..full.clone() }),
        ("feature", vec!["client_features"], Node { client_features: vec!["f".into()], ..full.clone() }),
        ("address", vec!["listening_addresses"], Node { listening_addresses: Vec::new(), ..full.clone() }),
        (
            "parameters",
            vec!["dynamic_parameters"],
            Node { dynamic_parameters: [("t".to_owned(), context("2"))].into(), ..full.clone() },
        ),
    ]
}

const FIELDS: [&str; 13] = [
    "id",
    "cluster",
    "locality",
    "locality.region",
    "locality.zone",
    "locality.sub_zone",
    "metadata",
    "metadata.a.b",
    "user_agent",
    "extensions",
    "client_features",
    "listening_addresses",
    "dynamic_parameters",
];

#[test]
fn key_2_a_key_of_one_field_differs_by_that_field_and_by_no_other() {
    for field in FIELDS {
        let rule = KeyRule::of(vec![KeyField::parse(field).unwrap()]);
        let key = |node: &Node| rule.key(&node.encode_to_vec()).unwrap();
        for (change, of, node) in changes() {
            assert_eq!(key(&node) != key(&full()), of.contains(&field), "{field}: a change of {change}");
        }
        assert_ne!(key(&full()), key(&Node::default()), "{field}: a node without it");
        assert_eq!(rule.key(&key(&full()).upstream_node()).unwrap(), key(&full()), "{field}");
    }
}

#[test]
fn key_3_the_default_key_has_every_field_but_the_id_and_the_addresses() {
    for (change, _, node) in changes() {
        assert_eq!(key_of(&node) == key_of(&full()), ["id", "address"].contains(&change), "{change}");
    }
}

#[test]
fn key_20_what_operators_are_shown_of_a_field_differs_where_the_key_does() {
    for field in FIELDS {
        let rule = KeyRule::of(vec![KeyField::parse(field).unwrap()]);
        let shown = |node: &Node| rule.parts(&node.encode_to_vec()).remove(0).1;
        for (change, of, node) in changes() {
            // Of addresses only their number is shown. A v2 version is shown only if the node has no other version.
            let is_shown = of.contains(&field) && change != "v2 version";
            assert_eq!(shown(&node) != shown(&full()), is_shown, "{field}: a change of {change}");
        }
        assert_eq!(shown(&Node::default()), "", "{field}");
    }
    let shown =
        |field: &str| KeyRule::of(vec![KeyField::parse(field).unwrap()]).parts(&full().encode_to_vec()).remove(0).1;
    assert_eq!(["locality", "locality.zone", "user_agent"].map(shown), ["r/z/s", "z", "envoy 1.31"]);
    assert_eq!(["metadata.a.b", "client_features"].map(shown), ["\"deep\"", "f g"]);
}

#[test]
fn key_4_the_order_of_lists_that_are_sets_and_the_patch_of_a_version_do_not_count() {
    let mut turned = full();
    turned.extensions.reverse();
    turned.client_features = vec!["g".into(), "f".into(), "g".into(), "envoy.config.resource-in-sotw".into()];
    let version = Some(SemanticVersion { major_number: 1, minor_number: 31, patch: 7 });
    let build = BuildVersion { version, metadata: Some(object([("b", text("another build"))])) };
    turned.user_agent_version_type = Some(UserAgentVersionType::UserAgentBuildVersion(build));
    assert_eq!(key_of(&turned), key_of(&full()));
}

#[test]
fn key_4_a_place_without_a_name_and_metadata_with_nothing_but_a_tenant_are_like_none() {
    let plain = Node { cluster: "web".into(), ..Node::default() };
    let placed = Node { locality: Some(Locality::default()), ..plain.clone() };
    assert_eq!(key_of(&placed), key_of(&plain));
    let claims = Node { metadata: Some(object([(tenant::TENANT, text("pay"))])), ..plain.clone() };
    let judged = |node: &Node| {
        KeyRule::default().key_of_tenant(&node.encode_to_vec(), Some("bill"), &HeaderHashes::default()).unwrap()
    };
    assert_eq!(judged(&claims), judged(&plain), "what it claims is no part of the key");
    assert_ne!(key_of(&claims), key_of(&plain));
}

fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).unwrap()
}

fn hashes<const N: usize>(hashes: [(&str, &str); N]) -> HeaderHashes {
    HeaderHashes::of(hashes.map(|(name, hash)| (header(name), hash.to_owned())))
}

#[test]
fn a_header_in_the_key_tells_clients_apart_by_its_hash_and_one_that_is_missing_is_another_value() {
    let rule = KeyRule::of(vec![KeyField::Id, KeyField::parse("header.x-token").unwrap()]);
    let node = envoy("1").encode_to_vec();
    let key = |headers: &HeaderHashes| rule.key_showing(&node, headers).unwrap();
    let (one, other, none) = (key(&hashes([("x-token", "a")])), key(&hashes([("x-token", "b")])), key(&hashes([])));
    assert!(one != other && one != none && other != none);
    assert_eq!(one, key(&hashes([("x-token", "a"), ("x-other", "b")])), "a header that is not in the key");
    assert_eq!(none, key(&hashes([("x-other", "b")])));
    let shown = [&one, &other, &none].map(ToString::to_string);
    assert!(shown[0] != shown[1] && shown[0] != shown[2] && shown[1] != shown[2], "{shown:?}");
    assert_eq!(one.upstream_node(), other.upstream_node(), "servers are shown the header, and not its hash");
    assert_eq!(one.parts(&rule)[1].1, "a");
    assert_eq!(none.parts(&rule)[1].1, "");
    let judged = |headers| rule.key_of_tenant(&node, None, headers).unwrap();
    assert_eq!(judged(one.headers()), one);
    assert_ne!(judged(one.headers()), judged(other.headers()));
}

#[test]
fn a_key_without_headers_is_called_as_it_was_before_there_were_any() {
    let node = envoy("1").encode_to_vec();
    let with = KeyRule::of([KeyRule::default().fields(), &[KeyField::parse("header.x-token").unwrap()]].concat());
    assert_eq!(with.key(&node).unwrap().to_string(), KeyRule::default().key(&node).unwrap().to_string());
}

#[test]
fn names_of_headers_are_those_that_a_client_may_choose() {
    for name in ["x-consul-token", "token", "x_y.z-1"] {
        let field = KeyField::parse(&format!("header.{name}")).unwrap();
        assert_eq!(field.to_string(), format!("header.{name}"));
        assert!(!field.is_text());
    }
    use HeaderNameFault::*;
    for (name, fault) in [
        ("", Spelling),
        ("X-Token", Spelling),
        (":path", Spelling),
        ("a b", Spelling),
        ("x\u{e4}", Spelling),
        (&*"a".repeat(257), Spelling),
        ("authorization", Authorization),
        ("proxy-authorization", Reserved),
        ("connection", Reserved),
        ("te", Reserved),
        ("host", Reserved),
        ("user-agent", Reserved),
        ("grpc-timeout", Reserved),
        ("content-type", Reserved),
        ("weir-relay", Reserved),
        ("x-trace-bin", Binary),
    ] {
        assert_eq!(HeaderName::parse(name), Err(fault), "{name}");
        assert_eq!(KeyField::parse(&format!("header.{name}")), None, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    /// I9: clients share a view if and only if they are equal in everything that the key is made of. The key of the key's node is the key itself.
    #[test]
    fn clients_share_if_and_only_if_their_nodes_and_headers_are_equal_in_the_key(
        clients in prop::collection::vec(("[xy]?", prop::option::of("[ab]"), prop::option::of("[ab]"), "[12]"), 2..6),
    ) {
        let rule = KeyRule::of(["id", "header.x-one", "header.x-two"].map(|field| KeyField::parse(field).unwrap()).into());
        let keys: Vec<_> = clients.iter().map(|(id, one, two, unlisted)| {
            let node = Node { id: id.clone(), cluster: unlisted.clone(), ..Node::default() };
            let given = [("x-one", one.as_ref()), ("x-two", two.as_ref()), ("x-three", Some(unlisted))];
            let headers = given.into_iter().filter_map(|(name, hash)| Some((header(name), hash?.clone())));
            rule.key_showing(&node.encode_to_vec(), &HeaderHashes::of(headers)).unwrap()
        }).collect();
        for (at, (id, one, two, _)) in clients.iter().enumerate() {
            for (other, (other_id, other_one, other_two, _)) in clients.iter().enumerate() {
                let are_equal = (id, one, two) == (other_id, other_one, other_two);
                prop_assert_eq!(keys[at] == keys[other], are_equal);
                prop_assert_eq!(keys[at].to_string() == keys[other].to_string(), are_equal);
            }
            let again = rule.key_showing(&keys[at].upstream_node(), keys[at].headers()).unwrap();
            prop_assert_eq!(&again, &keys[at]);
        }
    }
}

//! Keys that leave something out: all metadata except some values, and single parts of an id.

use super::*;

fn except(paths: &[&str]) -> KeyField {
    KeyField::metadata_except(paths.iter().map(|path| KeyField::metadata_path(path).unwrap()).collect())
}

/// Returns a rule with all fields of the default key except some values of the metadata, and with two parts of the id.
fn by_what_is_left_out(paths: &[&str]) -> KeyRule {
    let mut fields = KeyRule::default().fields().to_vec();
    fields.retain(|field| *field != KeyField::Metadata);
    fields.extend([except(paths), id_part(1, "~"), id_part(4, "~")]);
    KeyRule::of(fields)
}

fn key_by(rule: &KeyRule, node: &Node) -> SharingKey {
    let key = rule.key(&node.encode_to_vec()).unwrap();
    assert_eq!(rule.key(&key.upstream_node()).unwrap(), key, "the next tier has the same key");
    key
}

fn node_with(metadata: Option<Struct>) -> Node {
    Node { metadata, ..envoy("1") }
}

#[test]
fn key_2_only_what_is_left_out_joins_and_each_other_field_splits() {
    let rule = by_what_is_left_out(&["a.b"]);
    for (change, _, node) in changes() {
        let is_left_out = ["deep", "address"].contains(&change);
        assert_eq!(key_by(&rule, &node) == key_by(&rule, &full()), is_left_out, "{change}");
    }
    let mut planted = full();
    planted.metadata.as_mut().unwrap().fields.insert("UNHEARD_OF".into(), text("1"));
    assert_ne!(key_by(&rule, &planted), key_by(&rule, &full()), "a field that the operator has not thought of");
    // With a rule that also leaves out this field, the check above would fail.
    let faulty = by_what_is_left_out(&["a.b", "UNHEARD_OF"]);
    assert_eq!(key_by(&faulty, &planted), key_by(&faulty, &full()));
}

#[test]
fn key_4_what_is_left_out_leaves_the_objects_around_it() {
    let rule = KeyRule::of(vec![except(&["a.b", "c"])]);
    let of = |metadata: Option<Struct>| key_by(&rule, &node_with(metadata));
    let inner = |object: Value| Some(object_named("a", object));
    let (with, emptied) = (inner(object_value([("b", text("1"))])), inner(object_value([])));
    assert_eq!(of(with.clone()), of(emptied.clone()), "as if it had never been there");
    assert_ne!(of(emptied), of(None), "an object that is there, and empty, differs from none");
    let shown = Node::decode(of(with).upstream_node()).unwrap();
    assert_eq!(shown.metadata, inner(object_value([])));
    for nothing in [Some(object([])), Some(object([("c", text("1"))])), None] {
        assert_eq!(of(nothing.clone()), of(None), "{nothing:?}: metadata of which nothing is left");
    }
}

#[test]
fn key_4_a_path_through_a_list_or_a_single_value_leaves_nothing_out() {
    let rule = KeyRule::of(vec![except(&["a.b", "d.e.f"])]);
    let list = |word: &str| {
        let values = vec![object_value([("b", text(word))])];
        Value { kind: Some(Kind::ListValue(prost_types::ListValue { values })) }
    };
    let of = |value: Value| key_by(&rule, &node_with(Some(object_named("a", value))));
    assert_ne!(of(list("1")), of(list("2")));
    assert_ne!(of(text("1")), of(text("2")));
    assert_ne!(of(text("1")), of(object_value([])));
    assert_eq!(of(object_value([("b", list("1"))])), of(object_value([("b", text("2"))])), "whatever the value is");
}

#[test]
fn key_4_a_listed_value_below_one_that_is_left_out_is_in_the_key_wherever_it_is_listed() {
    let labels = |app: &str, hash: &str| {
        let labels = object_value([("app", text(app)), ("hash", text(hash))]);
        node_with(Some(object([("LABELS", labels), ("NAME", text(hash))])))
    };
    let app = KeyField::parse("metadata.LABELS.app").unwrap();
    for fields in [vec![app.clone(), except(&["LABELS", "NAME"])], vec![except(&["LABELS", "NAME"]), app]] {
        let rule = KeyRule::of(fields);
        assert_eq!(key_by(&rule, &labels("web", "1")), key_by(&rule, &labels("web", "2")));
        assert_ne!(key_by(&rule, &labels("web", "1")), key_by(&rule, &labels("pay", "1")));
    }
}

#[test]
fn key_5_a_part_of_an_id_keeps_its_place_and_the_parts_before_it_are_empty() {
    let id = "router~10.0.0.1~gateway-1.shop~shop.svc";
    for (parts, shown) in [
        (vec![1], "router"),
        (vec![2], "~10.0.0.1"),
        (vec![4, 1], "router~~~shop.svc"),
        (vec![1, 2, 3, 4], id),
        (vec![5], ""),
        (vec![1, 9], "router"),
    ] {
        let rule = KeyRule::of(parts.iter().map(|number| id_part(*number, "~")).collect());
        let key = key_by(&rule, &envoy(id));
        assert_eq!(Node::decode(key.upstream_node()).unwrap().id, shown, "{parts:?}");
    }
    let rule = KeyRule::of(vec![id_part(1, "~"), id_part(4, "~")]);
    let of = |id: &str| key_by(&rule, &envoy(id));
    assert_eq!(of(id), of("router~10.0.0.2~gateway-2.shop~shop.svc"));
    assert_ne!(of(id), of("sidecar~10.0.0.1~gateway-1.shop~shop.svc"));
    assert_ne!(of(id), of("router~10.0.0.1~gateway-1.shop~pay.svc"));
    assert_eq!(of("router"), of("router~10.0.0.2"), "a part that is not there is an empty one");
    assert_eq!(of("router~~~"), of("router"));
}

#[test]
fn key_2_fields_that_contradict_one_another_split_rather_than_join() {
    let node = |id: &str, name: &str| Node { metadata: Some(object([("NAME", text(name))])), ..envoy(id) };
    for fields in [
        vec![id_part(1, "~"), id_part(1, ".")],
        vec![KeyField::Id, id_part(1, "~")],
        vec![id_part(1, "~"), KeyField::Id],
    ] {
        let rule = KeyRule::of(fields);
        assert_ne!(key_by(&rule, &node("a~1", "x")), key_by(&rule, &node("a~2", "x")), "the whole id counts");
    }
    for fields in [
        vec![except(&["NAME"]), except(&["OTHER"])],
        vec![except(&["NAME"]), KeyField::Metadata],
        vec![KeyField::Metadata, except(&["NAME"])],
    ] {
        let rule = KeyRule::of(fields);
        assert_ne!(key_by(&rule, &node("1", "x")), key_by(&rule, &node("1", "y")), "all of the metadata counts");
    }
}

#[test]
fn key_20_fields_by_what_is_left_out_are_shown_as_they_are_written_and_with_what_is_left() {
    let rule = KeyRule::of(vec![id_part(4, "~"), id_part(2, "~"), except(&["NAME", "LABELS.hash", "a b"])]);
    let names: Vec<_> = rule.fields().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["id part 4 of ~", "id part 2 of ~", "metadata except LABELS.hash, NAME, \"a b\""]);
    assert_eq!(except(&["b", "a", "b"]), except(&["a", "b"]), "their order does not count");
    let metadata = object([("NAME", text("1")), ("ZONE", text("z"))]);
    let node = Node { metadata: Some(metadata), ..envoy("router~10.0.0.1") };
    let shown: Vec<_> = rule.parts(&node.encode_to_vec()).into_iter().map(|(_, words)| words).collect();
    assert_eq!(shown, ["", "10.0.0.1", "{\"ZONE\":\"z\"}"]);
    assert!(rule.fields().iter().all(|field| !field.is_text()));
    assert_eq!(IdPart::new(1_usize.try_into().unwrap(), ""), None);
}

#[test]
fn a_tenant_stays_beside_metadata_of_which_some_is_left_out() {
    let rule = KeyRule::of(vec![except(&["NAME"]), KeyField::Tenant]);
    let node = node_with(Some(object([("NAME", text("1")), (tenant::TENANT, text("bill"))]))).encode_to_vec();
    let of = |node: &[u8], tenant| rule.key_of_tenant(node, tenant, &HeaderHashes::default()).unwrap();
    let pay = of(&node, Some("pay"));
    assert_eq!(of(&pay.upstream_node(), Some("pay")), pay);
    assert_eq!(rule.key(&pay.upstream_node()).unwrap(), pay, "also where no rule judges");
    assert_ne!(of(&node, None), pay);
    assert_eq!(pay.tenant().as_deref(), Some("pay"));
}

#[test]
fn a_key_of_whole_fields_is_the_encoding_of_these_fields_as_before_there_were_others() {
    let rule =
        KeyRule::of(["id", "cluster", "metadata", "metadata.c"].map(|field| KeyField::parse(field).unwrap()).into());
    let metadata = full().metadata;
    let expected = Node { id: "1".into(), cluster: "web".into(), metadata, ..Node::default() };
    assert_eq!(*key_by(&rule, &full()).canonical, *expected.encode_to_vec());
    let empty = Node { metadata: Some(object([])), ..Node::default() };
    let rule = KeyRule::of(vec![KeyField::Metadata]);
    assert_eq!(*key_by(&rule, &empty).canonical, *empty.encode_to_vec());
}

fn object_named(key: &str, value: Value) -> Struct {
    Struct { fields: [(key.to_owned(), value)].into() }
}

/// Sets the value at a path, and creates the objects around it.
fn set(path: &[String], value: &str, into: &mut Struct) {
    match path {
        [] => {}
        [last] => {
            into.fields.insert(last.clone(), text(value));
        }
        [key, rest @ ..] => {
            let mut inner = match into.fields.remove(key) {
                Some(Value { kind: Some(Kind::StructValue(inner)) }) => inner,
                _ => Struct::default(),
            };
            set(rest, value, &mut inner);
            into.fields.insert(key.clone(), Value { kind: Some(Kind::StructValue(inner)) });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn key_2_a_value_joins_if_and_only_if_its_path_begins_with_one_that_is_left_out(
        left_out in prop::collection::vec(prop::collection::vec("[a-c]", 1..4), 1..4),
        metadata in prop::collection::btree_map("[a-c]", value(), 0..3),
        path in prop::collection::vec("[a-c]", 1..4),
    ) {
        let with = |value: &str| {
            let mut metadata = Struct { fields: metadata.clone() };
            set(&path, value, &mut metadata);
            node_with(Some(metadata))
        };
        let rule = KeyRule::of(vec![KeyField::metadata_except(left_out.clone())]);
        let is_left_out = left_out.iter().any(|of| path.starts_with(of));
        prop_assert_eq!(key_by(&rule, &with("1")) == key_by(&rule, &with("2")), is_left_out);
    }

    #[test]
    fn key_2_ids_join_if_and_only_if_the_parts_of_the_key_are_equal(
        parts in prop::collection::vec(1..4_usize, 1..3), of in prop::sample::select(vec!["~", "xx"]),
        ids in prop::collection::vec("[x~y]{0,6}", 2..4),
    ) {
        let rule = KeyRule::of(parts.iter().map(|number| id_part(*number, of)).collect());
        let of_id = |id: &str| -> Vec<String> {
            let split: Vec<_> = id.split(of).collect();
            parts.iter().map(|number| split.get(number - 1).copied().unwrap_or_default().to_owned()).collect()
        };
        for one in &ids {
            for other in &ids {
                let are_equal = of_id(one) == of_id(other);
                prop_assert_eq!(key_by(&rule, &envoy(one)) == key_by(&rule, &envoy(other)), are_equal);
            }
        }
    }
}

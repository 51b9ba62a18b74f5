//! The result is the same in however many slices a response is read, and whatever is remembered of the response before it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::xds::Name;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

fn body(name: &str, content: &str) -> Bytes {
    let mut body = Vec::new();
    prost::encoding::string::encode(1, &name.to_owned(), &mut body);
    prost::encoding::string::encode(28, &content.to_owned(), &mut body);
    body.into()
}

fn cluster(name: &str, content: &str) -> Any {
    Any { type_url: CDS.into(), value: body(name, content) }
}

fn sotw(resources: Vec<Any>) -> Response {
    let (type_url, nonce) = (CDS.to_owned(), "1".to_owned());
    Response::Sotw(DiscoveryResponse { resources, type_url, nonce, version_info: "v".into(), ..Default::default() })
}

fn delta(resources: Vec<discovery::Resource>) -> Response {
    let removed_resources = vec!["removed".to_owned()];
    let (type_url, nonce) = (CDS.to_owned(), "1".to_owned());
    Response::Delta(DeltaDiscoveryResponse { resources, type_url, nonce, removed_resources, ..Default::default() })
}

fn encoded(response: &Response) -> ResponseMessage {
    match response {
        Response::Sotw(response) => ResponseMessage::Encoded(Variant::Sotw, response.encode_to_vec().into()),
        Response::Delta(response) => ResponseMessage::Encoded(Variant::Delta, response.encode_to_vec().into()),
    }
}

fn read(
    message: ResponseMessage,
    slice: usize,
    store: &BodyStore,
    recent: &mut RecentSets,
) -> Result<ReceivedResponse, UnreadableResponse> {
    let mut parser = ResponseParser::new(message, &TypeTable::new(), recent)?;
    while parser.step(store, slice)? {}
    Ok(parser.finish(recent))
}

/// Makes one of a few names, so that some are sent twice.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => (0..40u8).prop_map(|number| format!("name-{number:02}")), 1 => Just(String::new())]
}

fn any() -> impl Strategy<Value = Any> {
    let bare = || (name(), "[ab]").prop_map(|(name, content)| cluster(&name, &content));
    let wrapped = wrapper().prop_map(|wrapper| Any { type_url: WRAPPER.into(), value: wrapper.encode_to_vec().into() });
    let broken = Just(Any { type_url: WRAPPER.into(), value: Bytes::from_static(b"\x0a\xff") });
    let foreign = Just(Any { type_url: "x/other.Type".into(), value: Bytes::new() });
    prop_oneof![8 => bare(), 2 => wrapped, 1 => broken, 1 => foreign, 1 => Just(Any::default())]
}

fn wrapper() -> impl Strategy<Value = discovery::Resource> {
    let resource = proptest::option::weighted(0.8, (name(), "[ab]"));
    let aliases = proptest::collection::vec(name(), 0..2);
    (name(), "[12]", resource, aliases, proptest::option::of(1..9i64)).prop_map(
        |(name, version, body, aliases, ttl)| discovery::Resource {
            name,
            version,
            resource: body.map(|(name, content)| cluster(&name, &content)),
            aliases,
            ttl: ttl.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
            ..Default::default()
        },
    )
}

fn response() -> impl Strategy<Value = Response> {
    let ascending = proptest::collection::btree_map(name(), "[ab]", 0..30)
        .prop_map(|set| sotw(set.iter().map(|(name, content)| cluster(name, content)).collect()));
    prop_oneof![
        ascending,
        proptest::collection::vec(any(), 0..30).prop_map(sotw),
        proptest::collection::vec(wrapper(), 0..30).prop_map(delta),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn slices_and_memory_change_nothing(responses in proptest::collection::vec(response(), 1..4), slice in 1..2_000usize) {
        let store = BodyStore::default();
        let (mut recent, mut kept) = (RecentSets::default(), Vec::new());
        for response in &responses {
            let decoded = ResponseMessage::Decoded(response.clone());
            let mut whole = read(decoded, usize::MAX, &store, &mut RecentSets::default()).unwrap();
            let sliced = read(encoded(response), slice, &store, &mut RecentSets::default()).unwrap();
            let remembered = read(encoded(response), slice, &store, &mut recent).unwrap();
            whole.bytes = sliced.bytes; // the size of the message, which a decoded one does not know
            prop_assert_eq!(format!("{whole:?}"), format!("{sliced:?}"));
            prop_assert_eq!(format!("{whole:?}"), format!("{remembered:?}"));
            kept.push(remembered); // so that the next response finds it among the recent sets
        }
    }
}

/// If the unusable entry came last, the name would be both good and rejected.
#[test]
fn up_22_of_two_entries_of_a_name_neither_is_trusted_in_whichever_order_they_come() {
    let good = Any { type_url: WRAPPER.into(), value: wrapped("a", CDS).encode_to_vec().into() };
    let foreign = Any { type_url: WRAPPER.into(), value: wrapped("a", "x/other.Type").encode_to_vec().into() };
    for entries in [[good.clone(), foreign.clone()], [foreign, good]] {
        let message = encoded(&sotw([&entries[..], &[cluster("b", "a")]].concat()));
        let response = read(message, usize::MAX, &BodyStore::default(), &mut RecentSets::default()).unwrap();
        assert_eq!(response.usable_names().map(Name::as_str).collect::<Vec<_>>(), ["b"]);
        assert_eq!(response.rejected_names().map(Name::as_str).collect::<Vec<_>>(), ["a"]);
        let (faults, text) = (response.faults(), response.nack_message().unwrap());
        assert!(!faults.is_empty() && faults.iter().all(|fault| text.contains(&fault.to_string())), "{text}");
    }
}

fn wrapped(name: &str, type_url: &str) -> discovery::Resource {
    let resource = Some(Any { type_url: type_url.into(), value: body(name, "") });
    discovery::Resource { name: name.into(), resource, ..Default::default() }
}

#[test]
fn a_slice_ends_with_the_entry_that_fills_it() {
    let clusters = (0..10).map(|number| cluster(&format!("{number}"), &"x".repeat(1_000)));
    let wrapped = |any: Any| discovery::Resource { resource: Some(any), ..Default::default() };
    for response in [sotw(clusters.clone().collect()), delta(clusters.map(wrapped).collect())] {
        for message in [encoded(&response), ResponseMessage::Decoded(response.clone())] {
            let (store, mut recent) = (BodyStore::default(), RecentSets::default());
            let mut parser = ResponseParser::new(message, &TypeTable::new(), &mut recent).unwrap();
            for expected in [3, 6, 9] {
                assert!(parser.step(&store, 3_000).unwrap());
                assert_eq!(parser.response.resources.count, expected);
            }
            assert!(!parser.step(&store, 3_000).unwrap());
        }
    }
}

#[test]
fn a_message_that_is_cut_off_is_unreadable_wherever_that_would_be_so() {
    let wrapper = discovery::Resource { name: "b".into(), resource: Some(cluster("b", "1")), ..Default::default() };
    for response in [sotw(vec![cluster("a", "1"), cluster("b", "2")]), delta(vec![wrapper])] {
        let ResponseMessage::Encoded(variant, message) = encoded(&response) else { unreachable!() };
        for end in 0..message.len() {
            let part = || ResponseMessage::Encoded(variant, message.slice(..end));
            let ours = read(part(), usize::MAX, &BodyStore::default(), &mut RecentSets::default());
            assert_eq!(ours.is_ok(), part().decode().is_ok(), "{variant:?} up to {end}");
        }
    }
}

#[test]
fn removals_count_in_either_field_and_free_what_is_cached_once() {
    let (store, mut recent) = (BodyStore::default(), RecentSets::default());
    let set = sotw(vec![cluster("removed", "1"), cluster("other", "2")]);
    let held = read(encoded(&set), usize::MAX, &store, &mut recent).unwrap().resources.good;
    let Response::Delta(mut response) = delta(Vec::new()) else { unreachable!() };
    for name in ["removed", "other", "unknown"] {
        response.removed_resource_names.push(discovery::ResourceName { name: name.into(), ..Default::default() });
    }
    let removing = read(encoded(&Response::Delta(response)), usize::MAX, &store, &mut recent).unwrap();
    assert_eq!((removing.summary().removed, removing.entries()), (4, 4));
    let each = 10;
    let freed = removing.frees(each, |name| held.get(name), std::iter::empty());
    assert_eq!(freed, held.values().map(|resource| resource.body.bytes().len() + each).sum::<usize>());
}

#[test]
fn what_is_unchanged_in_the_next_set_is_the_same_resource() {
    let (store, mut recent) = (BodyStore::default(), RecentSets::default());
    let set = |numbers: &[usize], changed: usize| {
        let content = |number| if number == changed { "new" } else { "old" };
        sotw(numbers.iter().map(|number| cluster(&format!("name-{number:02}"), content(*number))).collect())
    };
    let all: Vec<_> = (0..50).collect();
    let mut before = read(encoded(&set(&all, 99)), usize::MAX, &store, &mut recent).unwrap();
    let without: Vec<_> = all.iter().copied().filter(|number| ![0, 30, 31].contains(number)).collect();
    for (numbers, changed) in [(&all, 20), (&all, 20), (&without, 20), (&all, 20)] {
        let after = read(encoded(&set(numbers, changed)), usize::MAX, &store, &mut recent).unwrap();
        let is_same = |number: &&usize| {
            let name = Name::from(format!("name-{number:02}").as_str());
            let [one, other] = [&before, &after].map(|set| set.resources.good.get(&name));
            one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        let others = numbers.iter().filter(|number| !is_same(number)).count();
        let expected = numbers.iter().filter(|number| before_lacks(&before, **number, changed)).count();
        assert_eq!(others, expected);
        before = after;
    }
}

/// Whether the set before lacks a resource of this number with the same content.
fn before_lacks(before: &ReceivedResponse, number: usize, changed: usize) -> bool {
    let name = format!("name-{number:02}");
    let content = if number == changed { "new" } else { "old" };
    let held = before.resources.good.get(&Name::from(name.as_str()));
    held.is_none_or(|held| *held.body.bytes() != body(&name, content))
}

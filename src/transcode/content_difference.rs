//! Finds where two messages of one type differ. Their contents are compared: maps in any order, and the bodies of Anys by their fields if there is a
//! descriptor, otherwise by their bytes.
//!
//! Always: a result has nothing that is sensitive, and no bytes of anything without a descriptor.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};
use serde::Serialize;
use serde_json::Value as Json;
use weir_core::xds::KeyField;

use super::encode::key_text;
use super::error::{FieldPath, Step};
use super::from_json::FromJson;
use super::to_json::{REDACTED, ToJson};
use super::{ANY, MAX_DEPTH, Strictness, UnknownAny, body_of, decode, is_special, type_name};

/// A place in which two messages differ, with the value on each side; `None` if a side has nothing there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContentDifference {
    /// The path, such as `filter_chains[0].filters[1].typed_config.stat_prefix`; empty if the messages differ as a whole.
    pub path: String,
    /// What the first message has, as JSON without what is sensitive.
    pub first: Option<Json>,
    /// What the second message has, in the same form.
    pub second: Option<Json>,
}

impl fmt::Display for ContentDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "all of it" } else { &self.path };
        let hidden = |side: &Option<Json>| side.as_ref().is_some_and(|json| *json == REDACTED);
        match hidden(&self.first) && hidden(&self.second) {
            true => write!(f, "{path}: two values that are not shown"),
            false => write!(f, "{path}: {} and {}", shown(self.first.as_ref()), shown(self.second.as_ref())),
        }
    }
}

/// Returns a value on one line, shortened.
fn shown(side: Option<&Json>) -> String {
    let Some(json) = side else { return "nothing".to_owned() };
    let text = json.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Compares messages.
pub(super) struct Comparer<'t> {
    pub(crate) pool: &'t DescriptorPool,
    /// Full names of the fields whose values are not shown.
    pub(crate) sensitive: &'t HashSet<String>,
    /// The number of differences after which the search ends.
    pub(crate) limit: usize,
}

/// A difference that is returned level by level, each of which adds a step to its path.
pub(super) struct Found {
    /// Innermost step first.
    steps: Vec<Step>,
    first: Option<Json>,
    second: Option<Json>,
}

impl Found {
    fn of(first: Option<Json>, second: Option<Json>) -> Self {
        Self { steps: Vec::new(), first, second }
    }

    /// A difference whose values are not shown.
    fn hidden(has_first: bool, has_second: bool) -> Self {
        let side = |has: bool| has.then(|| Json::from(REDACTED));
        Self::of(side(has_first), side(has_second))
    }

    pub(crate) fn into_difference(mut self) -> ContentDifference {
        self.steps.reverse();
        ContentDifference { path: FieldPath(self.steps).to_string(), first: self.first, second: self.second }
    }

    /// Returns the path in a node in the spelling of a sharing key, which ends before any list.
    pub(crate) fn into_node_field(self) -> String {
        let mut path = String::new();
        for step in self.steps.into_iter().rev() {
            match step {
                Step::Index(_) => break,
                Step::Field(name) if path.is_empty() => match name.as_str() {
                    "build_version" => return USER_AGENT.into(),
                    name if name.starts_with("user_agent_") => return USER_AGENT.into(),
                    number if number.bytes().all(|byte| byte.is_ascii_digit()) => return "unknown".into(),
                    name => path.push_str(name),
                },
                Step::Field(name) => path += &format!(".{name}"),
                Step::Key(key) => KeyField::push_key(&mut path, &key),
            }
        }
        path
    }
}

impl Comparer<'_> {
    /// Returns the differences of two encoded messages, none if their contents are equal.
    pub(crate) fn bodies(&self, descriptor: Option<MessageDescriptor>, first: &[u8], second: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        if first != second {
            self.decoded(descriptor, first, second, 0, &mut found);
        }
        found
    }

    fn decoded(
        &self,
        descriptor: Option<MessageDescriptor>,
        first: &[u8],
        second: &[u8],
        depth: usize,
        found: &mut Vec<Found>,
    ) -> bool {
        let read = |bytes: &[u8]| descriptor.clone().and_then(|descriptor| decode(descriptor, bytes).ok());
        match (read(first), read(second)) {
            (Some(first), Some(second)) => {
                self.messages(&first, &second, depth, found);
                true
            }
            _ => {
                found.extend((first != second).then(|| Found::hidden(true, true)));
                false
            }
        }
    }

    fn messages(&self, first: &DynamicMessage, second: &DynamicMessage, depth: usize, found: &mut Vec<Found>) {
        if found.len() >= self.limit || first == second {
            return;
        }
        if depth > MAX_DEPTH {
            found.push(Found::hidden(true, true));
            return;
        }
        let descriptor = first.descriptor();
        match descriptor.full_name() {
            ANY => self.anys(first, second, depth, found),
            "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct" => self.typed_structs(first, second, depth, found),
            "google.protobuf.Struct" | "google.protobuf.ListValue" | "google.protobuf.Value" => {
                self.only_fields(first, second, depth, found);
            }
            name if is_special(name) => {
                let [one, other] = [first, second].map(|side| self.shown(&Kind::Message(descriptor.clone()), side));
                found.push(Found::of(Some(one), Some(other)));
            }
            _ => self.plain(first, second, depth, found),
        }
        self.unknown_fields(first, second, found);
    }

    fn plain(&self, first: &DynamicMessage, second: &DynamicMessage, depth: usize, found: &mut Vec<Found>) {
        let (of_first, of_second) = (fields(first), fields(second));
        let numbers: BTreeSet<_> = of_first.keys().chain(of_second.keys()).collect();
        for number in numbers {
            let (one, other) = (of_first.get(number), of_second.get(number));
            let Some((field, _)) = one.or(other) else { continue };
            let (one, other) = (one.map(|(_, value)| *value), other.map(|(_, value)| *value));
            under(found, || Step::Field(field.name().to_owned()), |found| self.field(field, one, other, depth, found));
        }
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        first: Option<&Value>,
        second: Option<&Value>,
        depth: usize,
        found: &mut Vec<Found>,
    ) {
        if !self.sensitive.contains(field.full_name()) {
            return self.values(field, first, second, depth, found);
        }
        let mut within = Vec::new();
        self.values(field, first, second, depth, &mut within);
        // Neither paths nor values within are shown.
        found.extend((!within.is_empty()).then(|| Found::hidden(first.is_some(), second.is_some())));
    }

    fn values(
        &self,
        field: &FieldDescriptor,
        first: Option<&Value>,
        second: Option<&Value>,
        depth: usize,
        found: &mut Vec<Found>,
    ) {
        let kind = field.kind();
        match (first, second) {
            (Some(Value::List(_)), _) | (_, Some(Value::List(_))) => {
                let (first, second) = (first.and_then(Value::as_list), second.and_then(Value::as_list));
                self.lists(&kind, first.unwrap_or_default(), second.unwrap_or_default(), depth, found);
            }
            (Some(Value::Map(_)), _) | (_, Some(Value::Map(_))) => {
                let Some(entry) = kind.as_message().filter(|entry| entry.is_map_entry()) else { return };
                let (first, second) = (first.and_then(Value::as_map), second.and_then(Value::as_map));
                self.maps(&entry.map_entry_value_field().kind(), first, second, depth, found);
            }
            _ => self.single(&kind, first, second, depth, found),
        }
    }

    fn lists(&self, kind: &Kind, first: &[Value], second: &[Value], depth: usize, found: &mut Vec<Found>) {
        for index in 0..first.len().max(second.len()) {
            if found.len() >= self.limit {
                return;
            }
            let (one, other) = (first.get(index), second.get(index));
            under(found, || Step::Index(index), |found| self.single(kind, one, other, depth, found));
        }
    }

    fn maps(
        &self,
        kind: &Kind,
        first: Option<&HashMap<MapKey, Value>>,
        second: Option<&HashMap<MapKey, Value>>,
        depth: usize,
        found: &mut Vec<Found>,
    ) {
        let keys: BTreeSet<_> = first.into_iter().chain(second).flat_map(HashMap::keys).collect();
        for key in keys {
            if found.len() >= self.limit {
                return;
            }
            let (one, other) = (first.and_then(|map| map.get(key)), second.and_then(|map| map.get(key)));
            under(found, || Step::Key(key_text(key)), |found| self.single(kind, one, other, depth, found));
        }
    }

    fn single(&self, kind: &Kind, first: Option<&Value>, second: Option<&Value>, depth: usize, found: &mut Vec<Found>) {
        match (first, second) {
            (Some(Value::Message(first)), Some(Value::Message(second))) => {
                self.messages(first, second, depth + 1, found);
            }
            (Some(first), Some(second)) if is_same(first, second) => {}
            (None, None) => {}
            (first, second) => {
                let [first, second] =
                    [first, second].map(|side| side.map(|value| self.shown_value(kind, value, depth)));
                found.push(Found::of(first, second));
            }
        }
    }

    fn anys(&self, first: &DynamicMessage, second: &DynamicMessage, depth: usize, found: &mut Vec<Found>) {
        let (Some((one, body)), Some((other, other_body))) = (body_of(first), body_of(second)) else {
            found.push(Found::hidden(true, true));
            return;
        };
        if one != other {
            let types = Found::of(Some(one.into()), Some(other.into()));
            return under(found, || Step::Field("type_url".into()), |found| found.push(types));
        }
        let mut within = Vec::new();
        let descriptor = self.pool.get_message_by_name(type_name(one));
        let is_read = self.decoded(descriptor, body, other_body, depth + 1, &mut within);
        if !is_read {
            within.iter_mut().for_each(|found| found.steps.push(Step::Field("value".into())));
        }
        found.append(&mut within);
    }

    /// Compares TypedStructs. Their content has a type too, which says what is sensitive in it. If the content cannot be read as that type, nothing of
    /// it is shown.
    fn typed_structs(&self, first: &DynamicMessage, second: &DynamicMessage, depth: usize, found: &mut Vec<Found>) {
        let (one, other) = (typed_struct(first), typed_struct(second));
        if one.0 != other.0 {
            let types = Found::of(Some(one.0.into()), Some(other.0.into()));
            return under(found, || Step::Field("type_url".into()), |found| found.push(types));
        }
        let (Some(content), Some(other_content)) = (one.1, other.1) else { return };
        if content == other_content {
            return;
        }
        let mut within = Vec::new();
        if let Some(descriptor) = self.pool.get_message_by_name(type_name(&one.0))
            && let Some(typed) = self.typed(&descriptor, &content, depth)
            && let Some(other_typed) = self.typed(&descriptor, &other_content, depth)
        {
            self.messages(&typed, &other_typed, depth + 1, &mut within);
        }
        if within.is_empty() {
            within.push(Found::hidden(true, true));
        }
        within.iter_mut().for_each(|found| found.steps.push(Step::Field("value".into())));
        found.append(&mut within);
    }

    fn typed(&self, descriptor: &MessageDescriptor, content: &DynamicMessage, depth: usize) -> Option<DynamicMessage> {
        let writer = ToJson { pool: self.pool, unknown: UnknownAny::Wrap, redact: None, original_names: false };
        let reader = FromJson { pool: self.pool, strictness: Strictness::Lenient };
        reader.message(descriptor, &writer.message(content, depth).ok()?, depth).ok()
    }

    /// Compares messages such as Struct, whose paths have only the keys of their content.
    fn only_fields(&self, first: &DynamicMessage, second: &DynamicMessage, depth: usize, found: &mut Vec<Found>) {
        let (one, other) = (first.fields().next(), second.fields().next());
        match (&one, &other) {
            (Some((field, _)), Some((another, _))) if field.number() != another.number() => {
                let kind = Kind::Message(first.descriptor());
                found.push(Found::of(Some(self.shown(&kind, first)), Some(self.shown(&kind, second))));
            }
            (Some((field, _)), _) | (None, Some((field, _))) => {
                let (one, other) = (one.as_ref().map(|(_, value)| *value), other.as_ref().map(|(_, value)| *value));
                self.values(field, one, other, depth, found);
            }
            (None, None) => {}
        }
    }

    /// Compares fields without a descriptor by their bytes. Their path ends with their number.
    fn unknown_fields(&self, first: &DynamicMessage, second: &DynamicMessage, found: &mut Vec<Found>) {
        let (one, other) = (unknown(first), unknown(second));
        let numbers: BTreeSet<_> = one.keys().chain(other.keys()).collect();
        for number in numbers.into_iter().filter(|number| one.get(*number) != other.get(*number)) {
            if found.len() >= self.limit {
                return;
            }
            let hidden = Found::hidden(one.contains_key(number), other.contains_key(number));
            under(found, || Step::Field(number.to_string()), |found| found.push(hidden));
        }
    }

    fn shown(&self, kind: &Kind, message: &DynamicMessage) -> Json {
        self.shown_value(kind, &Value::Message(message.clone()), 0)
    }

    fn shown_value(&self, kind: &Kind, value: &Value, depth: usize) -> Json {
        let redact = Some(self.sensitive);
        let writer = ToJson { pool: self.pool, unknown: UnknownAny::Wrap, redact, original_names: true };
        writer.single(kind, value, depth).unwrap_or_else(|_| Json::from(REDACTED))
    }
}

/// Adds a step to the differences that `within` finds.
fn under(found: &mut Vec<Found>, step: impl Fn() -> Step, within: impl FnOnce(&mut Vec<Found>)) {
    let before = found.len();
    within(found);
    found.iter_mut().skip(before).for_each(|found| found.steps.push(step()));
}

fn fields(message: &DynamicMessage) -> BTreeMap<u32, (FieldDescriptor, &Value)> {
    message.fields().map(|(field, value)| (field.number(), (field, value))).collect()
}

/// Returns the bytes of the fields without a descriptor, by number. Extensions have their content in another form.
fn unknown(message: &DynamicMessage) -> BTreeMap<u32, Vec<u8>> {
    let mut all: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for field in message.unknown_fields() {
        field.encode(all.entry(field.number()).or_default());
    }
    for (extension, value) in message.extensions() {
        all.insert(extension.number(), format!("{value:?}").into_bytes());
    }
    all
}

/// Returns the type and the content of a TypedStruct.
fn typed_struct(message: &DynamicMessage) -> (String, Option<DynamicMessage>) {
    let type_url = message.get_field_by_number(1).and_then(|value| value.as_str().map(str::to_owned));
    let content = message.get_field_by_number(2).and_then(|value| value.as_message().cloned());
    (type_url.unwrap_or_default(), content)
}

/// Whether two values that are not messages are equal. A NaN is equal to itself.
fn is_same(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::F32(first), Value::F32(second)) => first.to_bits() == second.to_bits(),
        (Value::F64(first), Value::F64(second)) => first.to_bits() == second.to_bits(),
        _ => first == second,
    }
}

const USER_AGENT: &str = "user_agent";
/// The number of characters of a value in a line.
const LONGEST_VALUE: usize = 120;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transcode::Transcoder;

    const LISTENER: &str = "envoy.config.listener.v3.Listener";
    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    fn encoded(message: &str, value: &Json) -> Vec<u8> {
        Transcoder::envoy().from_json(message, value, Strictness::Strict).unwrap().to_vec()
    }

    fn difference(message: &str, first: &Json, second: &Json) -> Option<ContentDifference> {
        Transcoder::envoy().difference(message, &encoded(message, first), &encoded(message, second))
    }

    fn listener(prefix: &str, filters: usize) -> Json {
        let filter = |number: usize| {
            json!({
                "name": format!("f{number}"),
                "typedConfig": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                    "statPrefix": if number == 1 { prefix } else { "same" },
                    "cluster": "c",
                },
            })
        };
        json!({"name": "l", "filterChains": [{"filters": (0..filters).map(filter).collect::<Vec<_>>()}]})
    }

    #[test]
    fn a_difference_within_an_any_has_a_path_of_its_fields() {
        let found = difference(LISTENER, &listener("a", 2), &listener("b", 2)).unwrap();
        assert_eq!(found.path, "filter_chains[0].filters[1].typed_config.stat_prefix");
        assert_eq!((found.first.clone(), found.second.clone()), (Some(json!("a")), Some(json!("b"))));
        assert_eq!(found.to_string(), "filter_chains[0].filters[1].typed_config.stat_prefix: \"a\" and \"b\"");
        assert_eq!(difference(LISTENER, &listener("a", 2), &listener("a", 2)), None);
    }

    #[test]
    fn the_first_element_that_one_side_lacks_is_the_difference_of_lists() {
        let found = difference(LISTENER, &listener("a", 2), &listener("a", 3)).unwrap();
        assert_eq!((found.path.as_str(), &found.first), ("filter_chains[0].filters[2]", &None));
        assert_eq!(found.second.as_ref().unwrap()["name"], "f2");
        let found = difference(LISTENER, &json!({"name": "l"}), &listener("a", 1)).unwrap();
        assert_eq!((found.path.as_str(), found.first), ("filter_chains[0]", None));
    }

    /// Two entries of a map of Anys, in both orders on the wire.
    #[test]
    fn the_order_of_a_map_is_no_difference() {
        let entry = |key: &str, limit: u32| {
            json!({key: {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicitHttpConfig": {"http2ProtocolOptions": {"maxConcurrentStreams": limit}},
            }})
        };
        let part =
            |key: &str, limit: u32| encoded(CLUSTER, &json!({"typedExtensionProtocolOptions": entry(key, limit)}));
        let (one, other) = ([part("x", 1), part("y", 2)].concat(), [part("y", 2), part("x", 1)].concat());
        assert_ne!(one, other);
        assert_eq!(Transcoder::envoy().difference(CLUSTER, &one, &other), None);
        let changed = [part("y", 3), part("x", 1)].concat();
        let found = Transcoder::envoy().difference(CLUSTER, &one, &changed).unwrap();
        let path = "typed_extension_protocol_options[\"y\"].explicit_http_config.http2_protocol_options.max_concurrent_streams";
        assert_eq!((found.path.as_str(), found.first, found.second), (path, Some(json!(2)), Some(json!(3))));
    }

    #[test]
    fn structs_have_paths_of_their_keys() {
        let of = |value: Json| json!({"name": "c", "metadata": {"filterMetadata": {"envoy.lb": value}}});
        let found = difference(CLUSTER, &of(json!({"a": {"b": [1, 2]}})), &of(json!({"a": {"b": [1, "x"]}}))).unwrap();
        assert_eq!(found.path, "metadata.filter_metadata[\"envoy.lb\"][\"a\"][\"b\"][1]");
        assert_eq!((found.first, found.second), (Some(json!(2)), Some(json!("x"))));
        let found = difference(CLUSTER, &of(json!({"a": 1})), &of(json!({}))).unwrap();
        assert_eq!((found.first, found.second), (Some(json!(1)), None));
    }

    #[test]
    fn durations_and_wrappers_are_shown_as_json_has_them() {
        let of = |timeout: &str, limit: u32| json!({"connectTimeout": timeout, "perConnectionBufferLimitBytes": limit});
        let found = difference(CLUSTER, &of("1s", 1), &of("1.5s", 1)).unwrap();
        assert_eq!(found.to_string(), "connect_timeout: \"1s\" and \"1.500s\"");
        assert_eq!(difference(CLUSTER, &of("1s", 1), &of("1s", 2)).unwrap().path, "per_connection_buffer_limit_bytes");
    }

    #[test]
    fn what_has_no_descriptor_is_compared_by_bytes_and_not_shown() {
        let cluster = encoded(CLUSTER, &json!({"name": "a"}));
        let with = |text: &[u8]| [&cluster[..], &[0xba, 0xbb, 0x01, text.len() as u8], text].concat(); // field 2999
        let of = |first: &[u8], second: &[u8]| Transcoder::envoy().difference(CLUSTER, first, second);
        assert_eq!(of(&with(b"hush"), &with(b"hush")), None);
        let found = of(&with(b"hush"), &with(b"hist")).unwrap();
        assert_eq!(found.to_string(), "2999: two values that are not shown");
        assert_eq!(of(&cluster, &with(b"hush")).unwrap().to_string(), "2999: nothing and \"[redacted]\"");

        let any = |body: &[u8]| {
            let any = [b"\x0a\x0aa.b/c.Own_\x12".as_slice(), &[body.len() as u8], body].concat();
            [b"\x0a\x01f\x22".as_slice(), &[any.len() as u8], &any].concat() // Filter.name, Filter.typed_config
        };
        let filter = "envoy.config.listener.v3.Filter";
        let found = Transcoder::envoy().difference(filter, &any(b"hush"), &any(b"hist")).unwrap();
        assert_eq!(found.to_string(), "typed_config.value: two values that are not shown");
        let found = Transcoder::envoy().difference("acme.Own", b"hush", b"hist").unwrap();
        assert_eq!(found.to_string(), "all of it: two values that are not shown");
        assert_eq!(Transcoder::envoy().difference("acme.Own", b"hush", b"hush"), None);
        let found = Transcoder::envoy().difference(CLUSTER, b"\xff", &cluster).unwrap();
        assert_eq!(found.path, "");
    }

    #[test]
    fn secrets_are_compared_and_not_shown() {
        let certificate = |key: &str| {
            json!({"name": "s", "tlsCertificate": {
                "certificateChain": {"inlineString": "chain"}, "privateKey": {"inlineString": key},
            }})
        };
        let found = difference(SECRET, &certificate("hush-1"), &certificate("hush-2")).unwrap();
        assert_eq!(found.path, "tls_certificate.private_key");
        assert!(!format!("{found:?} {found}").contains("hush"), "{found:?}");
        assert_eq!(difference(SECRET, &certificate("hush-1"), &certificate("hush-1")), None);
        // One side lacks the certificate. The difference shows the other side's, without its private key.
        let found = difference(SECRET, &certificate("hush-1"), &json!({"name": "s"})).unwrap();
        assert!(format!("{found:?}").contains("chain") && !format!("{found:?} {found}").contains("hush"), "{found:?}");
    }

    #[test]
    fn a_typed_struct_is_compared_by_the_type_that_it_states() {
        let context = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let socket = |type_url: &str, key: &str, sni: &str| {
            json!({"name": "tls", "typedConfig": {
                "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
                "typeUrl": type_url,
                "value": {"sni": sni, "commonTlsContext": {"tlsCertificates": [{"privateKey": {"inlineString": key}}]}},
            }})
        };
        let message = "envoy.config.core.v3.TransportSocket";
        let found = difference(message, &socket(context, "hush-1", "a"), &socket(context, "hush-2", "a")).unwrap();
        assert_eq!(found.path, "typed_config.value.common_tls_context.tls_certificates[0].private_key");
        assert!(!format!("{found:?}").contains("hush"), "{found:?}");
        let found = difference(message, &socket(context, "hush", "a"), &socket(context, "hush", "b")).unwrap();
        assert_eq!((found.path.as_str(), found.second), ("typed_config.value.sni", Some(json!("b"))));
        let unknown = "type.googleapis.com/acme.Login";
        let found = difference(message, &socket(unknown, "hush-1", "a"), &socket(unknown, "hush-2", "a")).unwrap();
        assert_eq!(found.to_string(), "typed_config.value: two values that are not shown");
    }

    #[test]
    fn a_long_value_is_shortened_in_a_line() {
        let found = difference(CLUSTER, &json!({"name": "\u{e9}".repeat(500)}), &json!({"name": "a"})).unwrap();
        assert!(found.to_string().ends_with("... and \"a\"") && found.to_string().chars().count() < 150, "{found}");
    }

    #[test]
    fn nodes_differ_in_fields_as_a_key_names_them() {
        let node = |value: Json| encoded("envoy.config.core.v3.Node", &value);
        let nodes = [
            node(json!({"id": "1", "cluster": "web", "metadata": {"NAME": "a", "LABELS": {"app": "x", "v.1": "1"}},
                "locality": {"zone": "a"}, "userAgentVersion": "1", "clientFeatures": ["f"]})),
            node(json!({"id": "2", "cluster": "web", "metadata": {"NAME": "b", "LABELS": {"app": "x", "v.1": "2"}},
                "locality": {"zone": "a"}, "userAgentVersion": "2", "clientFeatures": ["f"]})),
            node(json!({"id": "1", "cluster": "web", "metadata": {"NAME": "a", "LABELS": {"app": "y", "v.1": "1"}},
                "locality": {"zone": "b"}, "userAgentVersion": "1", "clientFeatures": ["f", "g"]})),
        ];
        let fields = Transcoder::envoy().differing_node_fields(&nodes);
        let expected = [
            "client_features",
            "id",
            "locality.zone",
            "metadata.LABELS.app",
            "metadata.LABELS[\"v.1\"]",
            "metadata.NAME",
            "user_agent",
        ];
        assert_eq!(fields.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        let mut in_metadata = fields.iter().filter(|field| field.starts_with("metadata"));
        assert!(in_metadata.all(|field| KeyField::parse(field).unwrap().to_string() == *field));
        assert!(Transcoder::envoy().differing_node_fields(&nodes[..1]).is_empty());
        let unknown = [&nodes[0][..], &[0xba, 0xbb, 0x01, 0x00]].concat();
        assert!(Transcoder::envoy().differing_node_fields(&[nodes[0].clone(), unknown]).contains("unknown"));
    }
}

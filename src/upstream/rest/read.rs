//! Converts a server's JSON to a response, one resource at a time: an unreadable resource affects no other (UP-25).

use prost::Message;
use serde_json::{Map, Value};
use weir_core::proto::Any;
use weir_core::proto::discovery::{self, DiscoveryRequest, DiscoveryResponse};
use weir_core::xds::WRAPPER_TYPE;

use crate::transcode::{Strictness, TranscodeError, Transcoder, UnknownAny, type_name};

/// Why a complete answer is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the answer is no JSON")]
    Json(#[source] serde_json::Error),
    #[error("the answer is no DiscoveryResponse")]
    Response(#[source] TranscodeError),
    #[error("the answer is no message")]
    Message(#[source] prost::DecodeError),
    #[error("the answer is of {0}, which was not asked for")]
    OtherType(String),
}

/// A response, and the errors of its resources.
#[derive(Debug)]
pub(super) struct Read {
    pub(crate) response: DiscoveryResponse,
    pub(crate) rejected: Vec<String>,
    /// A resource in it has a TTL.
    pub(crate) has_ttl: bool,
}

/// Encodes the body of a poll. Fields of the relay's own node that the descriptors lack are left out.
pub(super) fn write(request: &DiscoveryRequest, transcoder: &Transcoder) -> Result<Vec<u8>, TranscodeError> {
    let json = transcoder.to_json(REQUEST, &request.encode_to_vec(), UnknownAny::Wrap)?;
    Ok(json.to_string().into_bytes())
}

/// Parses an answer to a poll of a type. Unknown fields are ignored: servers may be newer than the descriptors.
pub(super) fn read(body: &[u8], url: &str, transcoder: &Transcoder) -> Result<Read, Unreadable> {
    let mut json: Value = serde_json::from_slice(body).map_err(Unreadable::Json)?;
    let resources = match json.as_object_mut().and_then(|fields| fields.get_mut("resources")).map(Value::take) {
        Some(Value::Array(resources)) => resources,
        Some(other) => {
            // If the field is of another kind, the transcoder reports the error.
            json["resources"] = other;
            Vec::new()
        }
        None => Vec::new(),
    };
    let message = transcoder.from_json(RESPONSE, &json, Strictness::Lenient).map_err(Unreadable::Response)?;
    let mut response = DiscoveryResponse::decode(message).map_err(Unreadable::Message)?;
    if !response.type_url.is_empty() && type_name(&response.type_url) != type_name(url) {
        return Err(Unreadable::OtherType(response.type_url));
    }
    response.type_url = url.to_owned();
    let mut rejected = Vec::new();
    for (index, resource) in resources.iter().enumerate() {
        let any = transcoder.from_json(ANY, resource, Strictness::Lenient).map_err(|error| error.to_string());
        let any = any.and_then(|any| Any::decode(any).map_err(|error| error.to_string()));
        response.resources.push(any.unwrap_or_else(|reason| {
            let name = name_in(resource);
            rejected.push(format!("resource {index} ({}): {reason}", name.as_deref().unwrap_or("without a name")));
            stand_in(name, url)
        }));
    }
    let has_ttl = response.resources.iter().any(has_an_end);
    Ok(Read { response, rejected, has_ttl })
}

/// Returns whether a resource has a TTL, which only a wrapper can carry.
fn has_an_end(any: &Any) -> bool {
    let wrapped = || discovery::Resource::decode(any.value.clone());
    type_name(&any.type_url) == WRAPPER_TYPE && wrapped().is_ok_and(|wrapper| wrapper.ttl.is_some())
}

/// Returns a placeholder for an unreadable resource, with its name if that is known.
fn stand_in(name: Option<String>, url: &str) -> Any {
    let Some(name) = name else { return Any { type_url: url.to_owned(), ..Any::default() } };
    let unreadable = Any { type_url: "unreadable".into(), ..Any::default() };
    let wrapper = discovery::Resource { name, resource: Some(unreadable), ..discovery::Resource::default() };
    Any { type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"), value: wrapper.encode_to_vec().into() }
}

fn name_in(resource: &Value) -> Option<String> {
    let text = |fields: &Map<String, Value>, key: &str| Some(fields.get(key)?.as_str()?.to_owned());
    let fields = resource.as_object()?;
    NAMES.iter().find_map(|key| text(fields, key)).filter(|name| !name.is_empty())
}

const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";
const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
const ANY: &str = "google.protobuf.Any";
/// The name fields of the types that REST has.
const NAMES: [&str; 3] = ["name", "clusterName", "cluster_name"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use weir_core::xds::{BodyStore, Malformed, Resource, TypeTable};

    use super::*;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn read_text(text: &str) -> Result<Read, Unreadable> {
        read(text.as_bytes(), CDS, &Transcoder::envoy())
    }

    #[test]
    fn rest_1_an_answer_is_read_in_either_spelling_and_fields_of_the_future_are_ignored() {
        for (version, timeout) in [("versionInfo", "connectTimeout"), ("version_info", "connect_timeout")] {
            let text = format!(
                r#"{{"{version}": "7", "fromTheFuture": 1, "resources": [
                    {{"@type": "{CDS}", "name": "a", "{timeout}": "1s", "notYet": {{"x": []}}}}]}}"#
            );
            let Read { response, rejected, .. } = read_text(&text).unwrap();
            assert_eq!((response.version_info.as_str(), response.type_url.as_str(), rejected.len()), ("7", CDS, 0));
            assert_eq!(response.resources[0].value, [0x0a, 1, b'a', 0x22, 2, 8, 1].as_slice());
        }
        assert!(read_text("{}").unwrap().response.resources.is_empty());
    }

    #[test]
    fn up_25_a_resource_that_cannot_be_read_spoils_itself_and_is_known_by_its_name() {
        let text = format!(
            r#"{{"resources": [{{"@type": "{CDS}", "name": "good"}}, {{"@type": "{CDS}", "name": "bad", "type": []}},
                {{"@type": "x/un.Known", "clusterName": "foreign"}}, {{"@type": "{CDS}", "name": 5}}, 7]}}"#
        );
        let Read { response, rejected, .. } = read_text(&text).unwrap();
        assert_eq!(rejected.len(), 4, "{rejected:?}");
        assert!(rejected[0].starts_with("resource 1 (bad): "), "{rejected:?}");
        let kind = TypeTable::new().resolve(CDS);
        let taken = |any: &Any| Resource::from_sotw(0, any.clone(), &kind, &BodyStore::default());
        assert_eq!(taken(&response.resources[0]).unwrap().name.as_str(), "good");
        let named = |bad: Malformed| bad.name().map(ToString::to_string);
        let bad: Vec<_> = response.resources[1..].iter().map(|any| named(taken(any).unwrap_err())).collect();
        assert_eq!(bad, [Some("bad".into()), Some("foreign".into()), None, None]);
    }

    #[test]
    fn up_40_an_answer_with_a_resource_that_ends_is_found_out() {
        let wrapped = |ttl: &str| {
            let wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource";
            let body = format!(r#"{{"@type": "{CDS}", "name": "b"}}"#);
            let text = format!(
                r#"{{"resources": [{{"@type": "{CDS}", "name": "a"}}, {{"@type": "{wrapper}", "name": "b", {ttl} "resource": {body}}}]}}"#
            );
            let Read { rejected, has_ttl, .. } = read_text(&text).unwrap();
            assert_eq!(rejected, [""; 0]);
            has_ttl
        };
        assert_eq!([wrapped(r#""ttl": "5s","#), wrapped("")], [true, false]);
    }

    #[test]
    fn what_is_no_answer_is_rejected_as_a_whole() {
        let foreign = r#"{"typeUrl": "type.googleapis.com/envoy.config.listener.v3.Listener"}"#;
        for text in ["", "null", "[]", "7", "{", r#"{"resources": {"a": 1}}"#, r#"{"versionInfo": 7.5}"#, foreign] {
            assert!(read_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_question_is_written_with_its_node_and_reads_back() {
        let node = weir_core::proto::node::Node { id: "n".into(), cluster: "c".into(), ..Default::default() };
        let request = DiscoveryRequest {
            node: Some(node.encode_to_vec().into()),
            resource_names: vec!["a".into()],
            version_info: "7".into(),
            type_url: CDS.into(),
            ..DiscoveryRequest::default()
        };
        let text = write(&request, &Transcoder::envoy()).unwrap();
        let json: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&json["node"]["cluster"], &json["resourceNames"][0]), (&"c".into(), &"a".into()));
        let back = Transcoder::envoy().from_json(REQUEST, &json, Strictness::Strict).unwrap();
        assert_eq!(DiscoveryRequest::decode(back).unwrap(), request);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..Default::default() })]

        #[test]
        fn i10_no_answer_makes_it_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..8)) {
            let mut bytes = format!(
                r#"{{"versionInfo": "7", "resources": [{{"@type": "{CDS}", "name": "a", "connectTimeout": "1.5s",
                    "metadata": {{"filterMetadata": {{"x": {{"y": [1, null, {{}}]}}}}}}}},
                    {{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b",
                    "ttl": "5s", "resource": {{"@type": "{CDS}", "name": "b"}}}}], "nonce": "1"}}"#
            ).into_bytes();
            for (at, byte, how) in changes {
                let at = at.index(bytes.len());
                match how {
                    0 if bytes.len() > 1 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, byte),
                    _ => bytes[at] = byte,
                }
            }
            let kind = TypeTable::new().resolve(CDS);
            if let Ok(Read { response, .. }) = read(&bytes, CDS, &Transcoder::envoy()) {
                for any in response.resources {
                    let _ = Resource::from_sotw(0, any, &kind, &BodyStore::default());
                }
            }
        }
    }
}

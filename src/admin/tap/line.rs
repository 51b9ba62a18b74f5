//! The line of one event.

use std::time::SystemTime;

use prost::Message;
use serde_json::{Map, Value as Json, json};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::session::{Reply, Variant, shown_reason};

use crate::relay::taps::{NameList, OpenedStream, ReplyGlance, RequestGlance, TapEvent, TapWhat};
use crate::transcode::{REDACTED, Transcoder};

/// Returns the line of an event. With a transcoder it has whole messages, without what is sensitive.
pub(super) fn of_event(event: &TapEvent, transcoder: Option<&Transcoder>) -> Json {
    let mut line = match &event.what {
        TapWhat::Opened(stream) => {
            let mut line = of_stream(stream);
            line["event"] = "opened".into();
            line
        }
        TapWhat::Request(glance) => of_request(glance, transcoder),
        TapWhat::Reply(glance) => of_reply(glance, transcoder),
        TapWhat::Unchanged => json!({"event": "unchanged"}),
        TapWhat::Ended { status, reason } => json!({"event": "ended", "status": status, "reason": shown(reason)}),
    };
    line["at"] = time(event.at).into();
    line["session"] = event.session.into();
    line
}

pub(super) fn of_stream(stream: &OpenedStream) -> Json {
    let OpenedStream { session, node, peer, view, variant } = stream;
    json!({"session": session, "node": node, "peer": peer, "view": view, "variant": variant})
}

pub(super) fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

fn of_request(glance: &RequestGlance, transcoder: Option<&Transcoder>) -> Json {
    let RequestGlance { variant, type_url, nonce, version, names, unsubscribed, stated, error, body } = glance;
    let answers = match (nonce.is_empty(), error) {
        (_, Some(_)) => Some("nack"),
        (false, None) => Some("ack"),
        (true, None) => None,
    };
    let mut line = json!({
        "event": "request",
        "variant": variant.name(),
        "type": type_name(type_url),
        "answer": answers,
        "nonce": some(nonce),
        "version": some(version),
        "names": of_names(names),
        "unsubscribed": of_names(unsubscribed),
        "stated_versions": stated,
        "error": error.as_ref().map(|(code, message)| json!({"code": code, "message": shown(message)})),
    });
    if let Some(transcoder) = transcoder {
        line["body"] = match body {
            Some(body) => whole_request(*variant, body, transcoder),
            None => left_out(),
        };
    }
    line
}

fn of_reply(glance: &ReplyGlance, transcoder: Option<&Transcoder>) -> Json {
    let ReplyGlance { kind, variant, nonce, version, resources, removed, unresolved, errors, heartbeats, bytes, body } =
        glance;
    let mut line = json!({
        "event": "reply",
        "variant": variant.name(),
        "type": kind.name(),
        "nonce": nonce.to_string(),
        "version": version,
        "names": of_names(resources),
        "removed": of_names(removed),
        "unresolved": of_names(unresolved),
        "errors": of_names(errors),
        "heartbeats": of_names(heartbeats),
        "bytes": bytes,
    });
    if let Some(transcoder) = transcoder {
        line["body"] = body.as_ref().map_or_else(left_out, |reply| whole_reply(reply, transcoder));
    }
    line
}

/// Returns a list of names as far as it was kept, with the count of all.
fn of_names(NameList { count, first }: &NameList) -> Json {
    json!({"count": count, "first": first})
}

/// Returns the text in place of a message that had no room.
fn left_out() -> Json {
    Json::from("[left out: too large]")
}

/// Returns a request with all names. The metadata of a node and its parts has no type that would tell what is secret in it, so its values are
/// redacted.
fn whole_request(variant: Variant, body: &[u8], transcoder: &Transcoder) -> Json {
    let unreadable = |error: &dyn std::fmt::Display| json!({"[not shown]": error.to_string()});
    let node = |node: &Option<bytes::Bytes>| {
        let Some(node) = node else { return Json::Null };
        let mut shown = transcoder.dumped_json(NODE, node).unwrap_or_else(|error| unreadable(&error));
        redact_metadata(&mut shown);
        shown
    };
    match variant {
        Variant::Sotw => DiscoveryRequest::decode(body).map_or_else(
            |error| unreadable(&error),
            |request| json!({"node": node(&request.node), "resource_names": request.resource_names}),
        ),
        Variant::Delta => DeltaDiscoveryRequest::decode(body).map_or_else(
            |error| unreadable(&error),
            |request| {
                json!({
                    "node": node(&request.node),
                    "resource_names_subscribe": request.resource_names_subscribe,
                    "resource_names_unsubscribe": request.resource_names_unsubscribe,
                    "initial_resource_versions":
                        request.initial_resource_versions.into_iter().map(|(name, version)| (name, version.into())).collect::<Map<_, _>>(),
                })
            },
        ),
    }
}

/// Redacts the values of all metadata in a message.
fn redact_metadata(message: &mut Json) {
    match message {
        Json::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value.as_object_mut() {
                    Some(metadata) if name == "metadata" => {
                        metadata.values_mut().for_each(|value| *value = REDACTED.into());
                    }
                    _ => redact_metadata(value),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(redact_metadata),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Returns a reply with all names, and with its resources without what is sensitive in them.
fn whole_reply(reply: &Reply, transcoder: &Transcoder) -> Json {
    let resources = reply.resources.iter().map(|resource| {
        let body = transcoder.dumped_json(reply.kind.name(), resource.body.bytes());
        let body = body.unwrap_or_else(|error| json!({"[not shown]": error.to_string()}));
        json!({"name": resource.name.as_str(), "version": resource.full.to_string(), "resource": body})
    });
    let errors = reply
        .errors
        .iter()
        .map(|(name, error)| json!({"name": name.as_str(), "code": error.code, "message": shown(&error.message)}));
    let removed = reply.removed.iter().chain(reply.constrained.iter().map(|(name, _)| name));
    let unresolved = reply.unresolved.iter().map(|name| name.as_str());
    let heartbeats = reply.heartbeats.iter().map(|beat| beat.name.as_str());
    json!({
        "resources": resources.collect::<Vec<_>>(),
        "removed_resources": removed.map(|name| name.as_str()).collect::<Vec<_>>(),
        "unresolved": unresolved.collect::<Vec<_>>(),
        "heartbeats": heartbeats.collect::<Vec<_>>(),
        "resource_errors": errors.collect::<Vec<_>>(),
    })
}

/// Returns a reason that a peer has sent, in a form to show: it may quote a secret.
fn shown(reason: &str) -> String {
    shown_reason(reason, REASON_BYTES).into()
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn type_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

const NODE: &str = "envoy.config.core.v3.Node";
const REASON_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_core::proto::{Any, discovery};
    use weir_core::xds::{BodyStore, Resource, TypeTable};

    use super::*;
    use crate::transcode::Strictness;

    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    fn at(what: TapWhat) -> TapEvent {
        TapEvent { at: SystemTime::UNIX_EPOCH, session: 7, what }
    }

    fn names(count: usize, first: &[&str]) -> NameList {
        NameList { count, first: first.iter().map(ToString::to_string).collect() }
    }

    fn request(nonce: &str, error: Option<(i32, String)>) -> RequestGlance {
        RequestGlance {
            variant: Variant::Delta,
            type_url: format!("type.googleapis.com/{SECRET}"),
            nonce: nonce.into(),
            version: String::new(),
            names: names(30, &["a"]),
            unsubscribed: NameList::default(),
            stated: 2,
            error,
            body: None,
        }
    }

    #[test]
    fn a_request_says_what_it_answers_and_a_reason_is_shown_without_key_material() {
        let of = |nonce: &str, error| of_event(&at(TapWhat::Request(Box::new(request(nonce, error)))), None);
        let first = of("", None);
        assert_eq!(
            (&first["answer"], &first["nonce"], &first["type"], &first["session"]),
            (&Json::Null, &Json::Null, &json!(SECRET), &json!(7))
        );
        assert_eq!((&first["names"], &first["stated_versions"]), (&json!({"count": 30, "first": ["a"]}), &json!(2)));
        assert_eq!((&first["at"], first.get("body")), (&json!("1970-01-01T00:00:00.000Z"), None));
        assert_eq!(of("5", None)["answer"], "ack");
        let nack = of("5", Some((3, "cannot use password: hush".into())));
        assert_eq!((&nack["answer"], &nack["error"]["code"]), (&json!("nack"), &json!(3)));
        assert_eq!(nack["error"]["message"], "cannot use password: [redacted]");
    }

    #[test]
    fn whole_messages_have_no_secrets_and_no_metadata_of_nodes() {
        let transcoder = Transcoder::envoy();
        let value = transcoder
            .from_json(
                SECRET,
                &json!({"name": "a", "genericSecret": {"secret": {"inlineString": "hush"}}}),
                Strictness::Strict,
            )
            .unwrap();
        let kind = TypeTable::new().resolve(SECRET);
        let any = Any { type_url: format!("type.googleapis.com/{SECRET}"), value };
        let wrapper = discovery::Resource { name: "a".into(), resource: Some(any), ..Default::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap());
        let glance = ReplyGlance {
            kind: kind.clone(),
            variant: Variant::Delta,
            nonce: 1,
            version: None,
            resources: names(1, &["a"]),
            removed: NameList::default(),
            unresolved: NameList::default(),
            errors: NameList::default(),
            heartbeats: NameList::default(),
            bytes: 10,
            body: Some(Arc::new(Reply::sample(kind, vec![resource]))),
        };
        let line = of_event(&at(TapWhat::Reply(Box::new(glance.clone()))), Some(&transcoder));
        assert!(!line.to_string().contains("hush"), "{line}");
        assert_eq!(line["body"]["resources"][0]["resource"]["generic_secret"]["secret"]["inline_string"], "[redacted]");
        let without = ReplyGlance { body: None, ..glance };
        let line = of_event(&at(TapWhat::Reply(Box::new(without))), Some(&transcoder));
        assert_eq!(line["body"], "[left out: too large]");

        let version = json!({"version": {"majorNumber": 1}, "metadata": {"token": "hush"}});
        let node = json!({
            "id": "n",
            "metadata": {"password": "hush", "deep": {"er": "hush"}},
            "userAgentBuildVersion": version,
            "extensions": [{"name": "e", "version": version}],
        });
        let node = transcoder.from_json(NODE, &node, Strictness::Strict).unwrap();
        let whole = DeltaDiscoveryRequest {
            node: Some(node),
            resource_names_subscribe: vec!["a".into(), "b".into()],
            initial_resource_versions: [("c".to_owned(), "1".to_owned())].into(),
            ..Default::default()
        };
        let glance = RequestGlance { body: Some(whole.encode_to_vec().into()), ..request("", None) };
        let line = of_event(&at(TapWhat::Request(Box::new(glance))), Some(&transcoder));
        assert!(!line.to_string().contains("hush"), "{line}");
        let version = json!({"version": {"major_number": 1}, "metadata": {"token": REDACTED}});
        let node = json!({
            "id": "n",
            "metadata": {"password": REDACTED, "deep": REDACTED},
            "user_agent_build_version": version,
            "extensions": [{"name": "e", "version": version}],
        });
        assert_eq!(line["body"]["node"], node);
        assert_eq!(line["body"]["resource_names_subscribe"], json!(["a", "b"]));
        assert_eq!(line["body"]["initial_resource_versions"], json!({"c": "1"}));
    }
}

//! Fuzz targets: messages as bytes, JSON, YAML and text, and files of resources.

use super::document::{Format, read_resources};
use super::{Strictness, Transcoder, UnknownAny, parse_json, yaml};

/// A type, a format, and a message in it. What is read comes back from each format, and canonical bytes are a fixed point.
pub(crate) fn messages(data: &[u8]) {
    let [kind, format, input @ ..] = data else { return };
    let transcoder = Transcoder::envoy();
    let message = TYPES[usize::from(*kind) % TYPES.len()];
    if format % 3 == 0 {
        return check_message(&transcoder, message, input);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let read: Vec<_> = match format % 3 {
        1 => {
            let Ok(json) = parse_json(input) else { return };
            let all = [Strictness::Strict, Strictness::Lenient];
            all.map(|strictness| transcoder.from_json(message, &json, strictness)).into_iter().flatten().collect()
        }
        _ => transcoder.from_text(message, text).into_iter().collect(),
    };
    for bytes in read {
        assert_eq!(transcoder.canonical(message, &bytes).as_ref(), Ok(&bytes), "what is read is canonical");
        check_message(&transcoder, message, &bytes);
    }
}

/// A format and a file of resources. A resource that is read is one of the file, and its line is in the file.
pub(crate) fn files(data: &[u8]) {
    let [format, file @ ..] = data else { return };
    let format = [Format::Yaml, Format::Json, Format::Text, Format::Binary][usize::from(*format) % 4];
    let lines = 1 + file.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() as u64;
    match read_resources(&Transcoder::envoy(), format, file) {
        Ok(resources) => {
            assert!(resources.len() <= file.len(), "more resources than bytes");
            assert!(resources.iter().all(|resource| !resource.type_url.is_empty()));
            assert!(resources.iter().all(|resource| resource.line.is_none_or(|line| line <= lines)));
        }
        Err(error) => {
            assert!(!error.faults.is_empty() && !error.to_string().is_empty());
            let mut faults = error.faults.iter();
            assert!(faults.all(|fault| fault.line.is_none_or(|line| line <= lines + 1)), "{error}");
        }
    }
}

/// Checks what must hold for any encoded message.
pub fn check_message(transcoder: &Transcoder, message: &str, bytes: &[u8]) {
    let canonical = transcoder.canonical(message, bytes);
    for unknown in [UnknownAny::Refuse, UnknownAny::Wrap] {
        let json = transcoder.to_json(message, bytes, unknown);
        let _ = transcoder.redacted_json(message, bytes, unknown);
        let text = transcoder.to_text(message, bytes, unknown);
        let Ok(canonical) = &canonical else {
            assert!(json.is_err(), "JSON of what has no canonical form: {bytes:?}");
            continue;
        };
        assert_eq!(transcoder.canonical(message, canonical).as_ref(), Ok(canonical), "canonical twice");
        if unknown == UnknownAny::Wrap {
            continue;
        }
        if let Ok(json) = json {
            let of_canonical = transcoder.to_json(message, canonical, unknown);
            assert_eq!(of_canonical.as_ref(), Ok(&json), "JSON of the canonical form");
            let back = transcoder.from_json(message, &json, Strictness::Strict);
            let back = back.unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_eq!(transcoder.to_json(message, &back, unknown).as_ref(), Ok(&json), "JSON and back");
            let yaml = transcoder.to_yaml(message, bytes, unknown).unwrap_or_else(|error| panic!("{error}: {json}"));
            assert_eq!(yaml::parse(&yaml).as_ref(), Ok(&json), "{yaml}");
        }
        if let Ok(text) = text {
            let back = transcoder.from_text(message, &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let again = transcoder.to_text(message, &back, unknown).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(uncommented(&again), uncommented(&text));
        }
    }
}

fn uncommented(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect()
}

const TYPES: [&str; 12] = [
    "google.protobuf.Any",
    "google.protobuf.Struct",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "google.protobuf.FieldMask",
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
    "envoy.service.discovery.v3.DiscoveryResponse",
    "envoy.service.runtime.v3.Runtime",
];

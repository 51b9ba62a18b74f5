//! Messages as bytes, JSON, YAML and text, and files of resources.

use weir::transcode::document::{Format, read_resources};
use weir::transcode::{Strictness, Transcoder, parse_json};

use super::message_rules::check_message;

/// A type, a format, and a message in it. What is read comes back from each format, and canonical bytes are a fixed point.
pub fn messages(data: &[u8]) {
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
pub fn resource_files(data: &[u8]) {
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
            assert!(faults.all(|fault| fault.line().is_none_or(|line| line <= lines + 1)), "{error}");
        }
    }
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

use bytes::Bytes;
use serde_json::{Value, json};
use weir::transcode::{Strictness, TranscodeError, Transcoder, UnknownAny, parse_json, yaml};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn fault(message: &str, json: Value) -> String {
    Transcoder::envoy().from_json(message, &json, Strictness::Strict).unwrap_err().to_string()
}

#[test]
fn faults_name_message_path_and_reason() {
    let cases = [
        (json!({ "nmae": "a" }), "nmae: envoy.config.cluster.v3.Cluster has no such field"),
        (json!({ "name": 1 }), "name: it is a number and has to be a string"),
        (json!([]), "it is a list and has to be an object"),
        (
            json!({ "lbPolicy": "RUNG_HASH" }),
            "lbPolicy: \"RUNG_HASH\" is no value of envoy.config.cluster.v3.Cluster.LbPolicy",
        ),
        (
            json!({ "connect_timeout": "1m" }),
            "connect_timeout: invalid duration \"1m\": expected seconds, such as \"1.5s\"",
        ),
        (json!({ "connectTimeout": 5 }), "connectTimeout: it is a number and has to be a string"),
        (
            json!({ "name": "a", "type": "EDS", "clusterType": { "name": "x" } }),
            "type: only one of it and clusterType may be there",
        ),
        (json!({ "lbPolicy": "RANDOM", "lb_policy": "RANDOM" }), "lbPolicy: it is there a second time, as lb_policy"),
        (
            json!({ "circuitBreakers": { "thresholds": [{}, { "maxRetries": -1 }] } }),
            "circuitBreakers.thresholds[1].maxRetries: -1 is out of range",
        ),
        (
            json!({ "circuitBreakers": { "thresholds": [{ "maxRetries": 1.5 }] } }),
            "circuitBreakers.thresholds[0].maxRetries: 1.5 is no whole number",
        ),
        (
            json!({ "ringHashLbConfig": { "minimumRingSize": "1k" } }),
            "ringHashLbConfig.minimumRingSize: \"1k\" is no whole number",
        ),
        (json!({ "respectDnsTtl": "true" }), "respectDnsTtl: it is a string and has to be true or false"),
        (json!({ "transportSocketMatches": {} }), "transportSocketMatches: it is an object and has to be a list"),
        (json!({ "transportSocketMatches": [null] }), "transportSocketMatches[0]: it is null and has to be an object"),
        (
            json!({ "typedExtensionProtocolOptions": { "a b": { "name": "x" } } }),
            "typedExtensionProtocolOptions[\"a b\"]: it has no @type, which says what it is",
        ),
        (
            json!({ "typedExtensionProtocolOptions": { "a": { "@type": "google.protobuf.Empty" } } }),
            "typedExtensionProtocolOptions[\"a\"].@type: it has to be a type URL, such as type.googleapis.com/google.protobuf.Empty",
        ),
        (
            json!({ "typedExtensionProtocolOptions": { "a": { "@type": "t/google.protobuf.Duration" } } }),
            "typedExtensionProtocolOptions[\"a\"]: it has no value, which an Any of google.protobuf.Duration has",
        ),
        (
            json!({ "typedExtensionProtocolOptions": { "a": { "@type": "t/google.protobuf.Duration", "value": "1s", "x": 1 } } }),
            "typedExtensionProtocolOptions[\"a\"].x: an Any of google.protobuf.Duration has no field but value",
        ),
    ];
    for (json, wanted) in cases {
        let at = if wanted.starts_with("it is") { ": " } else { ", " };
        assert_eq!(fault(CLUSTER, json), format!("{CLUSTER}{at}{wanted}"));
    }
}

#[test]
fn a_type_without_descriptor_is_named_at_any_depth() {
    let transcoder = Transcoder::envoy();
    assert!(transcoder.knows(CLUSTER) && !transcoder.knows("a.Bcd"));
    let unknown = |error: TranscodeError, type_wanted: &str, path: &str| match error {
        TranscodeError::UnknownType { type_name, at, .. } => {
            assert_eq!((&*type_name, &*at.to_string()), (type_wanted, path))
        }
        other => panic!("{other}"),
    };
    unknown(transcoder.canonical("a.Bcd", &[]).unwrap_err(), "a.Bcd", "");
    let filter = json!({ "name": "f", "typedConfig": { "@type": "type.googleapis.com/a.Bcd" } });
    let hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let listener = |filter: Value| {
        let hcm = json!({ "name": "h", "typedConfig": { "@type": hcm, "httpFilters": [{ "name": "ok" }, filter] } });
        json!({ "filterChains": [{ "filters": [hcm] }] })
    };
    let path = "filterChains[0].filters[0].typedConfig.httpFilters[1].typedConfig";
    unknown(transcoder.from_json(LISTENER, &listener(filter), Strictness::Lenient).unwrap_err(), "a.Bcd", path);

    // As encoded bytes: an Any of a known type whose name is overwritten with another of the same length.
    let stand_in = json!({ "name": "f", "typedConfig": { "@type": "type.googleapis.com/google.rpc.Status" } });
    let bytes = transcoder.from_json(LISTENER, &listener(stand_in), Strictness::Strict).unwrap();
    let at = bytes.windows(17).position(|window| window == b"google.rpc.Status").unwrap();
    let bytes = [&bytes[..at], b"google.rpc.Strtus", &bytes[at + 17..]].concat();
    unknown(transcoder.to_json(LISTENER, &bytes, UnknownAny::Refuse).unwrap_err(), "google.rpc.Strtus", path);
    let path = "filter_chains[0].filters[0].typed_config.http_filters[1].typed_config";
    unknown(transcoder.to_text(LISTENER, &bytes, UnknownAny::Refuse).unwrap_err(), "google.rpc.Strtus", path);
    assert!(transcoder.to_json(LISTENER, &bytes, UnknownAny::Wrap).is_ok());

    let text =
        "filter_chains {\n  filters {\n    typed_config {\n      [type.googleapis.com/a.Bcd] {}\n    }\n  }\n}\n";
    let error = transcoder.from_text(LISTENER, text).unwrap_err();
    assert_eq!(error.line(), Some(4));
    unknown(error, "a.Bcd", "");
}

#[test]
fn lenient_reading_passes_over_what_it_does_not_know() {
    let transcoder = Transcoder::envoy();
    let json = json!({
        "name": "a", "future": { "x": 1 }, "lbPolicy": "FUTURE",
        "upstreamBindConfig": { "later": [] },
        "typedExtensionProtocolOptions": { "t": { "@type": "t/google.protobuf.Empty", "later": 1 } },
    });
    let bytes = transcoder.from_json(CLUSTER, &json, Strictness::Lenient).unwrap();
    let back = transcoder.to_json(CLUSTER, &bytes, UnknownAny::Refuse).unwrap();
    let kept = json!({
        "name": "a", "upstreamBindConfig": {},
        "typedExtensionProtocolOptions": { "t": { "@type": "t/google.protobuf.Empty" } },
    });
    assert_eq!(back, kept);
    assert!(
        transcoder.from_json(CLUSTER, &json!({ "name": 5 }), Strictness::Lenient).is_err(),
        "a known field is still checked"
    );
}

#[test]
fn text_faults_have_their_line() {
    let transcoder = Transcoder::envoy();
    let error = transcoder.from_text(CLUSTER, "name: \"a\"\n# no { brace\nlb_policy: \"RANDOM\"\n").unwrap_err();
    assert_eq!(error.line(), Some(3), "{error}");
    let error = transcoder.from_text(CLUSTER, "name: 'a'\nnmae: 'b'").unwrap_err();
    assert_eq!(error.line(), Some(2), "{error}");
    assert!(error.to_string().starts_with("envoy.config.cluster.v3.Cluster, line 2: "), "{error}");
}

#[test]
fn bytes_that_are_no_message_are_said_to_be_none() {
    let error = Transcoder::envoy().to_json(CLUSTER, &[0x0a, 9, b'x'], UnknownAny::Wrap).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("envoy.config.cluster.v3.Cluster: these bytes are no envoy.config.cluster.v3.Cluster:"),
        "{error}"
    );
    let any = [&[0x0a, 45][..], b"type.googleapis.com/google.protobuf.BoolValue", &[0x12, 2, 0x0a, 9]].concat();
    assert!(Transcoder::envoy().canonical("google.protobuf.Any", &any).is_err());
}

#[test]
fn yaml_faults_have_line_and_column_and_words_are_no_booleans() {
    let error = yaml::parse("a: 1\nb: [1,\nc: 2\n").unwrap_err();
    assert!(error.line.is_some_and(|line| (2..=3).contains(&line)), "{error}");
    assert!(!error.reason.contains("line "), "{error}");
    let error = yaml::parse("a: 1\nb: 2\na: 3\n").unwrap_err();
    assert_eq!(error.line, Some(3), "{error}");
    let json =
        yaml::parse("a: no\nb: yes\nc: on\nd: true\ne: ~\nf: 012\ng: 0x10\nh: .nan\ni: -.inf\nj: '1'\n1: k\n").unwrap();
    let wanted = json!({
        "a": "no", "b": "yes", "c": "on", "d": true, "e": null, "f": 12.0, "g": 16, "h": "NaN", "i": "-Infinity", "j": "1", "1": "k"
    });
    assert_eq!(json, wanted);
    assert_eq!(yaml::parse_all("a: 1\n---\n---\nb: 2\n").unwrap(), [json!({ "a": 1 }), json!({ "b": 2 })]);
    assert!(yaml::parse("").is_err() && yaml::parse("a: 1\n---\nb: 2\n").is_err());
}

#[test]
fn json_keys_may_not_be_there_twice() {
    let error = parse_json(b"{\"a\": 1,\n \"a\": 2}").unwrap_err();
    assert!(error.to_string().contains("\"a\" is there twice"), "{error}");
    assert_eq!(error.line(), 2);
}

#[test]
fn operators_descriptors_are_added_and_bad_ones_rejected() {
    let file = prost_types::FileDescriptorProto {
        name: Some("mine.proto".into()),
        package: Some("mine".into()),
        syntax: Some("proto3".into()),
        dependency: vec!["envoy/config/core/v3/base.proto".into()],
        message_type: vec![prost_types::DescriptorProto {
            name: Some("Mine".into()),
            field: vec![prost_types::FieldDescriptorProto {
                name: Some("my_node".into()),
                number: Some(3),
                label: Some(1),
                r#type: Some(11),
                type_name: Some(".envoy.config.core.v3.Node".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let set = |files: Vec<prost_types::FileDescriptorProto>| {
        Bytes::from(prost::Message::encode_to_vec(&prost_types::FileDescriptorSet { file: files }))
    };
    let transcoder = Transcoder::with_descriptor_sets(&[set(vec![file.clone()])]).unwrap();
    let json = json!({ "myNode": { "id": "n" } });
    let bytes = transcoder.from_json("mine.Mine", &json, Strictness::Strict).unwrap();
    assert_eq!(transcoder.to_json("mine.Mine", &bytes, UnknownAny::Refuse), Ok(json));
    assert!(transcoder.knows(CLUSTER));

    // The same file twice is harmless, and protobuf's own files are not replaced.
    let broken =
        prost_types::FileDescriptorProto { name: Some("google/protobuf/any.proto".into()), ..Default::default() };
    assert!(Transcoder::with_descriptor_sets(&[set(vec![file.clone()]), set(vec![file.clone(), broken])]).is_ok());

    let lonely = prost_types::FileDescriptorProto { dependency: vec!["nowhere.proto".into()], ..file };
    let error = Transcoder::with_descriptor_sets(&[set(vec![lonely])]).unwrap_err().to_string();
    assert!(error.contains("nowhere.proto"), "{error}");
    let error = Transcoder::with_descriptor_sets(&[Bytes::new(), Bytes::from_static(b"no descriptors")]).unwrap_err();
    assert_eq!(error.to_string(), "descriptor set 2 is no FileDescriptorSet");
}

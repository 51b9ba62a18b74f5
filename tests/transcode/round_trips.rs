use std::io::Read;

use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use weir::transcode::{REDACTED, Strictness, Transcoder, UNDECODED, UnknownAny, yaml};

use super::corpus;

/// Returns the same descriptors for the conversions of prost-reflect, an independent implementation for comparison.
fn pool() -> DescriptorPool {
    let mut set = Vec::new();
    let asset = include_bytes!("../../src/transcode/envoy.binpb.gz");
    flate2::read::GzDecoder::new(asset.as_slice()).read_to_end(&mut set).unwrap();
    set.extend_from_slice(include_bytes!(concat!(env!("OUT_DIR"), "/supplement.binpb")));
    DescriptorPool::decode(set.as_slice()).unwrap()
}

#[test]
fn every_top_level_type_comes_back_from_bytes_as_it_was() {
    let transcoder = Transcoder::envoy();
    for sample in corpus() {
        let bytes = transcoder.from_json(&sample.message, &sample.json, Strictness::Strict);
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}", sample.file));
        let back = transcoder.to_json(&sample.message, &bytes, UnknownAny::Refuse);
        assert_eq!(back.as_ref(), Ok(&sample.json), "{}", sample.file);
        assert_eq!(transcoder.canonical(&sample.message, &bytes).as_ref(), Ok(&bytes), "{}", sample.file);
    }
}

#[test]
fn yaml_and_text_come_back_as_the_same_bytes() {
    let transcoder = Transcoder::envoy();
    for sample in corpus() {
        let bytes = transcoder.from_json(&sample.message, &sample.json, Strictness::Strict).unwrap();
        let text = transcoder.to_yaml(&sample.message, &bytes, UnknownAny::Refuse).unwrap();
        let json = yaml::parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", sample.file));
        assert_eq!(json, sample.json, "{}\n{text}", sample.file);

        let text = transcoder.to_text(&sample.message, &bytes, UnknownAny::Refuse).unwrap();
        let back = transcoder.from_text(&sample.message, &text);
        assert_eq!(back.as_ref(), Ok(&bytes), "{}\n{text}", sample.file);
    }
}

/// prost-reflect converts the same JSON to the same message, and its JSON, in either spelling, is read as the same message.
#[test]
fn another_implementation_agrees() {
    let (transcoder, pool) = (Transcoder::envoy(), pool());
    for sample in corpus() {
        let descriptor = pool.get_message_by_name(&sample.message).unwrap();
        let options = DeserializeOptions::new();
        // prost-reflect writes and expects a value for google.protobuf.Empty in an Any. Envoy does not. Both forms are accepted here.
        let empty = r#""@type":"type.googleapis.com/google.protobuf.Empty""#;
        let json = sample.json.to_string().replace(empty, &format!(r#"{empty},"value":{{}}"#));
        let json: Value = serde_json::from_str(&json).unwrap();
        let theirs = DynamicMessage::deserialize_with_options(descriptor.clone(), &json, &options);
        let theirs = theirs.unwrap_or_else(|error| panic!("{}: {error}", sample.file));
        let ours = transcoder.from_json(&sample.message, &sample.json, Strictness::Strict).unwrap();
        // prost-reflect orders maps differently each time, also within Anys, so bytes are compared in the canonical form.
        let same = transcoder.canonical(&sample.message, &theirs.encode_to_vec()).unwrap();
        assert_eq!(same, ours, "{}", sample.file);
        for original_names in [false, true] {
            let options = SerializeOptions::new().use_proto_field_name(original_names);
            let message = DynamicMessage::decode(descriptor.clone(), &*ours).unwrap();
            let json = message.serialize_with_options(serde_json::value::Serializer, &options).unwrap();
            let bytes = transcoder.from_json(&sample.message, &json, Strictness::Strict);
            assert_eq!(bytes.as_ref(), Ok(&ours), "{}: {json}", sample.file);
        }
    }
}

#[test]
fn the_same_content_is_the_same_bytes_in_fifty_runs() {
    let samples = corpus();
    let encode = |transcoder: &Transcoder| {
        let bytes =
            |sample: &super::Sample| transcoder.from_json(&sample.message, &sample.json, Strictness::Strict).unwrap();
        samples.iter().map(bytes).collect::<Vec<_>>()
    };
    let first = encode(&Transcoder::envoy());
    for _ in 0..50 {
        assert!(encode(&Transcoder::envoy()) == first);
    }
    for _ in 0..5 {
        assert!(encode(&Transcoder::with_descriptor_sets(&[]).unwrap()) == first);
    }
    // The same holds in every process: these bytes are part of versions that clients have.
    let hash = xxhash_rust::xxh3::xxh3_64(&first.concat());
    assert_eq!(hash, 15_704_820_113_959_712_109, "the bytes of the corpus have changed: {hash}");
}

#[test]
fn the_order_of_maps_and_fields_is_made_the_same_within_anys_too() {
    let transcoder = Transcoder::envoy();
    let string = |number: u8, text: &str| [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat();
    let entry = |key: &str| string(1, std::str::from_utf8(&[string(1, key), string(2, "v")].concat()).unwrap());
    let any = |params: &[Vec<u8>]| {
        let type_url = "type.googleapis.com/xds.core.v3.ContextParams";
        let body = params.concat();
        [string(1, type_url), vec![0x12, body.len() as u8], body].concat()
    };
    let (ab, ba) = (any(&[entry("a"), entry("b")]), any(&[entry("b"), entry("a")]));
    assert_ne!(ab, ba);
    let canonical = |bytes: &[u8]| transcoder.canonical("google.protobuf.Any", bytes).unwrap();
    assert_eq!(canonical(&ab), canonical(&ba));
    assert_eq!(canonical(&ab), ab);
}

#[test]
fn fields_without_descriptor_are_kept_in_bytes() {
    let transcoder = Transcoder::envoy();
    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
    let strange = [0x80, 0xfa, 0x01, 0x07, 0x8a, 0xfa, 0x01, 0x02, b'h', b'i']; // 4000: 7, 4001: "hi"
    let bytes = [&strange[..], &[0x0a, 1, b'c']].concat();
    let canonical = transcoder.canonical(CLUSTER, &bytes).unwrap();
    assert_eq!(canonical, [&[0x0a, 1, b'c'], &strange[..]].concat());
    assert_eq!(transcoder.to_json(CLUSTER, &bytes, UnknownAny::Refuse), Ok(json!({ "name": "c" })));
    let text = transcoder.to_text(CLUSTER, &bytes, UnknownAny::Refuse).unwrap();
    assert_eq!(text, "name: \"c\"\n# field 4000, which has no descriptor\n# field 4001, which has no descriptor\n");
    assert!(transcoder.from_text(CLUSTER, &text).is_ok());
}

#[test]
fn numbers_have_all_the_forms_of_proto3_json() {
    let transcoder = Transcoder::envoy();
    let read = |message: &str, json: Value| {
        let bytes = transcoder.from_json(message, &json, Strictness::Strict)?;
        transcoder.to_json(message, &bytes, UnknownAny::Refuse)
    };
    let same = |message: &str, forms: &[Value], written: Value| {
        for form in forms {
            assert_eq!(read(message, form.clone()).as_ref(), Ok(&written), "{message}: {form}");
        }
    };
    same("google.protobuf.UInt64Value", &[json!(u64::MAX), json!(u64::MAX.to_string())], json!("18446744073709551615"));
    same(
        "google.protobuf.Int64Value",
        &[json!(-5), json!("-5"), json!(-5.0), json!("-5.0"), json!("-0.5e1")],
        json!("-5"),
    );
    same("google.protobuf.UInt32Value", &[json!(1e3), json!("1000")], json!(1000));
    same("google.protobuf.DoubleValue", &[json!(2), json!("2"), json!(2.0)], json!(2));
    same("google.protobuf.DoubleValue", &[json!("NaN")], json!("NaN"));
    same("google.protobuf.DoubleValue", &[json!("-Infinity")], json!("-Infinity"));
    same("google.protobuf.FloatValue", &[json!(0.1)], json!(0.1));
    for number in [0.1, 1.0 / 3.0, 5e-324, f64::MAX, 123_456_789.123_456_79, 0.300_000_000_000_000_04] {
        same("google.protobuf.Struct", &[json!({ "n": number })], json!({ "n": number }));
        let text = json!({ "n": number }).to_string();
        let json = weir::transcode::parse_json(text.as_bytes()).unwrap();
        assert_eq!(json, yaml::parse(&text).unwrap(), "{text}");
        assert_eq!(json["n"].as_f64(), Some(number), "{text}");
    }
}

#[test]
fn null_is_absence_but_where_it_is_a_value() {
    let transcoder = Transcoder::envoy();
    let json = json!({ "name": null, "lbPolicy": null, "metadata": { "filterMetadata": { "a": { "b": null } } } });
    let bytes = transcoder.from_json("envoy.config.cluster.v3.Cluster", &json, Strictness::Strict).unwrap();
    let back = transcoder.to_json("envoy.config.cluster.v3.Cluster", &bytes, UnknownAny::Refuse).unwrap();
    assert_eq!(back, json!({ "metadata": { "filterMetadata": { "a": { "b": null } } } }));
}

#[test]
fn an_any_without_descriptor_is_marked_for_people_and_rejected_for_all_others() {
    let transcoder = Transcoder::envoy();
    let any = [&[0x0a, 9][..], b"x.y/a.Bcd", &[0x12, 2, 1, 2]].concat();
    assert!(transcoder.to_json("google.protobuf.Any", &any, UnknownAny::Refuse).is_err());
    assert!(transcoder.to_text("google.protobuf.Any", &any, UnknownAny::Refuse).is_err());
    let marked = transcoder.to_json("google.protobuf.Any", &any, UnknownAny::Wrap).unwrap();
    assert_eq!(marked, json!({ UNDECODED: { "type_url": "x.y/a.Bcd", "size": 2, "bytes": "AQI=" } }));
    assert!(
        transcoder.from_json("google.protobuf.Any", &marked, Strictness::Lenient).is_err(),
        "it must not read as a message"
    );
    // Proto text has a form for this.
    let text = transcoder.to_text("google.protobuf.Any", &any, UnknownAny::Wrap).unwrap();
    assert_eq!(transcoder.from_text("google.protobuf.Any", &text).unwrap(), any);
    assert_eq!(transcoder.canonical("google.protobuf.Any", &any).unwrap(), any);
}

#[test]
fn text_of_the_same_content_is_the_same_where_it_has_to_show_bytes() {
    let transcoder = Transcoder::envoy();
    let type_url = b"6.y/google.protobuf.BoolValue"; // a number cannot begin a word in brackets
    let any = |body: &[u8]| [&[0x0a, type_url.len() as u8][..], type_url, &[0x12, body.len() as u8], body].concat();
    let text = |body: &[u8]| transcoder.to_text("google.protobuf.Any", &any(body), UnknownAny::Refuse).unwrap();
    assert_eq!(text(&[0x10, 5, 0x08, 1]), text(&[0x08, 1, 0x10, 5]));
    assert_eq!(transcoder.from_text("google.protobuf.Any", &text(&[0x08, 1])).unwrap(), any(&[0x08, 1]));
}

#[test]
fn sensitive_fields_are_not_shown() {
    let transcoder = Transcoder::envoy();
    for sample in corpus() {
        let bytes = transcoder.from_json(&sample.message, &sample.json, Strictness::Strict).unwrap();
        let redacted = transcoder.redacted_json(&sample.message, &bytes, UnknownAny::Wrap).unwrap();
        if sample.file != "secret.json" {
            let mut shown = sample.json.clone();
            // A struct of a type without a descriptor may contain anything.
            if let Some(unknown) = shown.pointer_mut("/typedExtensionProtocolOptions/another/value") {
                *unknown = REDACTED.into();
            }
            assert_eq!(redacted, shown, "{}", sample.file);
            continue;
        }
        assert_eq!(redacted["tlsCertificate"]["privateKey"], REDACTED);
        assert_eq!(redacted["tlsCertificate"]["password"], REDACTED);
        assert_eq!(redacted["tlsCertificate"]["certificateChain"], sample.json["tlsCertificate"]["certificateChain"]);
        assert!(!redacted.to_string().contains("secret") && !redacted.to_string().contains("c2VjcmV0"));
    }
    // Nor are they shown if the message is stored as data.
    let held = json!({ "name": "s", "generic_secret": { "secret": { "inline_string": "hush" } } });
    for name in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
        let shown = |type_url: &str, value: &Value| {
            let json = json!({ "typeUrl": type_url, "value": value });
            let bytes = transcoder.from_json(name, &json, Strictness::Strict).unwrap();
            transcoder.redacted_json(name, &bytes, UnknownAny::Wrap).unwrap()["value"].clone()
        };
        let secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
        assert_eq!(shown(secret, &held), json!({ "name": "s", "genericSecret": { "secret": REDACTED } }));
        assert_eq!(shown(secret, &json!({ "name": 5 })), REDACTED, "nobody can tell what is secret in it");
        assert_eq!(shown("x/a.Bcd", &held), REDACTED, "of types without descriptor nothing is known");
    }

    let unknown = [&[0x0a, 9][..], b"x.y/a.Bcd", &[0x12, 2, 1, 2]].concat();
    let redacted = transcoder.redacted_json("google.protobuf.Any", &unknown, UnknownAny::Wrap).unwrap();
    assert_eq!(redacted[UNDECODED]["bytes"], REDACTED, "nobody knows what is in it");
}

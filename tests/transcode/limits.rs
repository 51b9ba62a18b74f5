use std::time::Instant;

use serde_json::{Value, json};
use weir::transcode::document::{Format, read_resources};
use weir::transcode::yaml::MAX_YAML_DEPTH;
use weir::transcode::{MAX_DEPTH, Strictness, Transcoder, UnknownAny, parse_json, yaml};

const ANY: &str = "google.protobuf.Any";
const DEEP: usize = 10_000;

/// Runs a test on a stack as small as that of a runtime's worker.
fn on_a_small_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn_scoped(scope, test);
        thread.expect("a thread").join().expect("the stack was enough");
    });
}

/// Returns nested Anys.
fn nested_any(levels: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..levels {
        let type_url = b"t/google.protobuf.Any";
        let mut outer = vec![0x0a, type_url.len() as u8];
        outer.extend_from_slice(type_url);
        outer.push(0x12);
        prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
        outer.extend_from_slice(&bytes);
        bytes = outer;
    }
    bytes
}

#[test]
fn anys_within_anys_are_bounded() {
    let (deepest, deeper, deep) = (nested_any(MAX_DEPTH), nested_any(MAX_DEPTH + 1), nested_any(2_000));
    on_a_small_stack(|| {
        let transcoder = Transcoder::envoy();
        let deepest = transcoder.canonical(ANY, &deepest).expect("as deep as allowed");
        let json = transcoder.to_json(ANY, &deepest, UnknownAny::Refuse).expect("as deep as allowed");
        assert!(transcoder.from_json(ANY, &json, Strictness::Strict).as_ref() == Ok(&deepest));
        let text = transcoder.to_text(ANY, &deepest, UnknownAny::Refuse).expect("as deep as allowed");
        assert!(transcoder.from_text(ANY, &text).as_ref() == Ok(&deepest));
        for bytes in [&deeper, &deep] {
            for error in [
                transcoder.canonical(ANY, bytes).unwrap_err(),
                transcoder.to_json(ANY, bytes, UnknownAny::Wrap).unwrap_err(),
                transcoder.to_text(ANY, bytes, UnknownAny::Wrap).unwrap_err(),
            ] {
                assert!(error.to_string().ends_with("it is nested deeper than 100 messages"), "{error}");
            }
        }
    });
}

#[test]
fn messages_within_messages_are_bounded() {
    // `google.protobuf.Value`: lists within lists, and `true` in the innermost.
    let nested = |levels: usize| {
        let mut bytes = vec![0x20, 1]; // bool_value: true
        for _ in 0..levels {
            let mut list = vec![0x0a];
            prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut list);
            list.extend_from_slice(&bytes);
            bytes = vec![0x32];
            prost_reflect::prost::encoding::encode_varint(list.len() as u64, &mut bytes);
            bytes.extend_from_slice(&list);
        }
        bytes
    };
    let (deepest, deep) = (nested(MAX_DEPTH / 2), nested(2_000));
    let (mut value, mut just) = (json!(true), json!(true));
    for level in 0..DEEP {
        value = Value::Array(vec![value]);
        if level < MAX_DEPTH / 2 {
            just = json!([just]);
        }
    }
    on_a_small_stack(|| {
        let transcoder = Transcoder::envoy();
        const VALUE: &str = "google.protobuf.Value";
        assert_eq!(transcoder.to_json(VALUE, &deepest, UnknownAny::Refuse), Ok(just.clone()));
        assert_eq!(transcoder.from_json(VALUE, &just, Strictness::Strict).as_deref(), Ok(&*deepest));
        assert!(transcoder.to_json(VALUE, &deep, UnknownAny::Refuse).is_err());
        assert!(transcoder.canonical(VALUE, &deep).is_err());
        let error = transcoder.from_json(VALUE, &value, Strictness::Strict).unwrap_err();
        assert!(error.to_string().ends_with("it is nested deeper than 100 messages"), "{error}");
        let error = transcoder.from_json(ANY, &value, Strictness::Strict).unwrap_err();
        assert!(error.to_string().contains("has to be an object"), "{error}");
        let text = "list_value { values ".repeat(DEEP);
        let error = transcoder.from_text(VALUE, &text).unwrap_err();
        assert!(error.to_string().ends_with("it is nested deeper than 100 messages"), "{error}");
        let groups = vec![0x23u8; DEEP]; // the start of group 4, repeated
        assert!(transcoder.canonical(VALUE, &groups).is_err());
    });
    std::mem::forget(value); // serde_json would drop it recursively and overflow the stack
}

#[test]
fn texts_within_texts_are_bounded() {
    on_a_small_stack(|| {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("!a [", "]")] {
            let text = format!("{}1{}", open.repeat(DEEP), close.repeat(DEEP));
            assert!(yaml::parse(&text).is_err(), "{open}");
            assert!(parse_json(text.as_bytes()).is_err(), "{open}");
            for format in [Format::Yaml, Format::Json, Format::Text, Format::Binary] {
                assert!(read_resources(&Transcoder::envoy(), format, text.as_bytes()).is_err(), "{open}");
            }
        }
        let block: String = (0..DEEP / 10).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert!(yaml::parse(&block).is_err());
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(yaml::parse(&nested(MAX_YAML_DEPTH)).is_ok() && parse_json(nested(120).as_bytes()).is_ok());
        assert!(yaml::parse(&nested(MAX_YAML_DEPTH + 1)).is_err());
    });
}

#[test]
fn aliases_cannot_make_much_of_little() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{inner}]\n");
    }
    let mut long = format!("a: &a {}\nb:\n", "x".repeat(1_000_000));
    (0..10_000).for_each(|_| long += "- *a\n");
    let mut merges = String::from("m0: &m0 {a: 1, b: 2, c: 3}\n");
    for level in 1..2_000 {
        merges += &format!("m{level}: &m{level} {{<<: *m{}, k{level}: 1}}\n", level - 1);
    }
    let documents = format!("{laughs}---\n").repeat(100);
    on_a_small_stack(|| {
        for bomb in [&laughs, &long, &merges, &documents] {
            let started = Instant::now();
            let error = yaml::parse_all(bomb).unwrap_err();
            assert!(started.elapsed().as_secs() < 20, "{error}");
        }
    });
    assert!(yaml::parse("a: &a *a\n").is_err(), "an anchor within itself");

    // Normal use of anchors is accepted.
    let mut fair = String::from("x: &x {a: 1, b: [1, 2, 3], c: hello}\nlist:\n");
    (0..2_000).for_each(|_| fair += "- *x\n");
    assert_eq!(yaml::parse(&fair).unwrap()["list"].as_array().map(Vec::len), Some(2_000));
    let merged = yaml::parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n").unwrap();
    assert_eq!(merged["b"], json!({ "x": 1, "y": 3 }));
}

#[test]
fn large_files_are_read() {
    let endpoint = "- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: cluster-NNNNNN\n  connect_timeout: 1s\n";
    let text: String = (0..40_000).map(|number| endpoint.replace("NNNNNN", &number.to_string())).collect();
    let resources = read_resources(&Transcoder::envoy(), Format::Yaml, text.as_bytes()).expect("4 MB are not too much");
    assert_eq!(resources.len(), 40_000);
    assert_eq!(resources[39_999].line, Some(3 * 39_999 + 1));
    let items: Vec<Value> = yaml::parse(&text).unwrap().as_array().unwrap().clone();
    let json = serde_json::to_string_pretty(&json!({ "resources": items })).unwrap();
    let from_json = read_resources(&Transcoder::envoy(), Format::Json, json.as_bytes()).expect("nor in JSON");
    assert!(from_json.iter().zip(&resources).all(|(a, b)| a.body == b.body));
    assert_eq!(from_json[39_999].line, Some(3 + 5 * 39_999));
}

/// Only open brackets count as depth: not closed ones, and no bracket in a comment or a string.
#[test]
fn brackets_that_open_nothing_are_no_depth() {
    let transcoder = Transcoder::envoy();
    let read = |text: &str| transcoder.from_text("envoy.config.core.v3.Node", text).map_err(|error| error.to_string());
    let many = "{<".repeat(MAX_DEPTH);
    for text in [
        format!("# {many}\nid: \"a\"\n"),
        format!("id: \"a\" # {many}"),
        format!("id: \"a\" cluster: '{many}'\n"),
        format!("id: \"a\" cluster: \"\\\"{many}\"\n"),
        format!("id: \"a\" cluster: '\\'{many}\\\\'\n"),
        format!("id: \"a\" {}", "listening_addresses { pipe < path: 'p' > } ".repeat(MAX_DEPTH + 1)),
    ] {
        assert!(read(&text).is_ok(), "{:?}: {text}", read(&text));
    }
    let line = |text: &str| transcoder.from_text("envoy.config.core.v3.Node", text).unwrap_err().line();
    let deep = |before: &str| format!("{before}{}", "metadata { ".repeat(MAX_DEPTH + 1));
    assert_eq!(line(&deep("# {\n\n")), Some(3));
    assert_eq!(line(&deep("cluster: '\\\\'\n")), Some(2), "the string has ended");
    let unknown = "id: 'a'\n# [x.y/a.Bcd]\ncluster: '[x.y/a.Bcd]'\nextensions {\n category: 'c' }\nmetadata { typed_filter_metadata {\nkey: 'k' value { [ x.y/a.Bcd ] {} } } }";
    let error = transcoder.from_text("envoy.config.core.v3.Node", unknown).unwrap_err();
    assert_eq!((error.line(), error.to_string().contains("no descriptor of a.Bcd")), (Some(7), true), "{error}");
}

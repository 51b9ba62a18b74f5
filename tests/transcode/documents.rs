use std::path::Path;
use std::time::Duration;

use prost::Message;
use weir::transcode::document::{FileResource, Format, read_resources};
use weir::transcode::{Strictness, Transcoder, UnknownAny};
use weir_core::proto::discovery;

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn read(format: Format, text: &str) -> Vec<FileResource> {
    read_resources(&Transcoder::envoy(), format, text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn faults(format: Format, text: &str) -> Vec<String> {
    let error = read_resources(&Transcoder::envoy(), format, text.as_bytes()).unwrap_err();
    error.faults.iter().map(ToString::to_string).collect()
}

/// Returns the names in the bodies: field 1 of all types used here.
fn names(resources: &[FileResource]) -> Vec<String> {
    let name = |resource: &FileResource| {
        resource.body.get(2..).map(|rest| String::from_utf8_lossy(&rest[..usize::from(resource.body[1])]).into_owned())
    };
    resources.iter().map(|resource| name(resource).unwrap_or_default()).collect()
}

#[test]
fn fs_1_the_extension_says_the_format() {
    for (file, format) in [
        ("a.yaml", Some(Format::Yaml)),
        ("a.yml", Some(Format::Yaml)),
        ("a.JSON", Some(Format::Json)),
        ("a.b.pb", Some(Format::Binary)),
        ("a.pb_text", Some(Format::Text)),
        ("a.textproto", Some(Format::Text)),
        ("a.txt", None),
        ("yaml", None),
        (".yaml", None),
    ] {
        assert_eq!(Format::of_path(&Path::new("/x").join(file)), format, "{file}");
    }
}

const RESPONSE: &str = r#"
version_info: "7"
type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
  connect_timeout: 1s

- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  name: b
  version: "9"
  ttl: 30s
  aliases: [bb]
  cache_control: {do_not_cache: true}
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: b
"#;

#[test]
fn fs_1_a_discovery_response_in_every_format() {
    let transcoder = Transcoder::envoy();
    let from_yaml = read(Format::Yaml, RESPONSE);
    assert_eq!(names(&from_yaml), ["a", "b"]);
    let [a, b] = from_yaml.as_slice() else { panic!("two") };
    assert_eq!((&*a.type_url, &a.name, a.version.as_deref(), a.line), (CLUSTER, &None, Some("7"), Some(5)));
    assert_eq!((b.name.as_deref(), b.version.as_deref(), b.line), (Some("b"), Some("9"), Some(9)));
    assert_eq!((b.ttl, &*b.aliases, b.do_not_cache), (Some(Duration::from_secs(30)), &["bb".to_owned()][..], true));

    let without_lines = |mut resources: Vec<FileResource>| {
        resources.iter_mut().for_each(|resource| resource.line = None);
        resources
    };
    let wanted = without_lines(from_yaml);
    let json = weir::transcode::yaml::parse(RESPONSE).unwrap();
    let name = "envoy.service.discovery.v3.DiscoveryResponse";
    let binary = transcoder.from_json(name, &json, Strictness::Strict).unwrap();
    let text = transcoder.to_text(name, &binary, UnknownAny::Refuse).unwrap();
    let from_json = read(Format::Json, &serde_json::to_string_pretty(&json).unwrap());
    assert_eq!(from_json.iter().map(|resource| resource.line).collect::<Vec<_>>(), [Some(3), Some(8)]);
    assert_eq!(without_lines(from_json), wanted);
    assert_eq!(read(Format::Text, &text), wanted);
    assert_eq!(read_resources(&transcoder, Format::Binary, &binary).unwrap(), wanted);

    let wrapper = wanted[1].clone().into_wrapper();
    let response = discovery::DiscoveryResponse::decode(binary).unwrap();
    assert_eq!(wrapper, discovery::Resource::decode(response.resources[1].value.clone()).unwrap());
}

#[test]
fn fs_1_binary_bodies_are_taken_as_they_are() {
    let strange = [0x80, 0xfa, 0x01, 0x07, 0x0a, 1, b'c']; // an unknown field before the name
    let any = weir_core::proto::Any { type_url: "t/a.Bcd".into(), value: strange.to_vec().into() };
    let response = discovery::DiscoveryResponse { resources: vec![any], ..Default::default() };
    let resources = read_resources(&Transcoder::envoy(), Format::Binary, &response.encode_to_vec()).unwrap();
    assert_eq!(&resources[0].body[..], strange);
    assert_eq!(resources[0].type_url, "t/a.Bcd");
}

#[test]
fn bare_resources_lists_and_several_documents() {
    let bare = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n";
    assert_eq!(names(&read(Format::Yaml, bare)), ["a"]);
    let list = "- {\"@type\": t/envoy.config.cluster.v3.Cluster, name: a}\n- {\"@type\": t/envoy.config.listener.v3.Listener, name: b}\n";
    assert_eq!(names(&read(Format::Yaml, list)), ["a", "b"]);
    let json = "[\n{\"@type\": \"t/envoy.config.cluster.v3.Cluster\", \"name\": \"a,]\\\"\"},\n\n  {\"@type\": \"t/envoy.config.cluster.v3.Cluster\"}]";
    let resources = read(Format::Json, json);
    assert_eq!(resources.iter().map(|resource| resource.line).collect::<Vec<_>>(), [Some(2), Some(4)]);
    let several = format!("# first\n{bare}---\n{list}---\n{RESPONSE}");
    let resources = read(Format::Yaml, &several);
    assert_eq!(names(&resources), ["a", "a", "b", "a", "b"]);
    assert_eq!(resources.iter().map(|resource| resource.line).collect::<Vec<_>>(), [2, 5, 6, 12, 16].map(Some));
    assert_eq!(read(Format::Yaml, "resources: []\n"), []);
    assert_eq!(read(Format::Json, "[]"), []);
    let typed = "\"@type\": t/envoy.service.discovery.v3.DiscoveryResponse\nresources:\n- {\"@type\": t/envoy.config.cluster.v3.Cluster, name: a}\n";
    assert_eq!(names(&read(Format::Yaml, typed)), ["a"]);
}

#[test]
fn a_bare_resource_may_have_a_field_of_resources_itself() {
    let inner = "{\"@type\": \"t/envoy.config.cluster.v3.Cluster\", \"name\": \"a\"}";
    let text = format!(
        "{{\"@type\": \"t/envoy.service.discovery.v3.DeltaDiscoveryResponse\",\n\"resources\": [\n{{\"resource\": {inner}}}]}}"
    );
    for format in [Format::Json, Format::Yaml] {
        let resources = read(format, &text);
        assert_eq!(resources.len(), 1);
        assert_eq!(resources[0].type_url, "t/envoy.service.discovery.v3.DeltaDiscoveryResponse");
        assert!(resources[0].body.ends_with(b"\x0a\x01a"), "{:?}", resources[0].body);
    }
}

#[test]
fn json_faults_within_an_item_have_the_line_of_the_file() {
    let text = "{\"resources\": [\n\n{\"@type\": \"t/envoy.config.cluster.v3.Cluster\",\n\"name\": \"a\",\n\"name\": \"b\"}\n]}";
    assert_eq!(faults(Format::Json, text), ["line 5: resources[0]: the key \"name\" is there twice"]);
    let text = format!("[\n{}\n]", "[".repeat(1000) + &"]".repeat(1000));
    assert_eq!(faults(Format::Json, &text), ["line 2: [0]: recursion limit exceeded"]);
}

#[test]
fn fs_5_a_collection_in_its_wrapper() {
    for head in ["", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\n"] {
        let text = format!(
            "{head}name: xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/x\nresource:\n  \"@type\": type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection\n  entries:\n  - inline_entry: {{name: one}}\n  - inline_entry: {{name: two}}\n"
        );
        let resources = read(Format::Yaml, &text);
        assert_eq!(resources.len(), 1);
        assert_eq!(resources[0].type_url, "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection");
        assert_eq!(resources[0].name.as_deref(), Some("xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/x"));
        assert_eq!(resources[0].body.windows(3).filter(|window| [&b"one"[..], b"two"].contains(window)).count(), 2);
    }
}

#[test]
fn every_fault_is_named_with_line_and_path() {
    let text = r#"version_info: 7
type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
  lb_policy: RUNG
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  load_assignment:
    endpoints:
    - lb_endpoints:
      - endpoint: {}
      - endpint: {}
- "@type": type.googleapis.com/a.Bcd
- name: nothing
- 5
"#;
    let wanted = [
        "line 1: version_info: it is a number and has to be a string",
        "line 6: resources[0].lb_policy: \"RUNG\" is no value of envoy.config.cluster.v3.Cluster.LbPolicy",
        "line 12: resources[1].load_assignment.endpoints[0].lb_endpoints[1].endpint: envoy.config.endpoint.v3.LbEndpoint has no such field",
        "line 13: resources[2]: there is no descriptor of a.Bcd",
        "line 14: resources[3]: it has no @type, which says what it is",
        "line 15: resources[4]: it is a number and has to be an object",
    ];
    assert_eq!(faults(Format::Yaml, text), wanted);
    let json = serde_json::to_string_pretty(&weir::transcode::yaml::parse(text).unwrap()).unwrap();
    let line_of = |part: &str| json.lines().position(|line| line.contains(part)).unwrap() + 1;
    let found = faults(Format::Json, &json);
    assert_eq!(found.len(), wanted.len());
    assert!(found[1].starts_with(&format!("line {}: resources[0].lb_policy", line_of("RUNG"))), "{found:?}");
    assert!(found[2].starts_with(&format!("line {}: ", line_of("endpint"))), "{found:?}");
    assert!(found[5].starts_with(&format!("line {}: ", line_of(" 5"))), "{found:?}");
}

#[test]
fn what_is_no_resource_file_is_said_to_be_none() {
    let first = |format, text: &str| faults(format, text).remove(0);
    assert!(first(Format::Yaml, "a: 1\n").starts_with("line 1: it is none of these: a DiscoveryResponse"));
    assert!(first(Format::Yaml, "").contains("there is nothing in it"));
    assert!(first(Format::Json, " \n").contains("there is nothing in it"));
    assert_eq!(first(Format::Json, "\n\"x\""), "line 2: it is a string, and no resource");
    assert_eq!(first(Format::Json, "{\"resources\":\n [}"), "line 2: expected value");
    assert_eq!(first(Format::Json, "{\"resources\":\n 5}"), "line 2: resources: it is a number and has to be a list");
    assert_eq!(first(Format::Yaml, "a: 1\n---\nresources:\n  x: 1\n").split(": ").next(), Some("line 1"));
    assert!(first(Format::Binary, "no protobuf").contains("it is no binary DiscoveryResponse"));
    assert_eq!(faults(Format::Text, "version_info: \"1\"\nresuorces {}\n")[0].split(": ").next(), Some("line 2"));
    let error = read_resources(&Transcoder::envoy(), Format::Yaml, b"a: 1\nb: \xff\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: it is not UTF-8");
    let foreign =
        "type_url: t/envoy.config.listener.v3.Listener\nresources:\n- {\"@type\": t/envoy.config.cluster.v3.Cluster}\n";
    assert_eq!(
        first(Format::Yaml, foreign),
        "line 3: resources[0]: it is a envoy.config.cluster.v3.Cluster in a response of envoy.config.listener.v3.Listener"
    );
    let many = format!("[{}]", vec!["{}"; 50].join(","));
    let error = read_resources(&Transcoder::envoy(), Format::Json, many.as_bytes()).unwrap_err();
    assert_eq!((error.faults.len(), error.more), (20, 30));
    assert!(error.to_string().ends_with("; and 30 more"), "{error}");
}

/// Lines of later documents are counted from the start of the file, and the fields of each document have their own lines.
#[test]
fn faults_of_later_documents_have_the_lines_of_the_file() {
    let bad = "resources:\n- \"@type\": t/envoy.config.cluster.v3.Cluster\n  name: a\n  lb_policy: RUNG\n";
    let good = "resources:\n- \"@type\": t/envoy.config.cluster.v3.Cluster\n  name: a\n";
    let found = faults(Format::Yaml, &format!("{good}---\n{bad}---\n{good}---\n# last\n{bad}"));
    let lines: Vec<_> = found.iter().map(|fault| fault.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    assert_eq!(lines, ["line 8: resources[0].lb_policy", "line 18: resources[0].lb_policy"]);
    let many: String = (0..25).map(|_| format!("---\n{bad}")).collect();
    let error = read_resources(&Transcoder::envoy(), Format::Yaml, many.as_bytes()).unwrap_err();
    assert_eq!((error.faults.len(), error.more), (20, 5), "over all documents");
    assert!(error.faults[19].to_string().starts_with("line 100: "), "{error}");
}

/// FS-5: clients that read wrappers get all fields of the wrapper.
#[test]
fn fs_5_a_wrapper_keeps_its_constraints_and_metadata() {
    let wrapper = |more: &str| {
        format!(
            "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\n{more}resource:\n  \"@type\": {CLUSTER}\n  name: c\n"
        )
    };
    let long = "resource_name: {name: long, dynamic_parameter_constraints: {constraint: {key: k, value: v}}}\n";
    let metadata = "metadata: {filter_metadata: {a: {b: 1}}}\n";
    let [resource] = &read(Format::Yaml, &wrapper(&format!("{long}{metadata}version: '3'\n")))[..] else { panic!() };
    assert_eq!((resource.name.as_deref(), resource.version.as_deref()), (Some("long"), Some("3")));
    let sent = resource.clone().into_wrapper();
    let name = sent.resource_name.unwrap();
    assert_eq!((name.name.as_str(), sent.name.as_str()), ("long", "long"));
    assert!(name.dynamic_parameter_constraints.is_some() && sent.metadata.is_some());
    assert!(sent.cache_control.is_none() && sent.ttl.is_none(), "nothing that it does not say");
    let both = read(Format::Yaml, &wrapper(&format!("name: short\n{long}")));
    assert_eq!(both[0].name.as_deref(), Some("short"));
    let held = read(Format::Yaml, &wrapper("cache_control: {do_not_cache: false}\n"));
    assert!(!held[0].do_not_cache);
}

#[test]
fn a_wrapper_that_cannot_be_used_is_a_fault_and_the_others_are_too() {
    let wrapper = "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource";
    let cluster = format!("resource: {{\"@type\": {CLUSTER}}}");
    let text = format!(
        "type_url: {CLUSTER}\nresources:\n- {{{wrapper}, name: empty}}\n- {{{wrapper}, name: a, ttl: -1s, {cluster}}}\n\
         - {{{wrapper}, name: b, resource: {{\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener}}}}\n\
         - {{{wrapper}, name: c, ttl: 0s, {cluster}}}\n- {{{wrapper}, name: d, resource: {{}}}}\n"
    );
    let expected = [
        "line 3: resources[0]: it is a wrapper with no resource in it",
        "line 4: resources[1]: its ttl is negative or too long",
        "line 5: resources[2]: it is a envoy.config.listener.v3.Listener in a response of envoy.config.cluster.v3.Cluster",
        "line 7: resources[4]: it does not say of what type it is",
    ];
    assert_eq!(faults(Format::Yaml, &text), expected);
}

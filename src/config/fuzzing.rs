//! Fuzz targets: the configuration file, and the bootstrap file of gRPC clients.

use std::path::Path;

use weir_core::protocol::ladder::FallbackTimers;

use super::diagnostic::Diagnostic;
use super::json::JsonReader;
use super::yaml::{Node, Scalar, Value};
use super::{bootstrap, load};
use crate::upstream::{Plan, SourcePlan};

/// A configuration file. It is accepted or has faults, each with a place in the file, and the same each time.
pub(crate) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains("dev") {
        return; // it might name a device, and never end
    }
    // In a folder that does not exist, so that no relative path leads to a file.
    let path = Path::new("/nowhere/relay.yaml");
    let environment = |name: &str| (name == "NAME").then(|| "value: [1]".to_owned());
    let review = || load::review(path, text, &environment, false);
    let (first, second) = (review(), review());
    assert_eq!(first.config.is_none(), !first.faults.is_empty(), "faults: {:?}", first.faults);
    assert_eq!((&first.faults, &first.warnings), (&second.faults, &second.warnings));
    check_places(&first.faults, text);
    check_places(&first.warnings, text);
    if let Some(config) = first.config {
        assert!(!config.listen.is_empty() && !config.upstream.servers.is_empty());
        check_plan(&config.upstream);
        let _ = config.upstream.for_views();
    }
}

/// A bootstrap file. The parser of its places reads what a JSON parser reads, and the servers are such that a plan can be made.
pub(crate) fn bootstrap(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("bootstrap.json");
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        let mut reader = JsonReader::of(path, false);
        let tree = reader.parse(text);
        let faults = reader.faults();
        let duplicates = faults.iter().filter(|fault| fault.reason.starts_with("duplicate key")).count();
        assert_eq!(faults.len(), duplicates, "valid JSON: {faults:?}");
        if duplicates == 0 {
            assert!(is_same(&tree.expect("a tree without faults"), &json), "the same values");
        }
    }
    match bootstrap::read(path, text, 1 << 20, false) {
        Ok(read) => check_plan(&Plan::new(read.lists, FallbackTimers::default(), false)),
        Err(faults) => check_places(&faults, text),
    }
}

fn is_same(node: &Node, json: &serde_json::Value) -> bool {
    match (&node.value, json) {
        (Value::Scalar(Scalar::Null), serde_json::Value::Null) => true,
        (Value::Scalar(Scalar::Flag(own)), serde_json::Value::Bool(flag)) => own == flag,
        (Value::Scalar(Scalar::Integer(_) | Scalar::Float(_)), serde_json::Value::Number(_)) => true,
        (Value::Scalar(Scalar::Text(own)), serde_json::Value::String(text)) => own == text,
        (Value::List(own), serde_json::Value::Array(items)) => {
            own.len() == items.len() && own.iter().zip(items).all(|(own, item)| is_same(own, item))
        }
        (Value::Map(own), serde_json::Value::Object(fields)) => {
            let has =
                |entry: &super::yaml::Entry| fields.get(&entry.key).is_some_and(|json| is_same(&entry.node, json));
            own.len() == fields.len() && own.iter().all(has)
        }
        _ => false,
    }
}

/// Every server is in a list, and every list has servers.
fn check_plan(plan: &Plan) {
    let lists = || plan.authorities.values().map(|authority| &authority.servers).chain([&plan.top]);
    assert!(lists().all(|list| !list.is_empty() && list.iter().all(|index| *index < plan.servers.len())));
    assert!((0..plan.servers.len()).all(|index| lists().any(|list| list.contains(&index))));
    for server in &plan.servers {
        if let SourcePlan::Ads(server) = server {
            assert!(server.uri.host().is_some_and(|host| !host.is_empty()), "{}", server.uri);
            assert_eq!(server.tls.is_some(), server.uri.scheme_str() == Some("https"));
        }
    }
}

fn check_places(diagnostics: &[Diagnostic], text: &str) {
    // Every line break of YAML counts.
    let lines =
        1 + text.chars().filter(|letter| matches!(letter, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')).count();
    for diagnostic in diagnostics {
        assert!(diagnostic.line.is_none_or(|line| (1..=lines as u64 + 1).contains(&line)), "{diagnostic}");
        assert!(!diagnostic.reason.is_empty() && diagnostic.to_string().contains(&diagnostic.reason));
    }
}

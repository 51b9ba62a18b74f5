//! The configuration file, and the bootstrap file of gRPC clients.

use std::path::Path;

use serde_json::Value;
use weir::config::Diagnostic;
use weir::inputs::{read_bootstrap, read_json, review_config};
use weir::upstream::Plan;

/// A configuration file. It is accepted or has faults, each with a place in the file, and the same each time.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains("dev") {
        return; // it might name a device, and never end
    }
    // In a folder that does not exist, so that no relative path leads to a file.
    let path = Path::new("/nowhere/relay.yaml");
    let environment = |name: &str| (name == "NAME").then(|| "value: [1]".to_owned());
    let review = || review_config(path, text, &environment);
    let ((config, faults, warnings), (_again, same_faults, same_warnings)) = (review(), review());
    assert_eq!(config.is_none(), !faults.is_empty(), "faults: {faults:?}");
    assert_eq!((&faults, &warnings), (&same_faults, &same_warnings));
    check_places(&faults, text);
    check_places(&warnings, text);
    if let Some(config) = config {
        assert!(!config.listen.is_empty() && !config.upstream.servers.is_empty());
        check_plan(&config.upstream);
    }
}

/// A bootstrap file. The parser of its places reads what a JSON parser reads, and the servers are such that a plan can be made.
pub fn bootstrap(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("bootstrap.json");
    let own = read_json(path, text);
    if let Ok(json) = serde_json::from_str::<Value>(text) {
        match own {
            Ok(own) => assert!(is_same(&own, &json), "the same values"),
            Err(faults) => {
                let is_duplicate = |fault: &Diagnostic| fault.reason.starts_with("duplicate key");
                assert!(faults.iter().all(is_duplicate), "valid JSON: {faults:?}");
            }
        }
    }
    match read_bootstrap(path, text) {
        Ok(plan) => check_plan(&plan),
        Err(faults) => check_places(&faults, text),
    }
}

/// Whether the values are the same. Numbers may have different values.
fn is_same(own: &Value, json: &Value) -> bool {
    match (own, json) {
        (Value::Number(_), Value::Number(_)) => true,
        // An integer beyond those of 64 bits.
        (Value::Null, Value::Number(number)) => number.as_f64().is_some_and(|number| number.abs() >= 2_f64.powi(63)),
        (Value::Array(own), Value::Array(items)) => {
            own.len() == items.len() && own.iter().zip(items).all(|(own, item)| is_same(own, item))
        }
        (Value::Object(own), Value::Object(fields)) => {
            let has = |(key, own): (&String, &Value)| fields.get(key).is_some_and(|json| is_same(own, json));
            own.len() == fields.len() && own.iter().all(has)
        }
        (own, json) => own == json,
    }
}

/// Every server is in a list, and every list has servers.
fn check_plan(plan: &Plan) {
    let lists = || plan.authorities.values().map(|authority| &authority.servers).chain([&plan.top]);
    assert!(lists().all(|list| !list.is_empty() && list.iter().all(|index| *index < plan.servers.len())));
    assert!((0..plan.servers.len()).all(|index| lists().any(|list| list.contains(&index))));
    for server in plan.servers.iter().filter_map(|server| server.ads()) {
        let uri = server.uri();
        assert!(uri.host().is_some_and(|host| !host.is_empty()), "{uri}");
        assert_eq!(server.has_tls(), uri.scheme_str() == Some("https"));
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

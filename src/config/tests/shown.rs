//! The configuration as operators are shown it.

use std::path::Path;

use serde_json::json;

use crate::config::Config;

fn shown(text: &str) -> Config {
    let environment = |name: &str| match name {
        "HOST" => Some("cp.secret.example".to_owned()),
        _ => None,
    };
    Config::parse_in(Path::new("relay.yaml"), text, &environment).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn defaults_are_filled_in_and_what_is_from_the_environment_or_looks_like_a_secret_is_not_shown() {
    let text = "listen: [{address: ':1'}]
upstream:
  servers:
  - {uri: 'https://${HOST}:2', connect_timeout: 3s}
  - {rest: 'https://polled:2'}
limits: {linger: 5s}
clients: {control_plane_identifier: 'proxy http://user:pass@word@cp/x'}
";
    let shown = shown(text).shown;
    let config = &shown.config;
    assert_eq!(config["upstream"]["servers"][0]["uri"], "https://${HOST}:2");
    assert_eq!(config["upstream"]["servers"][0]["connect_timeout"], "3s");
    assert_eq!(config["upstream"]["servers"][0]["max_streams_per_connection"], 50);
    assert_eq!(config["upstream"]["servers"][0]["refresh_delay"], json!(null));
    assert_eq!(config["upstream"]["servers"][1]["refresh_delay"], "5s");
    assert_eq!(
        config["upstream"]["servers"][0]["liveness"],
        json!({"method": "call", "interval": "10s", "timeout": "5s"})
    );
    assert_eq!(config["upstream"]["servers"][1]["liveness"], json!(null), "polls are answers");
    assert_eq!((&config["limits"]["linger"], &config["limits"]["types_per_stream"]), (&json!("5s"), &json!(64)));
    assert_eq!(config["rest"]["enabled"], true);
    assert_eq!(
        (&config["admin"], &config["state"]),
        (&json!(null), &json!(null)),
        "not served, and so without defaults"
    );
    assert_eq!(config["clients"]["control_plane_identifier"], "proxy http://[redacted]@cp/x");
    let whole = config.to_string();
    assert!(!whole.contains("cp.secret.example") && !whole.contains("pass@word"), "{whole}");
    assert_eq!((shown.file.as_path(), shown.sha256.len()), (Path::new("relay.yaml"), 64));
}

#[test]
fn the_hash_is_that_of_the_file() {
    let text = "listen: [{address: ':1'}]\nupstream: {files: x}\n";
    let other = "listen: [{address: ':1'}]\nupstream: {files: y}\n";
    assert_eq!(shown(text).shown.sha256, shown(text).shown.sha256);
    assert_ne!(shown(text).shown.sha256, shown(other).shown.sha256);
}

#[test]
fn the_command_line_is_shown_beside_the_file_and_keeps_to_its_rules() {
    let mut config =
        shown("listen: [{address: ':1'}, {address: ':2'}]\nupstream: {files: x}\nadmin: {address: ':3'}\n");
    config.listen_at("127.0.0.1:7".parse().unwrap());
    assert!(config.admin_at("0.0.0.0:8".parse().unwrap()).unwrap_err().contains("probes.address"));
    config.admin_at("127.0.0.1:9".parse().unwrap()).unwrap();
    let given = serde_json::Value::from(config.shown.command_line.clone());
    assert_eq!(given, json!({"--listen": "127.0.0.1:7", "--admin": "127.0.0.1:9"}));
    assert_eq!((config.listen.len(), config.shown.config["listen"].as_array().unwrap().len()), (1, 2));
}

#[test]
fn addresses_of_the_command_line_have_the_certificates_of_the_file() {
    let tls = "tls: {certificate: c, key: k, client_ca: ca, may_read: [{dns: a.b}]}";
    let mut config = shown(&format!(
        "listen: [{{address: ':1', tls: {{certificate: c, key: k}}}}]\nupstream: {{files: x}}\nadmin: {{address: ':3', {tls}}}\n"
    ));
    config.listen_at("127.0.0.1:7".parse().unwrap());
    config.admin_at("0.0.0.0:8".parse().unwrap()).unwrap();
    assert_eq!(config.listen[0].address.to_string(), "127.0.0.1:7");
    assert!(config.listen[0].tls.is_some() && config.admin.tls.is_some());
    assert_eq!(config.admin.address, Some("0.0.0.0:8".parse().unwrap()));
    let mut plain = shown("listen: [{address: ':1'}]\nupstream: {files: x}\nadmin: {address: ':3'}\n");
    let before = plain.admin.address;
    assert!(plain.admin_at("0.0.0.0:8".parse().unwrap()).is_err());
    assert!(plain.admin.address == before && plain.shown.command_line.is_empty(), "what is refused changes nothing");
}

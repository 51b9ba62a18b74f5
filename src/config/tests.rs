mod admin;
mod agreement;
mod contradictions;
mod example;
mod faults;
mod json_schema;
mod listen_tls;
mod pages;
mod parts;
mod permissions;
mod recorded;
mod shown;
mod views;

use std::path::Path;
use std::time::Duration;

use weir_core::protocol::ladder::Rule;

use super::*;
use crate::relay::{LoadStreamLimits, LoadsMode};
use crate::upstream::SourcePlan;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("relay.yaml"), text).map_err(|error| error.to_string())
}

#[test]
fn the_commented_example_is_a_valid_configuration() {
    let config = parse(include_str!("../../config/relay.yaml")).unwrap();
    assert_eq!(config.listen.len(), 1);
}

#[test]
fn the_examples_of_failover_and_federation_are_what_they_say() {
    let failover = parse(include_str!("../../config/failover.yaml")).unwrap().upstream;
    assert_eq!((failover.servers.len(), failover.top.as_slice()), (2, [0, 1].as_slice()));
    assert!(
        failover.servers[0].ads().unwrap().tls.as_ref().is_some_and(|tls| tls.own.is_some()) && failover.hold_missing
    );
    let federation = parse(include_str!("../../config/federation.yaml")).unwrap().upstream;
    assert_eq!((federation.servers.len(), federation.top.as_slice()), (3, [0, 1].as_slice()));
    assert_eq!(federation.authorities["config.example"].servers, [0, 1]);
    let endpoints = &federation.authorities["endpoints.example"];
    assert_eq!((endpoints.servers.as_slice(), endpoints.rule), ([2, 0].as_slice(), Rule::Reachability));
}

#[test]
fn the_example_of_files_is_what_it_says() {
    let text = include_str!("../../config/files.yaml");
    let config = Config::parse(Path::new("config/files.yaml"), text).unwrap();
    assert_eq!(config.upstream.servers[0].name(), "files config/demo/resources");
    assert!(config.transcoder.is_none(), "the embedded descriptors are for whoever needs them");
    let text = text.replace("descriptors: []", "descriptors: [no.pb, files.yaml]");
    let message = Config::parse(Path::new("config/files.yaml"), &text).unwrap_err().to_string();
    assert!(message.contains("upstream.descriptors[0]: cannot read config/no.pb: no such file"), "{message}");
}

#[test]
fn the_example_of_polling_is_what_it_says() {
    let config = parse(include_str!("../../config/rest.yaml")).unwrap();
    let names: Vec<_> = config.upstream.servers.iter().map(SourcePlan::name).collect();
    assert_eq!(names, ["http://127.0.0.1:18011 (REST)", "http://127.0.0.1:18010"]);
    let rest = config.rest.unwrap();
    assert_eq!((rest.long_poll.as_millis(), rest.timeout.as_millis()), (0, 800));
    assert_eq!((rest.cache_bytes, rest.response_bytes), (64 << 20, 256 << 20));
    let with = |rest: &str| {
        parse(&format!(
            "listen: [{{address: '[::1]:1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\nrest: {rest}"
        ))
    };
    assert_eq!(with("{enabled: false}").unwrap().rest, None);
    assert_eq!(with("{long_poll: 20s}").unwrap().rest.map(|rest| rest.long_poll.as_secs()), Some(20));
    let message = with("{long_poll: soon, timeout: x, cache_bytes: 0}").unwrap_err();
    for part in ["rest.long_poll", "rest.timeout", "rest.cache_bytes: invalid size 0"] {
        assert!(message.contains(part), "{part} is missing in:\n{message}");
    }
    let message = with("{response_bytes: 134217727}").unwrap_err();
    assert!(
        message.contains(
            "rest.response_bytes: invalid size 134217727: expected at least 134217728, twice rest.cache_bytes"
        ),
        "{message}"
    );
}

#[test]
fn every_fault_is_reported_at_once_with_its_path() {
    let text = "listen: [{address: nowhere}]\nupstream: {servers: [{uri: 'cp:1', connect_timeout: soon}]}\nviews: {key: [cluster, colour]}\n";
    let message = parse(text).unwrap_err();
    let places = ["relay.yaml:1:20: listen[0].address", "relay.yaml:2:28: upstream.servers[0].uri"];
    for part in places.into_iter().chain([":2:53: upstream.servers[0].connect_timeout", ":3:24: views.key[1]"]) {
        assert!(message.contains(part), "{part} is missing in:\n{message}");
    }
}

#[test]
fn xlat_17_a_resource_timer_that_is_shorter_than_the_clients_is_a_warning() {
    let warnings = |timer: &str| {
        let text = "listen: [{address: '[::1]:1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\nlimits:\n";
        let config = parse(&format!("{text}  resource_timer: {timer}\n")).unwrap();
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("15s"), [""; 0]);
    let short = warnings("14s");
    assert!(short.len() == 1 && short[0].starts_with("relay.yaml:4:19: limits.resource_timer: "), "{short:?}");
}

#[test]
fn draining_begins_at_once_unless_there_is_a_delay() {
    let with = |drain: &str| {
        let text = "listen: [{address: '[::1]:1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\n";
        parse(&format!("{text}{drain}")).map(|config| config.drain.delay)
    };
    assert_eq!(with(""), Ok(Duration::ZERO));
    assert_eq!(with("drain: {delay: 5s}"), Ok(Duration::from_secs(5)));
    assert!(with("drain: {delay: soon}").unwrap_err().starts_with("relay.yaml:3:16: drain.delay: "));
}

#[test]
fn loads_are_passed_through_unless_something_else_is_said() {
    let with = |loads: &str| {
        parse(&format!("listen: [{{address: '[::1]:1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{loads}"))
    };
    let passed_on = |streams, per_connection| LoadsMode::PassThrough(LoadStreamLimits { streams, per_connection });
    assert_eq!(with("").unwrap().loads, passed_on(10_000, 100));
    let given = with("load_reports: {streams: 7, streams_per_connection: 3}").unwrap();
    assert_eq!(given.loads, passed_on(7, 3));
    assert_eq!(with("load_reports: {mode: off}").unwrap().loads, LoadsMode::Off);
    let LoadsMode::Aggregate(limits) = with("load_reports: {mode: aggregate, max_outage: 1m}").unwrap().loads else {
        panic!("another mode");
    };
    assert_eq!(limits.outage, Duration::from_secs(60));
    let message = with("load_reports: {mode: aggregate, max_outage: 0s, bytes_per_view: 0}").unwrap_err();
    assert!(
        message.contains("load_reports.max_outage") && message.contains("load_reports.bytes_per_view"),
        "{message}"
    );
    assert!(with("load_reports: {mode: sum}").is_err());
}

#[test]
fn a_key_that_does_not_exist_is_reported_with_its_line() {
    let message = parse("listen: []\nupstream:\n  servers: []\n  sevrers: []\n").unwrap_err();
    assert!(
        message.contains("relay.yaml:4:3: upstream.sevrers: unknown key \"sevrers\": expected servers"),
        "{message}"
    );
}

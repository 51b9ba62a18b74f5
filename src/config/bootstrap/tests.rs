use weir_core::protocol::ladder::FallbackTimers;

use super::*;
use crate::upstream::Plan;

const PLAIN: &str = r#""channel_creds": [{"type": "insecure"}]"#;

fn plan(text: &str) -> Plan {
    let lists = read(Path::new("b.json"), text, 1 << 20, false).unwrap_or_else(|faults| panic!("{faults:?}")).lists;
    Plan::new(lists, FallbackTimers::default(), true)
}

/// Returns the only server of a bootstrap whose server has these fields.
fn server(fields: &str) -> AdsServer {
    let SourcePlan::Ads(server) = plan(&format!(r#"{{"xds_servers": [{{{fields}}}]}}"#)).servers.remove(0) else {
        panic!()
    };
    *server
}

fn faults(text: &str) -> Vec<String> {
    let faults = read(Path::new("b.json"), text, 1 << 20, false).map(|_| ()).unwrap_err();
    faults.iter().map(ToString::to_string).collect()
}

fn faults_of_server(fields: &str) -> Vec<String> {
    faults(&format!(r#"{{"xds_servers": [{{{fields}}}]}}"#))
}

#[track_caller]
fn reported(faults: &[String], parts: &[&str]) {
    let all = faults.join("\n");
    for part in parts {
        assert!(all.contains(part), "{part} is missing in:\n{all}");
    }
}

#[test]
fn boot_2_what_is_not_known_is_ignored_at_every_level() {
    let plan = plan(
        r#"{"xds_servers": [{"server_uri": "cp:1", "channel_creds": [{"type": "insecure", "colour": 1, "config": 7}],
             "server_features": ["xds_v3", 7, {"a": 1}, null, [1], "fail_on_data_errors", "resource_timer_is_transient_failure"],
             "colour": {}}],
            "authorities": {"a": {"colour": 1}}, "node": {"id": "n", "colour": 1, "build_version": 5},
            "certificate_providers": {"c": {"plugin_name": "own", "config": {"x": 1}, "colour": 2}}, "colour": []}"#,
    );
    let [SourcePlan::Ads(server)] = plan.servers.as_slice() else { panic!("{plan:?}") };
    assert_eq!(server.name(), "http://cp:1");
    let rules = ServerQuirks { fail_on_data_errors: true, tries_types_apart: true, ..ServerQuirks::default() };
    assert_eq!(
        (&server.quirks, &server.features),
        (&rules, &BTreeSet::from(["xds_v3"])),
        "BOOT-21: only one name counts"
    );
}

/// YAML's parser would reject these characters, the long text whose end it cannot see at once, and the pair of escapes.
#[test]
fn boot_2_everything_that_is_json_is_read() {
    let odd = format!("\u{7f}\u{feff}\u{ffff}\\ud83d\\ude00\\/{}", "long ".repeat(1000));
    let text = format!("{{\"{odd}\": \"{odd}\",\t\"xds_servers\"\n:[{{\"server_uri\": \"cp:1\", {PLAIN}}}]}}\n");
    assert_eq!(plan(&text).servers.len(), 1);
    reported(&faults(&text.replace("cp:1", "")), &["b.json:2:18: xds_servers[0].server_uri"]);
    reported(
        &faults("{\"xds_servers\": [],\n \"\\ud83d\": 1, \"a\": 1, \"a\": 2}"),
        &["b.json:2:2: invalid string", "b.json:2:23: a: duplicate key"],
    );
}

#[test]
fn boot_3_servers_their_address_and_credentials_are_needed() {
    for none in ["{}", r#"{"xds_servers": []}"#] {
        reported(&faults(none), &["missing item in \"xds_servers\": expected at least one server"]);
    }
    reported(&faults_of_server(PLAIN), &["b.json:1:18: xds_servers[0]: missing field \"server_uri\""]);
    reported(
        &faults_of_server(&format!(r#""server_uri": "", {PLAIN}"#)),
        &["xds_servers[0].server_uri: empty value: expected text"],
    );
    for none in [r#""server_uri": "cp:1""#, r#""server_uri": "cp:1", "channel_creds": []"#] {
        reported(&faults_of_server(none), &["missing item in \"channel_creds\": expected insecure or tls"]);
    }
    let own = r#"{"xds_servers": [{"server_uri": "cp:1", "channel_creds": [{"type": "insecure"}]}],
                  "authorities": {"a": {"xds_servers": [{"server_uri": "cp:2"}]}}}"#;
    reported(&faults(own), &["b.json:2:57: authorities.a.xds_servers[0]: missing item in \"channel_creds\""]);
}

#[test]
fn boot_4_the_first_credentials_that_are_supported_win() {
    let of = |list: &str| server(&format!(r#""server_uri": "cp:1", "channel_creds": [{list}]"#));
    assert_eq!(of(r#"{"type": "own"}, {"type": "insecure"}, {"type": "tls"}"#).name(), "http://cp:1");
    assert_eq!(of(r#"{"type": "google_default"}, {"type": "tls"}, {"type": "insecure"}"#).name(), "https://cp:1");
    let google = faults_of_server(r#""server_uri": "cp:1", "channel_creds": [{"type": "google_default"}]"#);
    reported(
        &google,
        &["xds_servers[0].channel_creds: unsupported credentials google_default: expected insecure or tls"],
    );
    let later = r#"{"type": "insecure"}, {"type": "tls", "config": {"certificate_file": "c"}}"#;
    assert!(of(later).tls.is_none(), "what comes later is not even looked at");
}

#[test]
fn boot_5_files_for_tls_may_all_be_absent_and_a_certificate_needs_its_key() {
    let with =
        |config: &str| format!(r#""server_uri": "cp:1", "channel_creds": [{{"type": "tls", "config": {config}}}]"#);
    let none = server(r#""server_uri": "cp:1", "channel_creds": [{"type": "tls"}]"#).tls.unwrap();
    assert_eq!((&none.ca, &none.own, &*none.server_name.to_str()), (&None, &None, "cp"));
    assert_eq!(server(&with("{}")).tls.unwrap(), none);
    let all = r#"{"ca_certificate_file": "ca", "certificate_file": "c", "private_key_file": "k", "refresh_interval": "1.5s"}"#;
    let all = server(&with(all)).tls.unwrap();
    let own = OwnCertificate { certificate: "c".into(), key: "k".into() };
    assert_eq!((all.ca, all.own), (Some("ca".into()), Some(own)));

    let place = "xds_servers[0].channel_creds[0].config.";
    for (config, part) in [
        (
            r#"{"certificate_file": "c"}"#,
            "certificate_file: missing field \"private_key_file\": it goes together with certificate_file",
        ),
        (
            r#"{"private_key_file": "k"}"#,
            "private_key_file: missing field \"certificate_file\": it goes together with private_key_file",
        ),
        (r#"{"ca_certificate_file": 1}"#, "ca_certificate_file: invalid value 1: expected a string"),
        (r#"{"refresh_interval": "10m"}"#, "refresh_interval: invalid duration: expected seconds, such as \"600s\""),
        (r#"{"refresh_interval": 600}"#, "refresh_interval: invalid value 600: expected a string"),
    ] {
        reported(&faults_of_server(&with(config)), &[&format!("{place}{part}")]);
    }
}

#[test]
fn boot_6_all_call_credentials_that_are_supported_apply() {
    let with =
        |list: &str| format!(r#""server_uri": "cp:1", "channel_creds": [{{"type": "tls"}}], "call_creds": [{list}]"#);
    let list = r#"{"type": "own", "config": 7}, {"type": "jwt_token_file", "config": {"jwt_token_file": "t"}}"#;
    assert_eq!(server(&with(list)).tokens, [PathBuf::from("t")]);
    for (list, part) in [
        (r#"{"type": "jwt_token_file"}"#, ": missing field \"config\""),
        (r#"{"type": "jwt_token_file", "config": {}}"#, ".config: missing field \"jwt_token_file\""),
        (
            r#"{"type": "jwt_token_file", "config": {"jwt_token_file": ""}}"#,
            ".config.jwt_token_file: empty value: expected text",
        ),
        (
            r#"{"type": "jwt_token_file", "config": {"jwt_token_file": []}}"#,
            ".config.jwt_token_file: invalid value a list: expected a string",
        ),
        (r#"{"type": "jwt_token_file", "config": "t"}"#, ".config: invalid value \"t\": expected an object"),
        (r#"{"config": {}}"#, ": missing field \"type\""),
    ] {
        reported(&faults_of_server(&with(list)), &[&format!("xds_servers[0].call_creds[0]{part}")]);
    }
}

#[test]
fn boot_9_and_boot_10_equal_servers_are_one_and_unknown_features_make_no_difference() {
    let entry = |rest: &str| format!(r#"{{"server_uri": "cp:1", {PLAIN}{rest}}}"#);
    let pair = |one: &str, other: &str| {
        let authority = format!(r#""authorities": {{"a": {{"xds_servers": [{}]}}}}"#, entry(other));
        plan(&format!(r#"{{"xds_servers": [{}], {authority}}}"#, entry(one)))
    };
    let same = pair("", "");
    assert_eq!((same.servers.len(), &same.top, &same.authorities["a"].servers), (1, &vec![0], &vec![0]));
    assert_eq!(pair("", r#", "server_features": ["own", 5]"#).servers.len(), 1);
    for known in ["fail_on_data_errors", "resource_timer_is_transient_error", "xds_v3", "trusted_xds_server"] {
        let other = pair("", &format!(r#", "server_features": ["{known}"]"#));
        assert_eq!((other.servers.len(), &other.authorities["a"].servers), (2, &vec![1]), "{known}");
    }
    let token = r#", "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "t"}}]"#;
    assert_eq!(pair("", token).servers.len(), 2, "other credentials");
    let twice = plan(&format!(r#"{{"xds_servers": [{}, {}]}}"#, entry(""), entry("")));
    assert_eq!(twice.top, [0], "nobody turns from a server to itself");
}

#[test]
fn boot_12_boot_13_and_boot_22_authorities_have_lists_and_a_rule_of_their_own_or_the_one_at_the_top() {
    let entry = |port: u16| format!(r#"{{"server_uri": "cp:{port}", {PLAIN}}}"#);
    let plan = plan(&format!(
        r#"{{"xds_servers": [{}, {}], "fallback_on_reachability_only": 5, "authorities": {{
             "bare": {{}}, "empty": {{"xds_servers": [], "fallback_on_reachability_only": true}},
             "": {{"xds_servers": [{}, {}]}}}}}}"#,
        entry(1),
        entry(2),
        entry(3),
        entry(1)
    ));
    assert_eq!(plan.top, [0, 1]);
    let own = |name: &str| (plan.authorities[name].servers.as_slice(), plan.authorities[name].rule);
    assert_eq!(own("bare"), ([0, 1].as_slice(), Rule::Uncached));
    assert_eq!(own("empty"), ([0, 1].as_slice(), Rule::Reachability));
    let names: Vec<_> = own("").0.iter().map(|at| plan.servers[*at].name()).collect();
    assert_eq!(names, ["http://cp:3", "http://cp:1"]);
}

#[test]
fn boot_17_a_template_has_to_begin_with_its_authority() {
    let with = |name: &str, template: &str| {
        let authority = format!(r#""{name}": {{"client_listener_resource_name_template": "{template}"}}"#);
        format!(r#"{{"xds_servers": [{{"server_uri": "cp:1", {PLAIN}}}], "authorities": {{{authority}}}}}"#)
    };
    for (name, template) in [("a.b", "xdstp://a.b/t/%s"), ("a/b", "xdstp://a%2Fb/t/%s"), ("", "xdstp:///t/%s?k=v")] {
        plan(&with(name, template));
    }
    for template in ["%s", "xdstp://b/t/%s", "xdstp://a.b", "xdstp:/a.b/t/%s", "xdstp://a.bc/t", ""] {
        let place =
            r#"authorities["a.b"].client_listener_resource_name_template: invalid template: expected it to begin with"#;
        reported(&faults(&with("a.b", template)), &[place]);
    }
}

#[test]
fn boot_24_each_field_of_another_type_is_reported_with_its_path_and_all_at_once() {
    let told_of = faults(
        r#"{"xds_servers": [7, {"server_uri": 5, "channel_creds": {}, "server_features": "xds_v3", "call_creds": 1}],
            "authorities": {"a.b": {"fallback_on_reachability_only": "true", "xds_servers": {},
                                    "client_listener_resource_name_template": null}, "c": []},
            "node": "n", "certificate_providers": {"p": {"config": []}, "q": {"plugin_name": "file_watcher",
            "config": {"certificate_file": 1, "private_key_file": "k", "refresh_interval": "x"}}},
            "client_default_listener_resource_name_template": false, "server_listener_resource_name_template": {}}"#,
    );
    let places = [
        "b.json:1:18: xds_servers[0]: invalid value 7: expected an object",
        "xds_servers[1].server_uri: invalid value 5: expected a string",
        "xds_servers[1].channel_creds: invalid value an object: expected a list",
        "xds_servers[1].server_features: invalid value \"xds_v3\": expected a list",
        "xds_servers[1].call_creds: invalid value 1: expected a list",
        r#"authorities["a.b"].fallback_on_reachability_only: invalid value "true": expected true or false"#,
        r#"authorities["a.b"].xds_servers: invalid value an object: expected a list"#,
        r#"authorities["a.b"].client_listener_resource_name_template: invalid value null: expected a string"#,
        "authorities.c: invalid value a list: expected an object",
        "node: invalid value \"n\": expected an object",
        "certificate_providers.p.config: invalid value a list: expected an object",
        "certificate_providers.p: missing field \"plugin_name\"",
        "certificate_providers.q.config.certificate_file: invalid value 1: expected a string",
        "certificate_providers.q.config.refresh_interval: invalid duration",
        "client_default_listener_resource_name_template: invalid value false: expected a string",
        "server_listener_resource_name_template: invalid value an object",
    ];
    reported(&told_of, &places);
    assert_eq!(told_of.len(), places.len(), "{}", told_of.join("\n"));
    assert_eq!(faults("[]"), ["b.json:1:1: invalid value a list: expected an object"]);
    reported(&faults("{\n\"xds_servers\": [,]}"), &["b.json:2:17: invalid JSON: expected a value, a comma"]);
    reported(&faults("{\n\t\"xds_servers\": [\n"), &["b.json:3: invalid JSON: the file ends before"]);
    reported(
        &faults(r#"{"xds_servers": {}}"#),
        &["b.json:1:17: xds_servers: invalid value an object: expected a list"],
    );
}

#[test]
fn boot_18_boot_19_boot_20_and_boot_25_what_is_for_clients_alone_changes_nothing() {
    let of = |node: &str, features: &str, more: &str| {
        plan(&format!(
            r#"{{"xds_servers": [{{"server_uri": "cp:1", {PLAIN}, "server_features": {features}}}], "node": {node}{more}}}"#
        ))
    };
    let bare = of("{}", "[]", "");
    let node = r#"{"id": "n", "build_version": "1", "user_agent_name": "own", "user_agent_version": {"a": 1},
                   "client_features": ["envoy.lb.does_not_support_overprovisioning"]}"#;
    let all =
        of(node, r#"["xds_v3", "ignore_resource_deletion"]"#, r#", "allowed_grpc_services": {"side:1": {"x": 1}}"#);
    let rules = |plan: &Plan| plan.servers[0].ads().unwrap().quirks.clone();
    assert_eq!(rules(&bare), rules(&all), "BOOT-20: no effect of its own");
    assert_eq!((bare.servers.len(), all.servers.len()), (1, 1), "BOOT-25: no side channel is a server");
    assert_eq!(all.servers[0].name(), "http://cp:1");
    // The node upstream comes from the sharing key, whatever the bootstrap contains.
}

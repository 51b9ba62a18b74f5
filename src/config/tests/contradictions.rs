//! Values that are well formed, but would switch something off or break it.

use std::path::Path;

use crate::config::load::{self, review};

const LISTEN: &str = "listen: [{address: '127.0.0.1:18000'}]\n";
const UPSTREAM: &str = "upstream: {servers: [{uri: 'http://cp:1'}]}\n";
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

fn faults(text: &str) -> Vec<String> {
    let review = review(Path::new("relay.yaml"), text, &|_| None, false);
    assert_eq!(review.config.is_some(), review.faults.is_empty());
    review.faults.iter().map(ToString::to_string).collect()
}

/// Checks the faults of additional lines, without file, line and column.
#[track_caller]
fn says(line: &str, expected: &[&str]) {
    let found = faults(&format!("{LISTEN}{UPSTREAM}{line}\n"));
    let found: Vec<_> = found.iter().map(|fault| fault.strip_prefix("relay.yaml:").expect(fault)).collect();
    let found: Vec<_> = found.iter().filter_map(|fault| Some(fault.split_once(": ")?.1)).collect();
    assert_eq!(found, expected, "{line}");
}

#[test]
fn a_key_without_fields_and_no_views_are_faults() {
    says("views: {key: []}", &["views.key: empty list: expected at least one item"]);
    says("views: {max: 0}", &["views.max: invalid number 0: expected a whole number of 1 or more"]);
}

#[test]
fn rules_that_protect_nothing_are_faults() {
    let rule = |rest: &str| format!("access: [{{types: [{SECRET}], {rest}}}]");
    for (rest, fault) in [
        ("allow_from: []", "allow_from: empty list: expected at least one item"),
        ("names: [], allow_from: [10.0.0.1]", "names: empty list: expected at least one item"),
        ("names: [''], allow_from: [10.0.0.1]", "names[0]: invalid name \"\": expected text that is not empty"),
        (
            "names: ['a/*/key'], allow_from: [10.0.0.1]",
            "names[0]: invalid name \"a/*/key\": expected * at the end only; elsewhere it matches nothing",
        ),
        (
            "names: [a, '*.pem'], allow_from: [10.0.0.1]",
            "names[1]: invalid name \"*.pem\": expected * at the end only; elsewhere it matches nothing",
        ),
        (
            "names: ['a**'], allow_from: [10.0.0.1]",
            "names[0]: invalid name \"a**\": expected * at the end only; elsewhere it matches nothing",
        ),
        (
            "names: ['xdstp://a/t/b?y=1&x=2'], allow_from: [10.0.0.1]",
            "names[0]: invalid name \"xdstp://a/t/b?y=1&x=2\": expected its canonical form \"xdstp://a/t/b?x=2&y=1\"",
        ),
        (
            "names: ['xdstp://a/t/a%2Db/*'], allow_from: [10.0.0.1]",
            "names[0]: invalid name \"xdstp://a/t/a%2Db/*\": expected its canonical form \"xdstp://a/t/a-b/*\"",
        ),
        (
            "allow_from: ['::ffff:10.0.0.0/104', '::ffff:10.0.0.7']",
            "allow_from[0]: invalid network ::ffff:10.0.0.0/104: expected its IPv4 form 10.0.0.0/8",
        ),
    ] {
        let line = rule(rest);
        let found = faults(&format!("{LISTEN}{UPSTREAM}{line}\n"));
        assert!(
            found.first().is_some_and(|found| found.ends_with(&format!(": access[0].{fault}"))),
            "{rest}: {found:?}"
        );
    }
    let names = "['*', 'a/*', b, 'xdstp://a/t/b/*', 'xdstp://a/t/b?x=1', 'xdstp://a']";
    says(&rule(&format!("names: {names}, allow_from: ['::/0', 10.0.0.0/8]")), &[]);
}

#[test]
fn numbers_that_do_not_fit_one_another_are_faults_at_the_one_that_was_set() {
    for (line, expected) in [
        (
            "limits: {incomplete_request_bytes: 1MiB}",
            "limits.incomplete_request_bytes: invalid size 1MiB: expected at least 64MiB, which is limits.message_bytes",
        ),
        (
            "limits: {message_bytes: 1GiB, incomplete_request_bytes: 512MiB}",
            "limits.incomplete_request_bytes: invalid size 512MiB: expected at least 1GiB, which is limits.message_bytes",
        ),
        (
            "limits: {name_bytes: 65MiB}",
            "limits.name_bytes: invalid size 65MiB: expected at most 64MiB, which is limits.message_bytes",
        ),
        (
            "limits: {node_bytes: 4MiB}",
            "limits.node_bytes: invalid size 4MiB: expected at most 3MiB, the least max_request_bytes of a server",
        ),
        (
            "limits: {names_per_type: 600000}",
            "limits.names_per_type: invalid number 600000: expected at most 500000, which is limits.names_per_stream",
        ),
        (
            "limits: {streams_per_connection: 11, streams: 10}",
            "limits.streams_per_connection: invalid number 11: expected at most 10, which is limits.streams",
        ),
        (
            "limits: {connections_per_address: 11, connections: 10}",
            "limits.connections_per_address: invalid number 11: expected at most 10, which is limits.connections",
        ),
        (
            "limits: {connections_per_identity: 11, connections: 10}",
            "limits.connections_per_identity: invalid number 11: expected at most 10, which is limits.connections",
        ),
        (
            "limits: {streams_per_identity: 11, streams: 10}",
            "limits.streams_per_identity: invalid number 11: expected at most 10, which is limits.streams",
        ),
        (
            "limits: {names_per_tenant: 7}",
            "limits.names_per_tenant: requires tenant in views.key: without it, clients have no tenants",
        ),
        (
            "views: {max: 10}\nlimits: {views_per_identity: 11}",
            "limits.views_per_identity: invalid number 11: expected at most 10, which is views.max",
        ),
        (
            "views: {max: 10}\nlimits: {views_per_connection: 11}",
            "limits.views_per_connection: invalid number 11: expected at most 10, which is views.max",
        ),
        (
            "load_reports: {streams: 10, streams_per_connection: 11}",
            "load_reports.streams_per_connection: invalid number 11: expected at most 10, which is load_reports.streams",
        ),
        (
            "load_reports: {bytes_per_view: 1GiB, bytes_total: 256MiB}",
            "load_reports.bytes_per_view: invalid size 1GiB: expected at most 256MiB, which is load_reports.bytes_total",
        ),
    ] {
        says(line, &[expected]);
    }
    for line in [
        "limits: {message_bytes: 1GiB}", // an incomplete request may be as long
        "limits: {incomplete_request_bytes: 64MiB}",
        "limits: {names_per_stream: 10, streams: 10, connections: 10, message_bytes: 2KiB}", // shares by default
        "load_reports: {bytes_total: 1MiB}",
        "limits: {node_bytes: 3MiB}",
    ] {
        says(line, &[]);
    }
    says(
        "limits: {message_bytes: x, incomplete_request_bytes: 1}",
        &["limits.message_bytes: invalid size \"x\": expected a number of bytes above 0, such as 67108864 or 64MiB"],
    );
}

#[test]
fn a_server_has_room_for_the_largest_node() {
    let with = |servers: &str, limits: &str| {
        faults(&format!("{LISTEN}upstream: {{servers: [{servers}]}}\nlimits: {{{limits}}}\n"))
    };
    let (small, large) = ("{uri: 'http://a:1', max_request_bytes: 512KiB}", "{uri: 'http://b:1'}");
    let expected = "upstream.servers[1].max_request_bytes: invalid size 512KiB: expected at least 1MiB, which is limits.node_bytes";
    let found = with(&format!("{large}, {small}"), "");
    assert!(found.len() == 1 && found[0].starts_with("relay.yaml:2:") && found[0].ends_with(expected), "{found:?}");
    let expected = "relay.yaml:3:22: limits.node_bytes: invalid size 600KiB: expected at most 512KiB, the least max_request_bytes of a server";
    assert_eq!(with(&format!("{large}, {small}"), "node_bytes: 600KiB"), [expected]);
    assert_eq!(with(small, "node_bytes: 512KiB"), [""; 0]);
}

#[test]
fn connections_last_long_enough_for_what_silence_says() {
    let with = |server: &str, limits: &str| {
        faults(&format!("{LISTEN}upstream: {{servers: [{{uri: 'http://a:1', {server}}}]}}\nlimits: {{{limits}}}\n"))
    };
    let found = with("max_connection_age: 4m 29s", "");
    let expected = "relay.yaml:2:62: upstream.servers[0].max_connection_age: invalid duration 4m 29s: expected at least 4m 30s, twice \
        limits.resource_timer and limits.second_silence; a stream that moves sooner ends before its silence says that a resource does not exist";
    assert_eq!(found, [expected]);
    for (server, limits) in [
        ("max_connection_age: 4m 30s", ""),
        ("max_connection_age: 0s", ""),
        ("max_connection_age: 1s", "resource_timer: 200ms, second_silence: 300ms"),
    ] {
        assert_eq!(with(server, limits), [""; 0], "{server}");
    }
    assert_eq!(with("max_connection_age: 270s", "second_silence: 2m 1s").len(), 1);
    let found = with("max_connection_age: 1s", "second_silence: soon");
    assert!(found.len() == 1 && found[0].contains("limits.second_silence: "), "{found:?}");
}

#[test]
fn what_grpc_and_http_cannot_say_is_a_fault() {
    for (line, expected) in [
        (
            "limits: {message_bytes: 4GiB, incomplete_request_bytes: 8GiB}",
            "limits.message_bytes: invalid size 4GiB: expected at most 4294967295B, the longest message of gRPC",
        ),
        (
            "limits: {reply_bytes: 1TiB}",
            "limits.reply_bytes: invalid size 1TiB: expected at most 4294967295B, the longest message of gRPC",
        ),
        ("limits: {message_bytes: 64}", "limits.message_bytes: invalid size 64B: expected 1KiB or more"),
        ("limits: {header_bytes: 100}", "limits.header_bytes: invalid size 100B: expected 1KiB or more"),
        (
            "limits: {header_bytes: 2GiB}",
            "limits.header_bytes: invalid size 2GiB: expected at most 1GiB, what HTTP/2 can announce",
        ),
        (
            "limits: {streams_per_connection: 2000000000, streams: 3000000000}",
            "limits.streams_per_connection: invalid number 2000000000: expected at most 1073741824, what HTTP/2 has numbers for",
        ),
        (
            "limits: {streams: 5000000000}",
            "limits.streams: invalid number 5000000000: expected a whole number of at most 4294967295",
        ),
        ("shards: 257", "shards: invalid number 257: expected at most 256, each of which is a thread"),
        (
            "limits: {linger: 9000000000000s}",
            "limits.linger: invalid duration \"9000000000000s\": expected at most 100 years",
        ),
    ] {
        says(line, &[expected]);
    }
    let text = format!("{LISTEN}upstream: {{servers: [{{uri: 'http://a:1', max_request_bytes: 4GiB}}]}}\n");
    assert_eq!(
        faults(&text),
        [
            "relay.yaml:2:61: upstream.servers[0].max_request_bytes: invalid size 4GiB: expected at most 4294967295B, the longest message of gRPC"
        ]
    );
}

#[test]
fn times_of_nothing_that_would_break_what_they_are_for_are_faults() {
    for (line, expected) in [
        ("limits: {resource_timer: 0s}", "limits.resource_timer: invalid duration \"0s\": expected 10ms or more"),
        (
            "limits: {removal_history_age: 9s}",
            "limits.removal_history_age: expected 10s or more, since removals wait that long for clients that keep up",
        ),
        ("limits: {second_silence: 0s}", "limits.second_silence: invalid duration \"0s\": expected 10ms or more"),
        (
            "limits: {first_request_timeout: 1ms}",
            "limits.first_request_timeout: invalid duration \"1ms\": expected 10ms or more, or 0s for never",
        ),
    ] {
        says(line, &[expected]);
    }
    let text = format!("{LISTEN}upstream: {{servers: [{{uri: 'http://a:1', connect_timeout: 0s}}]}}\n");
    assert_eq!(
        faults(&text),
        ["relay.yaml:2:59: upstream.servers[0].connect_timeout: invalid duration \"0s\": expected 10ms or more"]
    );
}

#[test]
fn a_server_that_is_the_relay_itself_is_a_fault_wherever_it_is_listed() {
    let text = "listen: [{address: ':18000'}]
admin: {address: ':19000'}
upstream:
  servers: [{uri: 'http://cp:18000'}, {uri: 'http://localhost:18000'}, {rest: 'http://127.0.0.1:19000'}]
  authorities: {a: {servers: [{uri: 'http://[::1]:18000'}, {uri: 'http://127.0.0.1:18001'}]}}
";
    let expected = [
        "relay.yaml:4:45: upstream.servers[1].uri: server http://localhost:18000/ is this relay: [::]:18000 is \
         listen[0].address in line 1; expected another address",
        "relay.yaml:4:79: upstream.servers[2].rest: server http://127.0.0.1:19000/ is this relay: 127.0.0.1:19000 is \
         admin.address in line 2; expected another address",
        "relay.yaml:5:37: upstream.authorities.a.servers[0].uri: server http://[::1]:18000/ is this relay: [::]:18000 is \
         listen[0].address in line 1; expected another address",
    ];
    assert_eq!(faults(text), expected);
    let bootstrap = r#"{"xds_servers": [{"server_uri": "127.0.0.1:18000", "channel_creds": [{"type": "insecure"}]}]}"#;
    let environment = |name: &str| (name == "GRPC_XDS_BOOTSTRAP_CONFIG").then(|| bootstrap.to_owned());
    let text = format!("{LISTEN}upstream: {{bootstrap_from_environment: true}}\n");
    let found = review(Path::new("relay.yaml"), &text, &environment, false).faults;
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    let start = "relay.yaml:2:40: upstream.bootstrap_from_environment: server http://127.0.0.1:18000/ is this relay: ";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
}

#[test]
fn a_server_at_the_address_of_probes_is_the_relay_too_and_a_unix_socket_is_at_no_port() {
    let text = "listen: [{address: 'unix:/run/weir.sock'}]
probes: {address: ':19001'}
upstream: {servers: [{uri: 'http://127.0.0.1:19001'}]}
";
    let expected = "relay.yaml:3:28: upstream.servers[0].uri: server http://127.0.0.1:19001/ is this relay: [::]:19001 is \
                    probes.address in line 2; expected another address";
    assert_eq!(faults(text), [expected]);
    assert_eq!(faults(&text.replace("127.0.0.1:19001", "127.0.0.1:19002")), [""; 0]);
}

#[test]
fn a_server_on_the_relays_own_socket_is_the_relay_by_whatever_path() {
    let text = "listen: [{address: 'unix:weir.sock'}, {address: 'unix:/run/other.sock'}]
upstream: {servers: [{uri: 'unix://weir.sock'}, {uri: 'unix:///run/other.sock'}, {uri: 'unix:/run/cp.sock'}]}
";
    let found = faults(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("servers[0].uri: server unix:") && found[0].contains("listen[0].address in line 1"));
    assert!(found[1].contains("servers[1].uri: server unix:/run/other.sock is this relay"), "{found:?}");
    let bootstrap =
        r#"{"xds_servers": [{"server_uri": "unix:/run/other.sock", "channel_creds": [{"type": "insecure"}]}]}"#;
    let environment = |name: &str| (name == "GRPC_XDS_BOOTSTRAP_CONFIG").then(|| bootstrap.to_owned());
    let text = "listen: [{address: 'unix:/run/other.sock'}]\nupstream: {bootstrap_from_environment: true}\n";
    let found = review(Path::new("relay.yaml"), text, &environment, false).faults;
    assert!(found.len() == 1 && found[0].to_string().contains("is this relay"), "{found:?}");
}

#[test]
fn a_server_that_is_the_relay_if_it_runs_on_this_machine_is_a_warning() {
    let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else { return };
    let name = name.trim();
    let listen = "listen: [{address: ':18000'}]";
    let text =
        format!("{listen}\nupstream: {{servers: [{{uri: 'http://{name}:18000'}}, {{uri: 'http://cp:18000'}}]}}\n");
    let found = review(Path::new("relay.yaml"), &text, &|_: &str| None, false);
    let warnings: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    let start =
        format!("relay.yaml:2:28: upstream.servers[0].uri: server http://{name}:18000/ is this relay if it runs on ");
    let [plain_text, is_relay] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(plain_text.contains("listen[0].address: no TLS") && is_relay.starts_with(&start), "{warnings:?}");
    assert_eq!(found.faults, []);
}

#[test]
fn files_of_a_bootstrap_and_keys_of_other_certificates_are_faults_of_a_review() {
    let folder = std::env::temp_dir().join(format!("weir-config-pairs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let [one, two] = ["one", "two"].map(|name| {
        let pair = rcgen::generate_simple_self_signed(vec![name.into()]).unwrap();
        write(&format!("{name}.pem"), &pair.cert.pem());
        write(&format!("{name}.key"), &pair.signing_key.serialize_pem());
        pair.cert
    });
    assert_ne!(one.pem(), two.pem());
    write("garbage.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let path = folder.join("relay.yaml");
    let own = format!("{}/", folder.display());
    let reviewed = |text: &str, opens_files: bool| {
        let review = load::review(&path, text, &|_| None, opens_files);
        review.faults.iter().map(|fault| fault.to_string().replace(&own, "")).collect::<Vec<_>>()
    };
    let tls = |tls: &str| format!("{LISTEN}upstream: {{servers: [{{uri: 'https://cp', tls: {tls}}}]}}\n");
    assert_eq!(reviewed(&tls("{ca: one.pem, certificate: one.pem, key: one.key}"), true), [""; 0]);
    let other = tls("{ca: garbage.pem, certificate: one.pem, key: two.key}");
    assert_eq!(
        reviewed(&other, true),
        [
            "relay.yaml:2:52: upstream.servers[0].tls.ca: invalid file garbage.pem: expected certificates that can be read",
            "relay.yaml:2:92: upstream.servers[0].tls.key: the key in two.key does not belong to the certificate in one.pem"
        ]
    );
    assert_eq!(reviewed(&other, false), [""; 0]);

    let file = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        r#"{{"ca_certificate_file": "{}", "certificate_file": "{}", "private_key_file": "{}"}}"#,
        file("no.pem"),
        file("two.pem"),
        file("one.key")
    );
    let token = file("no.token");
    let bootstrap = format!(
        r#"{{"xds_servers": [{{"server_uri": "cp:1", "channel_creds": [{{"type": "tls", "config": {config}}}],
"call_creds": [{{"type": "jwt_token_file", "config": {{"jwt_token_file": "{token}"}}}}]}}]}}"#
    );
    write("b.json", &bootstrap);
    let text = format!("{LISTEN}upstream: {{bootstrap: b.json}}\n");
    let found = reviewed(&text, true);
    let expected = [
        ("b.json:1:", "ca_certificate_file: cannot read no.pem: no such file or folder"),
        ("b.json:1:", "private_key_file: the key in one.key does not belong to the certificate in two.pem"),
        ("b.json:2:", "jwt_token_file: cannot read no.token: no such file or folder"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, (start, end)) in found.iter().zip(expected) {
        assert!(found.starts_with(start) && found.ends_with(end), "{found}");
    }
    assert_eq!(reviewed(&text, false), [""; 0]);
    let named = load::review(&path, &text, &|_| None, true).named;
    let names = |file: &str| named.contains(&folder.join(file));
    assert!(["b.json", "no.pem", "two.pem", "one.key", "no.token"].into_iter().all(names), "{named:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

//! The messages for invalid configurations: the place, the fault, and what is expected.

use std::path::Path;

use crate::config::load::{self, review};

const LISTEN: &str = "listen: [{address: '127.0.0.1:18000'}]\n";
const UPSTREAM: &str = "upstream: {servers: [{uri: 'http://cp:1'}]}\n";

fn faults(text: &str) -> Vec<String> {
    let environment = |name: &str| (name == "HOME").then(|| "/root".to_owned());
    let review = review(Path::new("relay.yaml"), text, &environment, false);
    assert_eq!(review.config.is_some(), review.faults.is_empty());
    review.faults.iter().map(ToString::to_string).collect()
}

/// Checks the faults of lines that follow valid ones.
#[track_caller]
fn says(more: &str, expected: &[&str]) {
    assert_eq!(faults(&format!("{LISTEN}{UPSTREAM}{more}")), expected, "{more}");
}

#[test]
fn structure_is_reported_with_place_fault_and_what_would_be_right() {
    for (more, expected) in [
        ("linger: 30s\n", "relay.yaml:3:1: linger: unknown key \"linger\": expected it in limits"),
        ("limits: {lingre: 30s}\n", "relay.yaml:3:10: limits.lingre: unknown key \"lingre\": expected linger"),
        (
            "drain: {colour: blue}\n",
            "relay.yaml:3:9: drain.colour: unknown key \"colour\": expected one of delay, grace, spread, bytes_per_second",
        ),
        (
            "limits: [30s]\n",
            "relay.yaml:3:9: limits: invalid value a list: expected a mapping with keys such as message_bytes",
        ),
        ("access: {types: [a.B]}\n", "relay.yaml:3:9: access: invalid value a mapping: expected a list"),
        ("limits: {linger: [1s]}\n", "relay.yaml:3:18: limits.linger: invalid value a list: expected a single value"),
        (
            "views: {key: [claster]}\n",
            "relay.yaml:3:15: views.key[0]: invalid part of a node \"claster\": expected one of id, cluster, locality, \
             locality.region, locality.zone, locality.sub_zone, metadata, user_agent, extensions, client_features, \
             listening_addresses, dynamic_parameters, unknown, tenant, metadata.<path>, header.<name>",
        ),
        ("types:\n- {full_state: true}\n", "relay.yaml:4:3: types[0]: missing key \"name\""),
        ("types:\n- {nam: a.B}\n", "relay.yaml:4:4: types[0].nam: unknown key \"nam\": expected name"),
        ("views: {max: 5}\nviews: {max: 6}\n", "relay.yaml:4:1: views: duplicate key \"views\": already in line 3"),
        ("---\nlisten: []\n", "relay.yaml:4:1: expected one YAML document, found 2"),
    ] {
        says(more, &[expected]);
    }
    assert_eq!(
        faults("# nothing\n"),
        ["relay.yaml:1:1: missing key \"listen\"", "relay.yaml:1:1: missing key \"upstream\"",]
    );
    assert_eq!(
        faults("just text\n"),
        ["relay.yaml:1:1: invalid value \"just text\": expected a mapping with keys such as listen"]
    );
}

#[test]
fn values_are_reported_with_place_fault_and_what_would_be_right() {
    for (more, expected) in [
        ("limits: {linger: 30}\n", "limits.linger: invalid duration 30: expected a number with a unit, such as 30s"),
        (
            "drain: {grace: 1 fortnight}\n",
            "drain.grace: invalid duration \"1 fortnight\": expected a number with a unit, such as 30s",
        ),
        (
            "limits: {reply_bytes: 2mb}\n",
            "limits.reply_bytes: invalid size \"2mb\": expected a number of bytes above 0, such as 67108864 or 64MiB",
        ),
        (
            "limits: {names_per_type: 0}\n",
            "limits.names_per_type: invalid number 0: expected a whole number of 1 or more",
        ),
        ("views: {max: -1}\n", "views.max: invalid number -1: expected a whole number of 1 or more"),
        ("views: {max: 1.5}\n", "views.max: invalid number 1.5: expected a whole number of 1 or more"),
        ("clients: {v2: yes}\n", "clients.v2: invalid value \"yes\": expected true or false"),
        (
            "load_reports: {mode: sum}\n",
            "load_reports.mode: invalid value \"sum\": expected pass_through, aggregate or off",
        ),
        (
            "clients: {control_plane_identifier: 7}\n",
            "clients.control_plane_identifier: invalid text 7: expected text; quotes make it text: \"7\"",
        ),
        (
            "admin: {address: localhost:19000}\n",
            "admin.address: invalid address \"localhost:19000\": expected an IP address and a port, such as 127.0.0.1:19000, or \
             :19000 for 127.0.0.1",
        ),
        ("admin: {address: ':70000'}\n", "admin.address: invalid address \":70000\": expected a port of at most 65535"),
        ("admin: {address: 70000}\n", "admin.address: invalid address 70000: expected a port of at most 65535"),
        (
            "access: [{types: [envoy.config.listener.v3.Listener], allow_from: [10.1.0.0/33]}]\n",
            "access[0].allow_from[0]: invalid network \"10.1.0.0/33\": expected an IP address or a network such as 10.1.0.0/16",
        ),
        (
            "access: [{types: [a.B], allow_from: [10.0.0.1]}]\n",
            "access[0].types[0]: unknown type \"a.B\": expected one that is built in or listed under types",
        ),
        (
            "types: [{name: a.B, name_field: 999999999}]\n",
            "types[0].name_field: invalid field number 999999999: expected 0 for none, or a number up to 536870911",
        ),
        (
            "types: [{name: a.B, order_with: c.D}]\n",
            "types[0].order_with: unknown type \"c.D\": expected one that is built in",
        ),
        ("types: [{name: a.B}, {name: a.B}]\n", "types[1]: duplicate type a.B: expected one entry for it"),
        (
            "types: [{name: a.B}, {name: x/a.B}]\n",
            "types[1]: a.B and x/a.B are one type: a type with an entry for its message name is known by that",
        ),
        (
            "drain: {delay: '${DELAY}'}\n",
            "drain.delay: undefined environment variable DELAY; write $${DELAY} for the text itself",
        ),
        ("access: '${DELAY}'\n", "access: undefined environment variable DELAY; write $${DELAY} for the text itself"),
        (
            "drain: {delay: '${HOME'}\n",
            "drain.delay: invalid variable reference \"${HOME\": expected ${NAME}, or $$ for a dollar sign",
        ),
    ] {
        let found = faults(&format!("{LISTEN}{UPSTREAM}{more}"));
        let [fault] = found.as_slice() else { panic!("{more}: {found:?}") };
        let (place, rest) = fault.split_once(": ").unwrap();
        assert_eq!(rest, expected);
        assert!(place.starts_with("relay.yaml:3:") && place.len() > "relay.yaml:3:".len(), "{fault}");
    }
}

#[test]
fn syntax_is_reported_in_words_of_the_program() {
    for (more, expected) in [
        (
            "drain:\n  delay: 1s\n\tgrace: 2s\n",
            "relay.yaml:4:10: invalid indentation after this value: expected spaces, found a tab",
        ),
        (
            "drain:\n  delay: 1s\n grace: 2s\n",
            "relay.yaml:5:2: invalid indentation: expected the keys of one mapping, or the items of one list, in one column",
        ),
        ("drain: {delay: 1s\n", "relay.yaml:3:8: unclosed {: expected }"),
        ("views: {key: [cluster}}\n", "relay.yaml:3:14: [ is closed by }: expected ]"),
        ("drain: {delay: '1s}\n", "relay.yaml:3:16: unclosed quote: expected the same quote at the end of the value"),
        (
            "drain: {delay: ${DELAY}}\n",
            "relay.yaml:3:17: invalid list or mapping in brackets: expected a comma or the closing bracket; quote values with \
             brackets, braces or commas, such as \"${NAME}\"",
        ),
        (
            "drain: delay: 1s\n",
            "relay.yaml:3:13: unexpected key in a value: expected one key and value to a line; quote values that contain a \
             colon and a space",
        ),
        ("drain: @now\n", "relay.yaml:3:8: unexpected @: expected quotes around values that begin with it"),
        (
            "drain: *usual\n",
            "relay.yaml:3:8: undefined anchor: expected an earlier value with &name; quote text that begins with *",
        ),
        ("drain: &usual {delay: *usual}\n", "relay.yaml:3:23: an anchored value refers to itself"),
        (
            "clients: {control_plane_identifier: \"a\\q\"}\n",
            "relay.yaml:3:37: invalid escape in a double-quoted value: expected one such as \\n; single quotes take backslashes \
             as they are",
        ),
        ("drain\n", "relay.yaml:3:1: invalid key: expected key: value"),
    ] {
        says(more, &[expected]);
    }
}

#[test]
fn addresses_that_cannot_both_be_listened_on_are_reported() {
    let with =
        |listen: &str, admin: &str| faults(&format!("listen: [{listen}]\nadmin: {{address: '{admin}'}}\n{UPSTREAM}"));
    assert_eq!(with("{address: ':18000'}, {address: '127.0.0.1:18001'}", ":19000"), [""; 0]);
    assert_eq!(with("{address: '127.0.0.1:0'}, {address: '127.0.0.1:0'}", "127.0.0.1:0"), [""; 0]);
    assert_eq!(with("{address: '127.0.0.1:18000'}, {address: '[::1]:18000'}", "127.0.0.2:18000"), [""; 0]);
    assert_eq!(
        with("{address: '127.0.0.1:18000'}", ":18000"),
        ["relay.yaml:2:18: admin.address: duplicate address 127.0.0.1:18000: already listen[0].address in line 1"]
    );
    assert_eq!(with("{address: '127.0.0.1:1'}, {address: ':1'}, {address: '127.0.0.1:1'}", ":2").len(), 2);
    assert_eq!(
        with("{address: ':18000'}", "127.0.0.1:18000"),
        [
            "relay.yaml:2:18: admin.address: address 127.0.0.1:18000 overlaps [::]:18000, which is listen[0].address in line 1"
        ]
    );
}

#[test]
fn faults_of_every_kind_are_reported_at_once_in_the_order_of_the_file_and_none_follows_from_another() {
    let text = "listen: []
upstream:
  servers:
  - {uri: one, tls: {key: k}}
  - {colour: blue, uri: 'https://two', tls: {certificate: [], key: k}}
  - {colour: blue}
  - {}
rest: {cache_bytes: x, response_bytes: 1}
limts: {}
admin: {}
";
    let found = faults(text);
    let expected = [
        "1:9: listen: empty list: ",
        "4:11: upstream.servers[0].uri: invalid URI \"one\": ",
        "5:6: upstream.servers[1].colour: unknown key",
        "5:59: upstream.servers[1].tls.certificate: invalid value a list: expected a single value",
        "6:6: upstream.servers[2].colour: unknown key",
        "7:5: upstream.servers[3]: missing source: expected uri, rest or files",
        "8:21: rest.cache_bytes: invalid size \"x\"",
        "9:1: limts: unknown key \"limts\": expected limits",
        "10:8: admin: missing address: expected address, socket or both",
    ];
    assert_eq!(found.len(), expected.len(), "{}", found.join("\n"));
    for (fault, expected) in found.iter().zip(expected) {
        assert!(fault.starts_with(&format!("relay.yaml:{expected}")), "{fault}\nis not {expected}");
    }
}

#[test]
fn a_review_looks_at_the_files_that_are_named_and_loading_does_not() {
    let folder = std::env::temp_dir().join(format!("weir-config-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("resources")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let key = rcgen::generate_simple_self_signed(vec!["weir".into()]).unwrap();
    write("cert.pem", &key.cert.pem());
    write("key.pem", &key.signing_key.serialize_pem());
    write("token", "e30.e30.c2ln\n");
    write("other", "no such thing\n");
    let config = |tls: &str, token: &str, files: &str| {
        let text = format!(
            "{LISTEN}upstream:\n  servers:\n  - {{uri: 'https://cp', tls: {tls}, token_file: {token}}}\n  - {{files: {files}}}\n"
        );
        let path = folder.join("relay.yaml");
        let environment = |_: &str| None;
        assert_eq!(load::review(&path, &text, &environment, false).faults, [], "nothing is looked at");
        let review = load::review(&path, &text, &environment, true);
        assert!(review.config.is_some(), "it would start");
        let faults = review.faults;
        let own = format!("{}/", folder.display());
        faults.iter().map(|fault| fault.to_string().replace(&own, "")).collect::<Vec<_>>()
    };
    assert_eq!(config("{ca: cert.pem, certificate: cert.pem, key: key.pem}", "token", "[resources, other]"), [""; 0]);
    let found = config("{ca: no.pem, certificate: other, key: cert.pem}", "other", "[resources, gone]");
    let expected = [
        "tls.ca: cannot read no.pem: no such file or folder",
        "tls.certificate: invalid file other: expected certificates in PEM",
        "tls.key: invalid file cert.pem: expected a private key in PEM",
        "token_file: invalid file other: expected a JSON web token",
        "files[1]: cannot read gone: no such file or folder",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (fault, expected) in found.iter().zip(expected) {
        assert!(fault.ends_with(expected), "{fault}\nis not {expected}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_review_looks_at_the_folder_and_the_key_of_the_state_and_at_each_part_of_a_token() {
    let folder = std::env::temp_dir().join(format!("weir-config-state-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let reviewed = |state: &str| {
        let upstream = "upstream: {servers: [{uri: 'https://cp', token_file: token}]}\n";
        let text = format!("{LISTEN}{upstream}state: {{{state}}}\n");
        let faults = load::review(&folder.join("relay.yaml"), &text, &|_| None, true).faults;
        let own = format!("{}/", folder.display());
        faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason.replace(&own, ""))).collect::<Vec<_>>()
    };
    write("key", &"0f".repeat(32));
    write("short", &"0f".repeat(31));
    write("token", "e30.e30.c2ln");
    assert_eq!(reviewed("path: weir.state, key: key"), [""; 0], "the state need not be there yet");
    assert_eq!(reviewed("path: none/weir.state"), ["state.path: cannot read none: no such file or folder"]);
    let expected = "state.key: invalid file short: expected 32 bytes, or those in base64 or hexadecimal";
    assert_eq!(reviewed("path: weir.state, key: short"), [expected]);
    for token in ["e30.e30", "e30..c2ln", "e30.e30.c2ln.e30", "e30.e30.c2 ln"] {
        write("token", token);
        let expected = "upstream.servers[0].token_file: invalid file token: expected a JSON web token";
        assert_eq!(reviewed("path: weir.state"), [expected], "{token}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

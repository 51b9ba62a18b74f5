//! Keys that leave out fields, presets, and whose secrets clients of one view may have.

use std::path::Path;

use weir_core::xds::KeyField;

use crate::config::load::{Config, review};

const START: &str = "listen: [{address: '127.0.0.1:18000'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\n";
const NO_SECRETS: &str =
    "permissions: [{name: all, identities: [{network: 0.0.0.0/0}], free: [id, cluster, metadata]}]\n";
const OF_A_PROCESS: &str = "permissions: [{name: all, identities: [{uid: 1}], free: [id, cluster, locality, metadata, user_agent, extensions, client_features, \
     dynamic_parameters, unknown]}]\n";
const PATH: &str = "expected keys with points between them, such as NAME or LABELS.hash; a key that has points is in brackets and quotes: \
                    LABELS[\"app.example/hash\"]";
const EXCEPT: &str = "{metadata: {except: [NAME]}}";

fn faults(text: &str) -> Vec<String> {
    let review = review(Path::new("relay.yaml"), &format!("{START}{text}"), &|_| None, false);
    review.faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason)).collect()
}

#[track_caller]
fn key_says(key: &str, expected: &[&str]) {
    assert_eq!(faults(&format!("views: {{key: [{key}]}}\n{NO_SECRETS}")), expected, "{key}");
}

fn parsed(text: &str) -> Config {
    Config::parse(Path::new("relay.yaml"), &format!("{START}{text}")).unwrap_or_else(|error| panic!("{error}"))
}

fn fields(text: &str) -> String {
    let fields = parsed(text).views.rule.fields().iter().map(ToString::to_string).collect::<Vec<_>>();
    fields.join(", ")
}

#[test]
fn a_key_by_what_is_left_out_is_understood() {
    let key = "
views:
  key:
  - cluster
  - id: {part: 1, of: '~'}
  - id: {part: '4', of: '~'}
  - metadata:
      except: [NAME, LABELS, INSTANCE_IPS]
  - metadata.LABELS.app
";
    assert_eq!(
        fields(&format!("{key}{}", NO_SECRETS.replace("metadata]", "metadata, metadata.LABELS.app]"))),
        "cluster, id part 1 of ~, id part 4 of ~, metadata except INSTANCE_IPS, LABELS, NAME, metadata.LABELS.app"
    );
}

#[test]
fn an_entry_of_the_wrong_form_is_a_fault_at_its_place() {
    let integer = "expected a whole number of 1 or more";
    for (key, expected) in [
        ("{}", "views.key[0]: expected exactly one of metadata, id".to_owned()),
        (
            "{metadata: {except: [a]}, id: {part: 1, of: '~'}}",
            "views.key[0]: expected exactly one of metadata, id".to_owned(),
        ),
        ("{metadata: {}}", "views.key[0].metadata: missing key \"except\"".to_owned()),
        ("{metadata: {except: []}}", "views.key[0].metadata.except: empty list: expected at least one item".to_owned()),
        ("{metadata: {except: [a..b]}}", format!("views.key[0].metadata.except[0]: invalid path \"a..b\": {PATH}")),
        ("{metadata: {exept: [a]}}", "views.key[0].metadata.exept: unknown key \"exept\": expected except".to_owned()),
        ("{id: {part: 0, of: '~'}}", format!("views.key[0].id.part: invalid number 0: {integer}")),
        ("{id: {part: -1, of: '~'}}", format!("views.key[0].id.part: invalid number -1: {integer}")),
        (
            "{id: {part: 1, of: ''}}",
            "views.key[0].id.of: invalid name \"\": expected text that is not empty".to_owned(),
        ),
        ("{id: {part: 1}}", "views.key[0].id: missing key \"of\"".to_owned()),
        ("{id: {of: '~'}}", "views.key[0].id: missing key \"part\"".to_owned()),
        (
            "{cluster: {part: 1}}",
            "views.key[0].cluster: unknown key \"cluster\": expected one of metadata, id".to_owned(),
        ),
    ] {
        key_says(key, &[&expected]);
    }
    let review = review(Path::new("relay.yaml"), &format!("{START}views:\n  key:\n  - {{}}\n"), &|_| None, false);
    assert_eq!(review.faults[0].line, Some(5), "{:?}", review.faults);
}

#[test]
fn entries_that_contradict_one_another_are_faults() {
    for (key, expected) in [
        (
            "metadata, {metadata: {except: [a]}}",
            "views.key[1]: cannot be combined with metadata, which leaves nothing out",
        ),
        (
            "{metadata: {except: [a]}}, metadata",
            "views.key[0]: cannot be combined with metadata, which leaves nothing out",
        ),
        (
            "{metadata: {except: [a]}}, {metadata: {except: [b]}}",
            "views.key[1]: cannot be combined with views.key[0]: expected one list of what is left out",
        ),
        ("{metadata: {except: [a, b, a]}}", "views.key[0].metadata.except[2]: has no effect: \"a\" is left out"),
        ("{metadata: {except: [a.b, a]}}", "views.key[0].metadata.except[0]: has no effect: \"a\" is left out"),
        ("id, {id: {part: 1, of: '~'}}", "views.key[1]: cannot be combined with id, which has all of its parts"),
        ("{id: {part: 1, of: '~'}}, id", "views.key[0]: cannot be combined with id, which has all of its parts"),
        (
            "{id: {part: 1, of: '~'}}, {id: {part: 1, of: '~'}}",
            "views.key[1]: duplicate part of id: it is views.key[0] too",
        ),
        (
            "{id: {part: 1, of: '~'}}, {id: {part: 2, of: '.'}}",
            "views.key[1]: parts of id have one separator: expected of: \"~\" as in views.key[0], not \".\"",
        ),
    ] {
        key_says(key, &[expected]);
    }
    let listed = "views: {key: [metadata.a, {metadata: {except: [a.b]}}]}\n";
    let found = faults(listed);
    assert_eq!(found, ["views.key[1]: leaving out \"a.b\" has no effect: metadata.a is in the key"]);
    let review = review(
        Path::new("relay.yaml"),
        &format!("{START}views: {{key: [{{metadata: {{except: [metadata.NAME]}}}}]}}\n{NO_SECRETS}"),
        &|_| None,
        false,
    );
    let warned: Vec<_> = review.warnings.iter().map(|of| &*of.reason).collect();
    assert!(
        warned.contains(&"leaves out metadata.metadata.NAME: expected \"NAME\" if metadata.NAME is meant"),
        "{warned:?}"
    );
}

#[test]
fn a_key_of_the_metadata_that_has_points_is_in_brackets_and_quotes() {
    let key = "views:\n  key:\n  - metadata: {except: ['LABELS[\"apps.example/pod-index\"]']}\n  - 'metadata.LABELS[\"b.c\"].d'\n";
    let rule = NO_SECRETS.replace("metadata]", "metadata, 'metadata.LABELS[\"b.c\"].d']");
    let paths: Vec<_> = parsed(&format!("{key}{rule}")).views.rule.fields().to_vec();
    let path = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let left_out = KeyField::metadata_except(vec![path(&["LABELS", "apps.example/pod-index"])]);
    assert_eq!(paths, [left_out, KeyField::MetadataPath(path(&["LABELS", "b.c", "d"]))]);
    for malformed in ["LABELS[\"a.b\"", "LABELS[\"a.b", "LABELS[\"a.b\"]c", "LABELS.[\"a.b\"]"] {
        let shown = malformed.replace('"', "\\\"");
        key_says(
            &format!("{{metadata: {{except: ['{malformed}']}}}}"),
            &[&format!("views.key[0].metadata.except[0]: invalid path \"{shown}\": {PATH}")],
        );
        let found = faults(&format!("views: {{key: ['metadata.{malformed}']}}\n"));
        assert_eq!(found, [format!("views.key[0]: invalid path \"metadata.{shown}\": {PATH}")]);
    }
    let text = format!("{START}views: {{key: [{{metadata: {{except: ['metadata.LABELS[\"a.b\"]']}}}}]}}\n{NO_SECRETS}");
    let review = review(Path::new("relay.yaml"), &text, &|_| None, false);
    let said = "leaves out metadata.metadata.LABELS[\"a.b\"]: expected \"LABELS[\\\"a.b\\\"]\" if metadata.LABELS[\"a.b\"] is meant";
    assert!(review.warnings.iter().any(|of| &*of.reason == said), "{:?}", review.warnings);
}

#[test]
fn each_entry_of_a_key_is_judged_as_the_field_that_it_is_of() {
    let rule = |free: &str| {
        let rule = format!("permissions: [{{name: a, identities: [{{uid: 1}}], free: [{free}]}}]");
        faults(&format!(
            "views: {{key: [{{id: {{part: 1, of: '~'}}}}, {EXCEPT}, {{id: {{part: 4, of: '~'}}}}]}}\n{rule}\n"
        ))
    };
    assert_eq!(rule("id, metadata"), [""; 0]);
    let found = rule("cluster");
    assert!(found.len() == 1 && found[0].contains("neither in node nor in free: id, metadata; a client"), "{found:?}");
}

/// Sharing does not cross an identity (I9).
#[test]
fn key_11_a_key_by_what_is_left_out_needs_whose_the_client_is_unless_no_client_has_secrets() {
    let mixed = "clients who share a view would have each other's secrets: expected tenant or header.<name> in views.key, or \
                 permissions of which no rule gives secrets; these do not hold back private keys in other resources, such as listeners";
    let part = "{id: {part: 1, of: '~'}}";
    for (key, at) in [(format!("cluster, {EXCEPT}"), 1), (part.to_owned(), 0), (format!("{part}, {EXCEPT}"), 0)] {
        let of = |rest: &str| faults(&format!("views: {{key: [{key}]}}\n{rest}"));
        let expected = [format!("views.key[{at}]: {mixed}")];
        assert_eq!(of(""), expected, "{key}");
        let rule = |more: &str| {
            format!("permissions: [{{name: a, identities: [{{uid: 1}}], free: [id, cluster, metadata]{more}}}]\n")
        };
        assert_eq!(of(&rule(", secrets: ['*']")), expected, "{key}");
        assert_eq!(of(&rule("")), [""; 0], "{key}");
        assert_eq!(of(NO_SECRETS), [""; 0], "{key}");
        let with = |field: &str, rest: &str| faults(&format!("views: {{key: [{key}, {field}]}}\n{rest}"));
        assert_eq!(with("tenant", &rule(", secrets: ['*']")), [""; 0], "{key}");
        let local = START.replace("http://cp:1", "https://cp:1");
        let text = format!("{local}views: {{key: [{key}, header.x-token]}}\n");
        assert!(Config::parse(Path::new("relay.yaml"), &text).is_ok(), "{key}");
    }
    assert_eq!(faults(&format!("views: {{key: [id, {EXCEPT}]}}\n")), [""; 0], "each client has a view of its own");
}

/// Consul puts private keys into listeners, which no rule about secrets holds back.
#[test]
fn key_11_where_a_real_client_is_shown_the_key_tells_clients_apart_whatever_rules_say_of_secrets() {
    let said = "clients who share a view would be given what the control plane makes for one of them, private keys in listeners too: expected \
                id, tenant or header.<name> in views.key";
    for (key, at) in [
        ("", "node"),
        ("key: [cluster], ", "node"),
        ("key: [{metadata: {except: [NAME]}}], ", "key[0]"),
        ("key: [{id: {part: 1, of: '~'}}], ", "key[0]"),
        ("preset: envoy-gateway, ", "node"),
    ] {
        for rest in ["", NO_SECRETS, OF_A_PROCESS] {
            let found = faults(&format!("views: {{{key}node: member}}\n{rest}"));
            assert!(found.contains(&format!("views.{at}: {said}")), "{key} {rest}: {found:?}");
        }
    }
    let rule = NO_SECRETS.replace("free:", "tenant: all, free:");
    assert_eq!(faults(&format!("views: {{key: [cluster, tenant], node: member}}\n{rule}")), [""; 0]);
    assert_eq!(faults(&format!("views: {{key: [cluster, id], node: member}}\n{NO_SECRETS}")), [""; 0]);
    let local = START.replace("http://cp:1", "https://cp:1");
    let text = format!("{local}views: {{key: [cluster, header.x-token], node: member}}\n");
    assert!(Config::parse(Path::new("relay.yaml"), &text).is_ok());
    assert_eq!(faults("views: {preset: consul, node: member}\n"), [""; 0], "each client has a view of its own");
}

#[test]
fn key_11_keys_of_names_alone_stay_valid() {
    for views in ["", "views: {key: [cluster]}\n", "views: {key: [cluster, metadata.NAMESPACE]}\n"] {
        assert_eq!(faults(views), [""; 0], "{views}");
    }
}

#[test]
fn headers_for_all_clients_need_tied_ids_also_where_a_part_of_the_id_is_in_the_key() {
    let servers = "upstream: {servers: [{uri: 'https://cp:1', headers: {x-token: {file: t}}}]}\n";
    let text = format!(
        "listen: [{{address: '127.0.0.1:18000'}}]\n{servers}views: {{key: [{{id: {{part: 1, of: '~'}}}}]}}\n{NO_SECRETS}"
    );
    let said = Config::parse(Path::new("relay.yaml"), &text).unwrap_err().to_string();
    assert!(said.contains("upstream.servers[0].headers: clients state the id that they like"), "{said}");
}

#[test]
fn a_preset_stands_for_its_key_and_is_not_beside_one() {
    assert_eq!(fields("views: {preset: istio-proxy}\n"), "id, cluster, locality, metadata");
    assert_eq!(fields("views: {preset: envoy-gateway}\n"), "cluster");
    let both = faults("views: {key: [cluster], preset: consul}\n");
    assert_eq!(both, ["views.preset: cannot be combined with key: a preset stands for a key"]);
    let unknown = faults("views: {preset: istio-sidecar}\n");
    assert_eq!(
        unknown,
        ["views.preset: invalid value \"istio-sidecar\": expected istio-gateway, envoy-gateway, go-control-plane, \
          java-control-plane, istio-proxy or consul"]
    );
}

#[test]
fn the_example_of_istio_is_the_preset_written_out() {
    let example = Config::parse(Path::new("config/istio.yaml"), include_str!("../../../config/istio.yaml"));
    let rule = example.unwrap_or_else(|error| panic!("{error}")).views.rule;
    let free =
        "free: [id, cluster, locality, metadata, user_agent, extensions, client_features, dynamic_parameters, unknown]";
    let text = format!(
        "views: {{preset: istio-gateway, audit: {{interval: 24h}}}}\n\
         permissions: [{{name: a, identities: [{{network: 10.0.0.0/8}}], {free}}}]\n"
    );
    assert_eq!(rule, parsed(&text).views.rule);
}

#[test]
fn the_preset_that_shares_needs_permissions() {
    let preset = "views: {preset: istio-gateway, audit: {interval: 24h}}\n";
    assert_eq!(faults(preset), ["views.preset: requires permissions: they say whose a client is"]);
    let free =
        "free: [id, cluster, locality, metadata, user_agent, extensions, client_features, dynamic_parameters, unknown]";
    for rule in [
        "identities: [{network: 10.0.0.0/8}]",
        "identities: [{spiffe: 'spiffe://a/ns/{ns}/sa/{sa}'}], tenant: '{ns}/{sa}', secrets: ['*']",
    ] {
        let text = format!("{preset}permissions: [{{name: a, {rule}, {free}}}]\n");
        assert_eq!(faults(&text), [""; 0], "{rule}");
        assert!(fields(&text).contains("metadata except INSTANCE_IPS, NAME"));
    }
}

#[test]
fn the_preset_that_shares_needs_an_audit_or_a_word_that_there_is_none() {
    let free =
        "free: [id, cluster, locality, metadata, user_agent, extensions, client_features, dynamic_parameters, unknown]";
    let rule = format!("permissions: [{{name: a, identities: [{{network: 10.0.0.0/8}}], {free}}}]\n");
    let of = |audit: &str| faults(&format!("views: {{preset: istio-gateway{audit}}}\n{rule}"));
    let found = of("");
    assert!(found.len() == 1 && found[0].starts_with("views.preset: needs audit.interval, such as 24h: "), "{found:?}");
    for given in [", audit: {interval: 24h}", ", audit: {interval: 0s}"] {
        assert_eq!(of(given), [""; 0], "{given}");
    }
    assert_eq!(faults("views: {preset: consul}\n"), [""; 0], "each client has a view of its own");
}

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::config::schema;

fn parsed(rest: &str) -> Config {
    let text = format!("listen: [{{address: ':1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{rest}");
    Config::parse(Path::new("relay.yaml"), &text).unwrap()
}

#[test]
fn values_are_shown_as_in_the_file_and_defaults_beside_those_that_differ() {
    let report = report(&parsed(""), Shows::All);
    assert!(!report.contains("(default"), "{report}");
    let text = format!(
        "admin: {{address: ':2'}}
views: {{key: [cluster, metadata.tenant], max: 20, idle_timeout: 90s}}
access:
- {{types: [{SECRET}], names: [payments/*, root], allow_from: [10.1.0.0/16, 10.2.0.7]}}
- {{types: [{SECRET}], allow_from: ['fd00::/8']}}
limits: {{message_bytes: 1024 KiB, linger: 90s, connections: 7, header_bytes: 3000}}
"
    );
    let report = super::report(&parsed(&text), Shows::All);
    let start = format!(
        "
addresses
  clients    [::]:1
  operators  127.0.0.1:2
views
  key                  cluster, metadata.tenant
  preset               none
  node                 key
  max                  20 (default 10000)
  max_in_metrics       100
  idle_timeout         1m 30s (default 10m)
  accept_missing_node  false
access
  {SECRET}: payments/*, root  only for 10.1.0.0/16, 10.2.0.7
  {SECRET}: all names         only for fd00::/8
limits
  message_bytes               1MiB (default 64MiB)
"
    );
    assert!(report.starts_with(&start), "{report}");
    for row in [
        "\n  linger                      1m 30s (default 30s)\n",
        "\n  connections                 7\n",
        "\n  header_bytes                3000B (default 16KiB)\n",
        "\n  file_bytes                  64MiB\n",
    ] {
        assert!(report.contains(row), "{row} is missing in {report}");
    }
}

#[test]
fn a_preset_is_shown_with_what_it_stands_for_and_the_versions_it_was_tried_with() {
    let report = report(&parsed("views: {preset: consul}\n"), Shows::Set);
    let expected =
        "views\n  key     id, cluster, metadata, user_agent\n  preset  consul: tried with Consul 1.21.0 (mesh";
    assert!(report.contains(expected), "{report}");
}

#[test]
fn an_address_with_tls_is_shown_with_the_certificates_that_clients_show() {
    let shown = |keys: &str| {
        let text = format!(
            "listen: [{{address: '127.0.0.1:1', tls: {{certificate: c, key: k{keys}}}}}]\nupstream: {{files: x}}\n"
        );
        let report = report(&Config::parse(std::path::Path::new("relay.yaml"), &text).unwrap(), Shows::All);
        report.lines().find_map(|line| line.trim().strip_prefix("clients")).unwrap().trim().to_owned()
    };
    assert_eq!(shown(""), "127.0.0.1:1, TLS; clients show no certificates");
    assert_eq!(
        shown(", client_ca: ca, trust_domains: [{name: a.b, bundle: b}]"),
        "127.0.0.1:1, TLS; clients must show certificates by a CA in ca or of spiffe://a.b by a CA in b"
    );
    assert!(shown(", client_auth: optional, client_ca: ca").contains("clients may show certificates by a CA in ca"));
}

const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

const TENANTS: &str =
    "views: {key: [tenant]}\npermissions: [{name: a, identities: [{network: 10.0.0.0/8}], tenant: a}]\n";

/// Returns a value other than the default of a key.
fn other_value(key: &str, default: &Value) -> String {
    match key {
        "limits.connections" => return "7".into(),
        "limits.incomplete_request_bytes" => return "600MiB".into(), // more than a message
        "limits.cached_bytes" | "limits.outdated_reply_bytes" | "limits.stated_versions_bytes" => {
            return "7MiB".into();
        }
        "limits.memory" => return "70%".into(),
        "limits.removal_history_age" => return "20s".into(), // long enough
        "brakes.empty_grace" => return "20m".into(),         // more than the grace
        "brakes.types" => return "[envoy.config.cluster.v3.Cluster]".into(),
        "views.key" => return "[cluster]".into(),
        _ => {}
    }
    match default {
        Value::Bool(flag) => (!flag).to_string(),
        Value::Number(number) => (number.as_u64().unwrap() + 1).to_string(),
        Value::String(text) if text.ends_with('B') => format!("3{}", text.trim_matches(char::is_numeric)),
        Value::String(_) => "7s".into(),
        other => panic!("{key}: {other}"),
    }
}

#[test]
fn each_key_is_shown_with_its_value_in_its_own_row_and_changes_no_other() {
    let rows = |text: &str| {
        let config = parsed(text);
        let limits = keys(&config.in_force.limits, &[]);
        let sections =
            [("limits", limits), ("views", views(&config, Shows::All)), ("brakes", brakes(&config, Shows::All))];
        let named = |(section, rows): (&str, Vec<Row>)| {
            let value_of = |value: String| value.split(" (default").next().unwrap_or_default().to_owned();
            rows.into_iter().map(|(key, value)| (format!("{section}.{key}"), value_of(value))).collect::<Vec<_>>()
        };
        sections.into_iter().flat_map(named).collect::<BTreeMap<_, _>>()
    };
    let (all, schema) = (rows(""), schema());
    // These are a switch of all brakes, a key that is shown in another key's row, and a key that needs another key.
    let others = ["brakes.enabled", "views.preset", "views.node"];
    for path in all.keys().filter(|path| !others.contains(&path.as_str())) {
        // Limits of tenants need tenants.
        let context = if path.starts_with("limits.") && path.contains("tenant") { TENANTS } else { "" };
        let before = rows(context);
        let (section, key) = path.split_once('.').unwrap();
        let value = other_value(path, &schema["properties"][section]["properties"][key]["default"]);
        let after = rows(&format!("{context}{section}: {{{key}: {value}}}\n"));
        let changed: Vec<_> = after.iter().filter(|(path, value)| before[*path] != **value).collect();
        let shown = value.trim_matches(['[', ']']).to_owned();
        assert_eq!(changed, [(path, &shown)], "{path}");
    }
    let shown = report(&parsed("views: {key: [id], node: member}\n"), Shows::Set);
    assert!(shown.contains("\nviews\n  key   id\n  node  member (default key)\n"), "{shown}");
    let report = report(&parsed("brakes: {enabled: false}\n"), Shows::Set);
    assert!(report.ends_with("\nbrakes\n  enabled  false (default true)\n"), "{report}");
}

#[test]
fn a_rule_is_shown_with_all_that_it_permits() {
    let text = "views: {key: [cluster, tenant]}
permissions:
- name: full
  identities: [{spiffe: 'spiffe://p/{ns}/*'}]
  node: {cluster: [a, '{ns}-*']}
  types: [envoy.config.cluster.v3.Cluster]
  names: [n]
  secrets: [s, 't/*']
  tenant: '{ns}'
  relays_for: [other]
  client_status: true
- {name: bare, identities: [{uid: 1}, {network: 10.0.0.0/8}], free: [cluster]}
";
    let rows: Vec<_> = parsed(text).views.permissions.rules().iter().map(permission).collect();
    let full = "for spiffe://p/{ns}/*; cluster a or {ns}-*; types envoy.config.cluster.v3.Cluster; names n; secrets s, t/*; \
                    tenant {ns}; relays for other; client status of all";
    let bare = "for uid:1, network:10.0.0.0/8; no secrets";
    let expected = [("full", full), ("bare", bare)].map(|(name, shown)| (name.to_owned(), shown.to_owned()));
    assert_eq!(rows, expected);
}

#[test]
fn every_address_is_shown_and_that_there_is_none_for_operators() {
    let shown = |rest: &str| addresses(&parsed(rest)).into_iter().skip(1).collect::<Vec<_>>();
    let row = |who: &str, place: &str| (who.to_owned(), place.to_owned());
    assert_eq!(shown(""), [row("operators", "none: no reports")]);
    let tls = "tls: {certificate: c, key: k, client_ca: ca, may_read: [{dns: a.b}, {dns: c.d}], may_change: [{dns: e.f}], may_tap: [{dns: g.h}]}";
    let text = format!(
        "admin: {{address: '0.0.0.0:2', hosts: [x.y], socket: /run/admin.sock, {tls}}}\nprobes: {{address: ':3'}}\n"
    );
    assert_eq!(
        shown(&text),
        [
            row("operators", "0.0.0.0:2, TLS; clients must show certificates by a CA in ca"),
            row("", "hosts x.y"),
            row("", "certificate c, key k"),
            row("", "may_read dns:a.b, dns:c.d"),
            row("", "may_change dns:e.f"),
            row("", "may_tap dns:g.h"),
            row("operators", "unix:/run/admin.sock"),
            row("probes", "[::]:3"),
        ]
    );
}

#[test]
fn every_key_of_a_listener_is_shown_below_its_address() {
    let shown = |listen: &str| {
        let text = format!("listen: [{{{listen}}}]\nupstream: {{files: x}}\n");
        let rows = addresses(&Config::parse(Path::new("relay.yaml"), &text).unwrap());
        rows.into_iter().map(|(_, row)| row).take_while(|row| !row.starts_with("none")).collect::<Vec<_>>()
    };
    assert_eq!(
        shown("address: 'unix:/run/a', mode: '0660', owner: 7, group: envoy"),
        ["unix:/run/a", "mode 0660", "owner 7", "group envoy"]
    );
    assert_eq!(shown("address: 'unix:/run/a'"), ["unix:/run/a", "mode 0600"]);
    assert_eq!(
        shown("address: '127.0.0.1:1', proxy_protocol_from: [10.0.0.0/8, 10.1.2.3]"),
        ["127.0.0.1:1", "proxy_protocol_from 10.0.0.0/8, 10.1.2.3"]
    );
    let tls = "certificates: [{certificate: c, key: k}, {certificate: d, key: l}], client_ca: ca, crl: r";
    assert_eq!(
        shown(&format!("address: '127.0.0.1:1', tls: {{{tls}}}")),
        [
            "127.0.0.1:1, TLS; clients must show certificates by a CA in ca",
            "certificate c, key k",
            "certificate d, key l",
            "crl r",
        ]
    );
}

//! Addresses, the sharing key, access rules and limits, as the relay understands them.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::xds::{AccessRule, NodeField, PermissionRule};

use crate::config::{AdminTls, Config, ListenOptions, schema, size_text};
use crate::tls::ClientAuth;

pub(super) fn report(config: &Config) -> String {
    let mut out = String::from("\n");
    section(&mut out, "addresses", addresses(config));
    section(&mut out, "views", views(config));
    if !config.views.access.rules().is_empty() {
        section(&mut out, "access", config.views.access.rules().iter().map(rule).collect());
    }
    if !config.views.permissions.rules().is_empty() {
        section(&mut out, "permissions", config.views.permissions.rules().iter().map(permission).collect());
    }
    section(&mut out, "limits", limits(config));
    section(&mut out, "brakes", brakes(config));
    out
}

type Row = (String, String);

/// Writes rows in two columns. Rows of keys also show the default, if the value is another.
fn section(out: &mut String, title: &str, rows: Vec<Row>) {
    let defaults = schema();
    let default_of = |key: &str| match &defaults["properties"][title]["properties"][key]["default"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    };
    let width = rows.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let _ = writeln!(out, "{title}"); // writing to a String does not fail
    for (key, value) in rows {
        let default = default_of(&key).filter(|default| *default != value);
        let default = default.map(|default| format!(" (default {default})")).unwrap_or_default();
        let _ = writeln!(out, "  {key:width$}  {value}{default}");
    }
}

fn addresses(config: &Config) -> Vec<Row> {
    let place = |listen: &ListenOptions| match &listen.tls {
        Some(tls) => format!("{}, TLS; {}", listen.address, certificates(&tls.client_auth)),
        None => listen.address.to_string(),
    };
    let clients = config.listen.iter().map(|listen| ("clients".to_owned(), place(listen)));
    let address = config.admin.address.map(|address| match &config.admin.tls {
        Some(AdminTls { tls, may_read, may_change }) => {
            let (readers, changers) = (may_read.len(), may_change.len());
            let shown = certificates(&tls.client_auth);
            format!("{address}, TLS; {shown}; {readers} entries of may_read, {changers} of may_change")
        }
        None => address.to_string(),
    });
    let socket = config.admin.socket.as_ref().map(|path| format!("unix:{}", path.display()));
    let mut operators: Vec<_> = address.into_iter().chain(socket).collect();
    if operators.is_empty() {
        operators.push("none: no reports".to_owned());
    }
    let operators = operators.into_iter().map(|place| ("operators".to_owned(), place));
    let probes = config.probes.map(|address| ("probes".to_owned(), address.to_string()));
    clients.chain(operators).chain(probes).collect()
}

/// Returns which certificates clients show.
fn certificates(auth: &ClientAuth) -> String {
    let (word, trust) = match auth {
        ClientAuth::None => return "clients show no certificates".into(),
        ClientAuth::Optional(trust) => ("may", trust),
        ClientAuth::Required(trust) => ("must", trust),
    };
    let ca = trust.client_ca.iter().map(|ca| format!("by a CA in {}", ca.display()));
    let domains = trust.domains.iter().map(|domain| format!("of spiffe://{}", domain.name));
    format!("clients {word} show certificates {}", ca.chain(domains).collect::<Vec<_>>().join(" or "))
}

fn views(config: &Config) -> Vec<Row> {
    let views = &config.views;
    let key: Vec<_> = views.rule.fields().iter().map(ToString::to_string).collect();
    let key = ("key".to_owned(), key.join(", "));
    let others = [
        ("max", views.max_views.to_string()),
        ("max_in_metrics", views.max_in_metrics.to_string()),
        ("idle_timeout", time(config.views_idle)),
        ("accept_missing_node", views.accept_missing_node.to_string()),
    ];
    [key].into_iter().chain(others.map(|(key, value)| (key.to_owned(), value))).collect()
}

/// Returns what a rule protects, and who has it.
fn rule(rule: &AccessRule) -> Row {
    let all = |texts: Vec<String>| texts.join(", ");
    let types = all(rule.types.iter().map(ToString::to_string).collect());
    let names = match rule.names.as_slice() {
        [] => "all names".into(),
        names => all(names.iter().map(ToString::to_string).collect()),
    };
    let networks = all(rule.peers.iter().map(ToString::to_string).collect());
    (format!("{types}: {names}"), format!("only for {networks}"))
}

/// Returns whom a rule is for, and what they may be and have.
fn permission(rule: &PermissionRule) -> Row {
    let all = |texts: Vec<String>| texts.join(", ");
    let mut parts = vec![format!("for {}", all(rule.identities.iter().map(ToString::to_string).collect()))];
    parts.extend(rule.node.iter().map(|NodeField { field, values }| {
        format!("{field} {}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))
    }));
    parts.extend(
        rule.types.as_ref().map(|types| format!("types {}", all(types.iter().map(ToString::to_string).collect()))),
    );
    for (what, names) in [("names", &rule.names), ("secrets", &rule.secrets)] {
        if !names.is_empty() {
            parts.push(format!("{what} {}", all(names.iter().map(ToString::to_string).collect())));
        }
    }
    if rule.secrets.is_empty() {
        parts.push("no secrets".into());
    }
    parts.extend(rule.tenant.as_ref().map(|tenant| format!("tenant {tenant}")));
    if !rule.relays_for.is_empty() {
        parts.push(format!("relays for {}", all(rule.relays_for.iter().map(ToString::to_string).collect())));
    }
    parts.extend(rule.client_status.then(|| "client status of all".into()));
    (rule.name.to_string(), parts.join("; "))
}

fn limits(config: &Config) -> Vec<Row> {
    let ProtocolOptions { session, view, upstream } = &config.views.protocol;
    let clients = &config.downstream;
    let (requests, connections) = (&clients.request_limits, &clients.connections);
    let rows = [
        ("message_bytes", size_text(clients.message_bytes)),
        ("incomplete_request_bytes", size_text(clients.incomplete_request_bytes)),
        ("outdated_reply_bytes", size_text(clients.outdated_reply_bytes)),
        ("stated_versions_bytes", size_text(config.views.stated_versions_bytes)),
        ("request_bytes_per_second", size_text(clients.request_bytes_per_second)),
        ("request_entries", requests.entries.to_string()),
        ("name_bytes", size_text(requests.name_bytes)),
        ("node_bytes", size_text(requests.node_bytes)),
        ("types_per_stream", session.types.to_string()),
        ("names_per_type", session.names.to_string()),
        ("names_per_stream", session.names_per_stream.to_string()),
        ("names_per_view", view.names_per_view.to_string()),
        ("cached_bytes", size_text(view.cached_bytes)),
        ("sought_names", view.sought_names.to_string()),
        ("removal_history_bytes", size_text(view.history_bytes)),
        ("removal_history_age", time(view.history_age)),
        ("absent_names_per_stream", view.absent_names_per_stream.to_string()),
        ("linger", time(view.linger)),
        ("lingering", view.lingering.to_string()),
        ("reply_bytes", size_text(session.reply_bytes)),
        ("resource_timer", time(upstream.resource_timer)),
        ("second_silence", time(upstream.second_silence)),
        ("reference_hold", time(view.reference_hold)),
        ("clusters_timeout", time(session.clusters_timeout)),
        ("fetch_timeout", time(session.fetch_timeout)),
        ("file_bytes", size_text(config.file_bytes)),
        ("connections", connections.connections.map_or("as open files allow".into(), |limit| limit.to_string())),
        ("connections_per_address", connections.per_address.to_string()),
        ("connections_per_identity", connections.per_identity.to_string()),
        ("new_connections_per_second", connections.new_per_second.to_string()),
        ("first_request_timeout", time(connections.first_request)),
        ("handshakes", clients.handshakes.at_a_time.to_string()),
        ("handshake_timeout", time(clients.handshakes.timeout)),
        ("handshakes_per_address", clients.handshakes.per_address.to_string()),
        ("streams_per_connection", connections.streams_per_connection.to_string()),
        ("streams_per_identity", connections.streams_per_identity.to_string()),
        ("new_streams_per_second", connections.new_streams_per_second.to_string()),
        ("views_per_connection", config.views.max_views_per_connection.to_string()),
        ("views_per_identity", config.views.max_views_per_identity.to_string()),
        ("streams", connections.streams.to_string()),
        ("requests_per_second", connections.requests_per_second.to_string()),
        ("new_names_per_second", clients.new_names_per_second.to_string()),
        ("header_bytes", size_text(connections.header_bytes)),
    ];
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn brakes(config: &Config) -> Vec<Row> {
    let rules = &config.views.protocol.view.brakes;
    let row = |(key, value): (&str, String)| (key.to_owned(), value);
    if rules.types.is_empty() {
        return [("enabled", "false".to_owned())].map(row).into();
    }
    let types: Vec<_> = rules.types.iter().map(|name| &**name).collect();
    let rows = [
        ("enabled", "true".into()),
        ("types", types.join(", ")),
        ("share", rules.share.to_string()),
        ("count", rules.count.to_string()),
        ("window", time(rules.window)),
        ("grace", time(rules.grace)),
        ("empty_grace", time(rules.empty_grace)),
        ("agree_after", time(rules.agree_after)),
    ];
    rows.map(row).into()
}

fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;

    fn parsed(rest: &str) -> Config {
        let text = format!("listen: [{{address: ':1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{rest}");
        Config::parse(Path::new("relay.yaml"), &text).unwrap()
    }

    #[test]
    fn every_key_of_the_limits_and_of_the_views_has_a_row() {
        let config = parsed("");
        for (section, rows) in [("limits", limits(&config)), ("views", views(&config)), ("brakes", brakes(&config))] {
            let schema = schema();
            let keys = schema["properties"][section]["properties"].as_object().unwrap();
            let shown: BTreeSet<_> = rows.into_iter().map(|(key, _)| key).collect();
            assert_eq!(shown, keys.keys().cloned().collect(), "{section}");
        }
    }

    #[test]
    fn values_are_shown_as_in_the_file_and_defaults_beside_those_that_differ() {
        let report = report(&parsed(""));
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
        let report = super::report(&parsed(&text));
        let start = format!(
            "
addresses
  clients    [::]:1
  operators  127.0.0.1:2
views
  key                  cluster, metadata.tenant
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
            "\n  header_bytes                3000 (default 16KiB)\n",
            "\n  file_bytes                  64MiB\n",
        ] {
            assert!(report.contains(row), "{row} is missing in {report}");
        }
    }

    #[test]
    fn an_address_with_tls_is_shown_with_the_certificates_that_clients_show() {
        let shown = |keys: &str| {
            let text = format!(
                "listen: [{{address: '127.0.0.1:1', tls: {{certificate: c, key: k{keys}}}}}]\nupstream: {{files: x}}\n"
            );
            let report = report(&Config::parse(std::path::Path::new("relay.yaml"), &text).unwrap());
            report.lines().find_map(|line| line.trim().strip_prefix("clients")).unwrap().trim().to_owned()
        };
        assert_eq!(shown(""), "127.0.0.1:1, TLS; clients show no certificates");
        assert_eq!(
            shown(", client_ca: ca, trust_domains: [{name: a.b, bundle: b}]"),
            "127.0.0.1:1, TLS; clients must show certificates by a CA in ca or of spiffe://a.b"
        );
        assert!(
            shown(", client_auth: optional, client_ca: ca").contains("clients may show certificates by a CA in ca")
        );
    }

    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    /// Returns another value than the default of a key.
    fn other_value(key: &str, default: &Value) -> String {
        match key {
            "limits.connections" => return "7".into(),
            "limits.incomplete_request_bytes" => return "600MiB".into(), // more than a message
            "limits.removal_history_age" => return "20s".into(),         // long enough
            "brakes.empty_grace" => return "20m".into(),                 // more than the grace
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
            let sections = [("limits", limits(&config)), ("views", views(&config)), ("brakes", brakes(&config))];
            let named = |(section, rows): (&str, Vec<Row>)| {
                rows.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)).collect::<Vec<_>>()
            };
            sections.into_iter().flat_map(named).collect::<BTreeMap<_, _>>()
        };
        let (before, schema) = (rows(""), schema());
        for path in before.keys().filter(|path| *path != "brakes.enabled") {
            let (section, key) = path.split_once('.').unwrap();
            let value = other_value(path, &schema["properties"][section]["properties"][key]["default"]);
            let after = rows(&format!("{section}: {{{key}: {value}}}\n"));
            let changed: Vec<_> = after.iter().filter(|(path, value)| before[*path] != **value).collect();
            let shown = value.trim_matches(['[', ']']).to_owned();
            assert_eq!(changed, [(path, &shown)], "{path}");
        }
        assert_eq!(rows("brakes: {enabled: false}\n")["brakes.enabled"], "false");
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
        let tls = "tls: {certificate: c, key: k, client_ca: ca, may_read: [{dns: a.b}, {dns: c.d}], may_change: [{dns: e.f}]}";
        let text =
            format!("admin: {{address: '0.0.0.0:2', socket: /run/admin.sock, {tls}}}\nprobes: {{address: ':3'}}\n");
        let tls =
            "0.0.0.0:2, TLS; clients must show certificates by a CA in ca; 2 entries of may_read, 1 of may_change";
        assert_eq!(
            shown(&text),
            [row("operators", tls), row("operators", "unix:/run/admin.sock"), row("probes", "[::]:3")]
        );
    }
}

//! Addresses, the sharing key, access rules and limits, as the relay understands them.

use std::fmt::Write;

use weir_core::xds::{AccessRule, NodeField, PermissionRule};

use super::Shows;
use crate::config::{AdminTls, Config, ShownKey};
use crate::downstream::{Account, ListenAddress, ListenOptions, UnixOptions};
use crate::tls::{ClientAuth, ListenTls, OwnCertificate, TrustDomain};

pub(super) fn report(config: &Config, shows: Shows) -> String {
    let mut out = String::from("\n");
    section(&mut out, "addresses", addresses(config));
    section(&mut out, "views", views(config, shows));
    if !config.views.access.rules().is_empty() {
        section(&mut out, "access", config.views.access.rules().iter().map(rule).collect());
    }
    if !config.views.permissions.rules().is_empty() {
        section(&mut out, "permissions", config.views.permissions.rules().iter().map(permission).collect());
    }
    section(&mut out, "limits", keys(&shown(&config.in_force.limits, shows), &[]));
    section(&mut out, "brakes", brakes(config, shows));
    for (title, of) in &config.in_force.others {
        let mut rows = shown(of, shows);
        rows.retain(|key| key.value.is_some() && key.key != FREE_TEXT);
        section(&mut out, title, keys(&rows, &[]));
    }
    out
}

/// A key that may have any text, and so that of a variable which is a secret.
const FREE_TEXT: &str = "control_plane_identifier";

type Row = (String, String);

/// Returns the keys that are set, or all of them.
fn shown(keys: &[ShownKey], shows: Shows) -> Vec<ShownKey> {
    keys.iter().filter(|key| key.is_set || shows == Shows::All).cloned().collect()
}

/// Writes rows in two columns, if there are any.
fn section(out: &mut String, title: &str, rows: Vec<Row>) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let _ = writeln!(out, "{title}"); // writing to a String does not fail
    for (key, value) in rows {
        let _ = writeln!(out, "  {key:width$}  {value}");
    }
}

/// Returns the rows of a section's keys. `lists` has the values of those that the relay understands otherwise than they are written.
fn keys(keys: &[ShownKey], lists: &[(&str, String)]) -> Vec<Row> {
    let row = |ShownKey { key, value, default, .. }: &ShownKey| {
        let list = lists.iter().find(|(list, _)| list == key).map(|(_, value)| value.clone());
        let value = list.or_else(|| value.clone()).unwrap_or_default();
        let default = default.as_ref().filter(|default| **default != value);
        let default = default.map(|default| format!(" (default {default})")).unwrap_or_default();
        ((*key).to_owned(), value + &default)
    };
    keys.iter().map(row).collect()
}

/// Returns where the relay listens, each key below its address.
fn addresses(config: &Config) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut put = |who: &str, place: String, details: Vec<Option<String>>| {
        rows.push((who.to_owned(), place));
        rows.extend(details.into_iter().flatten().map(|detail| (String::new(), detail)));
    };
    for listen in &config.listen {
        let mut details = of_listener(listen);
        details.extend(listen.tls.as_ref().map(files).unwrap_or_default());
        let tls = listen.tls.as_ref().map(|tls| format!(", TLS; {}", certificates(&tls.client_auth)));
        put("clients", format!("{}{}", listen.address, tls.unwrap_or_default()), details);
    }
    let admin = &config.admin;
    if let Some(address) = admin.address {
        let mut details = vec![listed("hosts", &admin.hosts)];
        let mut tls = String::new();
        if let Some(AdminTls { tls: of, may_read, may_change, may_tap }) = &admin.tls {
            tls = format!(", TLS; {}", certificates(&of.client_auth));
            details.extend(files(of));
            details.extend([
                listed("may_read", may_read),
                listed("may_change", may_change),
                listed("may_tap", may_tap),
            ]);
        }
        put("operators", format!("{address}{tls}"), details);
    }
    if let Some(path) = &admin.socket {
        put("operators", format!("unix:{}", path.display()), Vec::new());
    }
    if admin.address.is_none() && admin.socket.is_none() {
        put("operators", "none: no reports".to_owned(), Vec::new());
    }
    if let Some(address) = config.probes {
        put("probes", address.to_string(), Vec::new());
    }
    rows
}

/// Returns what is set of a listener besides TLS.
fn of_listener(listen: &ListenOptions) -> Vec<Option<String>> {
    let mut details = vec![listed("proxy_protocol_from", &listen.proxy_protocol_from)];
    if let ListenAddress::Unix(UnixOptions { mode, owner, group, path: _ }) = &listen.address {
        details.push(Some(format!("mode {mode:04o}")));
        details.push(owner.as_ref().map(|owner| format!("owner {}", account(owner))));
        details.push(group.as_ref().map(|group| format!("group {}", account(group))));
    }
    details
}

fn account(account: &Account) -> String {
    match account {
        Account::Name(name) => name.to_string(),
        Account::Number(number) => number.to_string(),
    }
}

/// Returns a key that has a list, unless that is empty.
fn listed<T: ToString>(key: &str, values: &[T]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| format!("{key} {}", values.join(", ")))
}

/// Returns the files of a certificate's owner, and those that revoke the certificates of clients.
fn files(tls: &ListenTls) -> Vec<Option<String>> {
    let own = tls.own.iter().map(|OwnCertificate { certificate, key }| {
        Some(format!("certificate {}, key {}", certificate.display(), key.display()))
    });
    let crl = tls.trust().and_then(|trust| trust.crl.as_ref()).map(|crl| format!("crl {}", crl.display()));
    own.chain([crl]).collect()
}

/// Returns which certificates clients show.
fn certificates(auth: &ClientAuth) -> String {
    let (word, trust) = match auth {
        ClientAuth::None => return "clients show no certificates".into(),
        ClientAuth::Optional(trust) => ("may", trust),
        ClientAuth::Required(trust) => ("must", trust),
    };
    let ca = trust.client_ca.iter().map(|ca| format!("by a CA in {}", ca.display()));
    let domains = trust
        .domains
        .iter()
        .map(|TrustDomain { name, bundle }| format!("of spiffe://{name} by a CA in {}", bundle.display()));
    format!("clients {word} show certificates {}", ca.chain(domains).collect::<Vec<_>>().join(" or "))
}

fn views(config: &Config, shows: Shows) -> Vec<Row> {
    let key: Vec<_> = config.views.rule.fields().iter().map(ToString::to_string).collect();
    let is_shown = |of: &&ShownKey| of.key == "key" || of.is_set || shows == Shows::All;
    let own: Vec<_> = config.in_force.views.iter().filter(is_shown).cloned().collect();
    keys(&own, &[("key", key.join(", "))])
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

fn brakes(config: &Config, shows: Shows) -> Vec<Row> {
    let types: Vec<_> = config.views.protocol.view.brakes.types.iter().map(|name| &**name).collect();
    let rows = shown(&config.in_force.brakes, shows);
    if rows.is_empty() {
        return keys(config.in_force.brakes.get(..1).unwrap_or_default(), &[]);
    }
    keys(&rows, &[("types", types.join(", "))])
}

#[cfg(test)]
mod tests {
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
        assert!(
            shown(", client_auth: optional, client_ca: ca").contains("clients may show certificates by a CA in ca")
        );
    }

    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    const TENANTS: &str =
        "views: {key: [tenant]}\npermissions: [{name: a, identities: [{network: 10.0.0.0/8}], tenant: a}]\n";

    /// Returns another value than the default of a key.
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
        for path in all.keys().filter(|path| *path != "brakes.enabled") {
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
}

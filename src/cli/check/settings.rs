//! Addresses, the sharing key, access rules and limits, as the relay interprets them.

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

/// A key whose value is any text, and so may come from a variable that is a secret.
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

/// Returns the rows of a section's keys. `lists` has the values of those keys that the relay interprets in another way than they are written.
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

/// Returns the settings of a listener, without TLS.
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

/// Returns a key with its list, unless the list is empty.
fn listed<T: ToString>(key: &str, values: &[T]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| format!("{key} {}", values.join(", ")))
}

/// Returns the files of the listener's own certificates, and the lists that revoke certificates of clients.
fn files(tls: &ListenTls) -> Vec<Option<String>> {
    let own = tls.own.iter().map(|OwnCertificate { certificate, key }| {
        Some(format!("certificate {}, key {}", certificate.display(), key.display()))
    });
    let crl = tls.trust().and_then(|trust| trust.crl.as_ref()).map(|crl| format!("crl {}", crl.display()));
    own.chain([crl]).collect()
}

/// Returns which certificates clients have to show.
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
    let preset = config.preset.as_ref().map(|preset| ("preset", preset.words()));
    let lists: Vec<_> = [("key", key.join(", "))].into_iter().chain(preset).collect();
    keys(&own, &lists)
}

/// Returns what a rule protects, and which networks may have it.
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

/// Returns the clients of a rule, and what they may be and have.
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
mod tests;

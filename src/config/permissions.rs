//! The permissions.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_core::xds::{
    IdentityPattern, KeyField, KeyRule, NamePattern, NodeField, PatternFault, PermissionRule, Permissions,
    SegmentPattern, TENANT, Template, TypeTable,
};

use super::access::known_type;
use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::form::{ListenPlace, Located, Name, NonEmpty};
use super::{raw, views};

pub(super) fn check(raw: &raw::Root, key: &KeyRule, table: &TypeTable, checker: &mut Checker) -> Permissions {
    let mut rules: Vec<PermissionRule> = Vec::new();
    for entry in &raw.permissions.value {
        if let Some(rule) = permission(entry, key, table, checker) {
            if let Some(name) = entry.name.0.as_ref()
                && rules.iter().any(|other| other.name == rule.name)
            {
                checker.fault(&name.place, format!("duplicate name {:?}: another rule has it", rule.name));
            }
            rules.push(rule);
        }
    }
    if raw.permissions.value.is_empty()
        && let Some(place) = views::place_of(&raw.views, |field| *field == KeyField::Tenant)
    {
        checker.fault(place, "requires permissions: they say whose a client is");
    }
    identities_are_proved(raw, checker);
    if !key.fields().contains(&KeyField::Tenant) {
        let servers = raw.upstream.0.iter().flat_map(|upstream| upstream.all_servers());
        for tenants in servers.filter_map(|server| server.tenants.as_ref()) {
            checker
                .fault(&tenants.place, "requires tenant in views.key: without it, clients of all tenants share views");
        }
    }
    Permissions::of(rules)
}

/// Warns of rules for identities that no listener verifies, and of certificates that no rule uses.
fn identities_are_proved(raw: &raw::Root, checker: &mut Checker) {
    let listeners = || raw.listen.0.iter().flat_map(|listen| &listen.0);
    let tls = || listeners().filter_map(|listener| listener.tls.as_ref());
    let has_domains = tls().any(|tls| tls.trust_domains.is_some());
    let has_ca = tls().any(|tls| tls.client_ca.is_some());
    let is_socket = |listener: &raw::Listen| {
        listener.address.0.as_ref().is_some_and(|address| matches!(address.value, ListenPlace::Unix(_)))
    };
    let has_sockets = listeners().any(|listener| is_socket(listener));
    let rules = raw.permissions.value.iter();
    for entry in rules.flat_map(|rule| rule.identities.0.iter()).flat_map(|identities| &identities.0) {
        let raw::IdentityEntry { spiffe, uri, dns, uid, gid, network: _ } = &entry.value;
        let place = |name: &Option<Located<Name>>| name.as_ref().map(|name| name.place.clone());
        let process = uid.as_ref().or(gid.as_ref()).map(|number| number.place.clone());
        let unproved = [
            (place(spiffe).filter(|_| !has_domains), "trust_domains"),
            (place(uri).or(place(dns)).filter(|_| !has_ca), "client_ca"),
            (process.filter(|_| !has_sockets), "a Unix socket as its address"),
        ];
        for (place, lacking) in unproved.into_iter().filter_map(|(place, lacking)| Some((place?, lacking))) {
            checker.warn(&place, format!("no client can prove this: no listener has {lacking}"));
        }
    }
    if raw.permissions.value.is_empty() {
        for tls in tls().filter(|tls| tls.trust_domains.is_some() || tls.client_ca.is_some()) {
            let reason =
                "clients show certificates, and each of them gets everything: permissions say who may have what";
            checker.warn(&tls.place, reason);
        }
    }
}

fn permission(
    entry: &Located<raw::PermissionEntry>,
    key: &KeyRule,
    table: &TypeTable,
    checker: &mut Checker,
) -> Option<PermissionRule> {
    let name = entry.name.0.as_ref().map(|name| name.value.0.clone());
    let listed = entry.identities.0.iter().flat_map(|identities| &identities.0);
    let identities: Vec<_> = listed.filter_map(|identity| check_identity(identity, checker)).collect();
    let known = Captured::by(&identities);
    let tenant = entry.tenant.as_ref().and_then(|tenant| check_tenant(tenant, &known, checker));
    // A client that is known only by its network has no tenant, unless the rule or the client states one.
    let is_of_one = identities.iter().all(IdentityPattern::is_proof);
    let has_tenant = is_of_one || entry.tenant.is_some() || entry.relays_for.is_some();
    let known = if has_tenant { known.with_tenant() } else { known };
    let node = entry.node.0.iter().filter_map(|(field, values)| {
        let field = node_field(field, &values.place, checker)?;
        let values = values.value.0.iter().filter_map(|value| template(value, &known, checker)).collect();
        Some(NodeField { field, values })
    });
    let node: Vec<_> = node.collect();
    every_field_is_judged(entry, &node, key, checker);
    let types = entry.types.as_ref().map(|types| {
        let types = types.0.iter().map(|name| known_type(name, table, checker));
        types.collect::<Arc<[_]>>()
    });
    let names = templates(entry.names.as_ref(), &known, checker);
    let secrets = templates(entry.secrets.as_ref(), &known, checker);
    let client_status = entry.client_status.given().filter(|_| entry.client_status.value);
    let proved_only = [entry.secrets.as_ref().map(|of| &of.place), client_status];
    for place in proved_only.into_iter().flatten() {
        let Some(network) = identities.iter().find(|identity| !identity.is_proof()) else { break };
        let reason = format!("requires identities that are proved: {network} is any client that connects from there");
        checker.fault(place, reason);
    }
    if let Some(relays) = &entry.relays_for
        && !key.fields().contains(&KeyField::Tenant)
    {
        checker.fault(&relays.place, "requires tenant in views.key: without it, clients of all tenants share views");
    }
    let relays_for = entry.relays_for.iter().flat_map(|names| &names.0);
    let relays_for = relays_for.map(|name| NamePattern::parse(&name.0)).collect();
    Some(PermissionRule {
        name: name?.into(),
        identities,
        node,
        types,
        names,
        secrets,
        tenant,
        relays_for,
        client_status: client_status.is_some(),
        share: entry.share.0,
    })
}

pub(super) fn check_identity(entry: &Located<raw::IdentityEntry>, checker: &mut Checker) -> Option<IdentityPattern> {
    let raw::IdentityEntry { spiffe, uri, dns, uid, gid, network } = &entry.value;
    let mut found = Vec::new();
    let text = |pattern: &Option<Located<Name>>| pattern.as_ref().map(|name| (name.0.clone(), name.place.clone()));
    if let Some((text, place)) = text(spiffe) {
        if !text.starts_with("spiffe://") {
            checker
                .fault(&place, format!("invalid SPIFFE id {text:?}: expected one such as spiffe://prod.example/ns/*"));
        } else {
            found.extend(pattern_of(&text, &place, SegmentPattern::uri, checker).map(IdentityPattern::Spiffe));
        }
    }
    if let Some((text, place)) = text(uri) {
        if text.starts_with("spiffe:") {
            checker.fault(&place, "a SPIFFE id counts only under its own trust domain: expected the key spiffe");
        } else {
            found.extend(pattern_of(&text, &place, SegmentPattern::uri, checker).map(IdentityPattern::Uri));
        }
    }
    if let Some((text, place)) = text(dns) {
        found.extend(pattern_of(&text, &place, SegmentPattern::dns, checker).map(IdentityPattern::Dns));
    }
    found.extend(uid.as_ref().map(|uid| IdentityPattern::Uid(uid.0)));
    found.extend(gid.as_ref().map(|gid| IdentityPattern::Gid(gid.0)));
    found.extend(network.as_ref().map(|network| IdentityPattern::Network(network.value)));
    let given = [spiffe.is_some(), uri.is_some(), dns.is_some(), uid.is_some(), gid.is_some(), network.is_some()];
    if given.iter().filter(|given| **given).count() != 1 {
        checker.lacks(&entry.place, "expected exactly one of spiffe, uri, dns, uid, gid, network");
        return None;
    }
    found.pop()
}

fn pattern_of(
    text: &str,
    place: &FilePosition,
    parse: fn(&str) -> Result<SegmentPattern, PatternFault>,
    checker: &mut Checker,
) -> Option<SegmentPattern> {
    parse(text).map_err(|fault| checker.fault(place, format!("invalid pattern {text:?}: expected {fault}"))).ok()
}

fn node_field(name: &str, place: &FilePosition, checker: &mut Checker) -> Option<KeyField> {
    let field = KeyField::parse(name).filter(KeyField::is_text);
    if field.is_none() {
        let expected = "id, cluster, locality.region, locality.zone, locality.sub_zone or metadata.<path>";
        checker.fault(place, format!("invalid part of a node {name:?}: expected one that is a text: {expected}"));
    }
    field
}

/// Reports fields of the key that no rule judges: with them, a client could choose itself whose resources it gets.
fn every_field_is_judged(
    entry: &Located<raw::PermissionEntry>,
    node: &[NodeField],
    key: &KeyRule,
    checker: &mut Checker,
) {
    let bound = |field: &KeyField| node.iter().any(|bound| bound.field == *field);
    let is_judged = |field: &KeyField| match field {
        KeyField::Tenant => true,    // by the identity
        KeyField::Header(_) => true, // by the server, which is shown it
        KeyField::Locality => bound(field) || [KeyField::Region, KeyField::Zone, KeyField::SubZone].iter().all(bound),
        field => bound(field),
    };
    let free = |field: &KeyField| entry.free.value.iter().any(|free| free.value == *field);
    let mut open: Vec<String> = Vec::new();
    for field in key.fields().iter().map(whole).filter(|field| !is_judged(field) && !free(field)) {
        let name = field.to_string();
        if !open.contains(&name) {
            open.push(name);
        }
    }
    if !open.is_empty() {
        let reason = format!(
            "fields of views.key that are neither in node nor in free: {}; a client could state what it likes there",
            open.join(", ")
        );
        checker.lacks(&entry.place, reason);
    }
}

/// Returns the field that is judged if the key has only a part of it.
fn whole(field: &KeyField) -> &KeyField {
    match field {
        KeyField::IdPart(_) => &KeyField::Id,
        KeyField::MetadataExcept(_) => &KeyField::Metadata,
        field => field,
    }
}

fn check_tenant(text: &Located<Name>, known: &Captured, checker: &mut Checker) -> Option<Template> {
    if known.0.contains(TENANT) {
        checker.fault(&text.place, "the identities have a segment {tenant}, which says it: expected one of both");
    }
    let template = template(text, known, checker)?;
    if template.is_open() {
        checker.fault(&text.place, format!("invalid tenant {:?}: expected no *", text.value.0));
    }
    Some(template)
}

fn templates(texts: Option<&Located<NonEmpty<Name>>>, known: &Captured, checker: &mut Checker) -> Vec<Template> {
    texts.iter().flat_map(|texts| &texts.0).filter_map(|text| template(text, known, checker)).collect()
}

fn template(text: &Located<Name>, known: &Captured, checker: &mut Checker) -> Option<Template> {
    let template = match Template::parse(&text.0) {
        Ok(template) => template,
        Err(fault) => {
            checker.fault(&text.place, format!("invalid text {:?}: expected {fault}", text.value.0));
            return None;
        }
    };
    if let Some(name) = template.references().find(|name| !known.0.contains(*name)) {
        let reason =
            format!("{{{name}}} in {:?} is neither a segment of every identity of the rule nor tenant", text.value.0);
        checker.fault(&text.place, reason);
    }
    Some(template)
}

/// The names of the segments that every identity of a rule has.
struct Captured(BTreeSet<String>);

impl Captured {
    fn by(identities: &[IdentityPattern]) -> Self {
        let of = |identity: &IdentityPattern| identity.names().into_iter().map(String::from).collect::<BTreeSet<_>>();
        let all = identities.iter().map(of).reduce(|one, other| &one & &other);
        Self(all.unwrap_or_default())
    }

    /// Adds `{tenant}`, which every rule has whose clients all have a tenant.
    fn with_tenant(mut self) -> Self {
        self.0.insert(TENANT.into());
        self
    }
}

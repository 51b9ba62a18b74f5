//! The access rules.

use weir_core::xds::{Access, AccessRule, Name as ResourceName, NamePattern, Network, TypeTable};

use super::checker::Checker;
use super::form::{Located, Name};
use super::raw;

pub(super) fn check(entries: &[Located<raw::AccessEntry>], table: &TypeTable, checker: &mut Checker) -> Access {
    let rules = entries.iter().map(|entry| AccessRule {
        types: entry.types.0.iter().flat_map(|types| &types.0).map(|name| known_type(name, table, checker)).collect(),
        names: entry.names.iter().flat_map(|names| &names.0).map(|name| pattern(name, checker)).collect(),
        peers: entry
            .allow_from
            .0
            .iter()
            .flat_map(|networks| &networks.0)
            .map(|network| check_network(network, checker))
            .collect(),
    });
    Access::of(rules.collect())
}

/// Reports a pattern that matches no name: its rule would protect nothing.
fn pattern(name: &Located<Name>, checker: &mut Checker) -> NamePattern {
    let text = name.0.as_str();
    let start = text.strip_suffix('*').unwrap_or(text);
    let canonical = ResourceName::canonical(start);
    let is_canonical = canonical.as_str() == start || (start != text && start.contains('?'));
    if start.contains('*') {
        let reason = format!("invalid name {text:?}: expected * at the end only; elsewhere it matches nothing");
        checker.fault(&name.place, reason);
    } else if !is_canonical {
        let (canonical, rest) = (canonical.as_str(), &text[start.len()..]);
        checker.fault(&name.place, format!("invalid name {text:?}: expected its canonical form \"{canonical}{rest}\""));
    }
    NamePattern::parse(text)
}

/// Reports a network that no client can be in.
pub(super) fn check_network(network: &Located<Network>, checker: &mut Checker) -> Network {
    if let Some(v4) = network.value.as_mapped() {
        checker.fault(&network.place, format!("invalid network {}: expected its IPv4 form {v4}", network.value));
    }
    network.value
}

/// Returns the name of the type that a rule is about. A type that is not in the table needs its whole URL.
pub(super) fn known_type(name: &Located<Name>, table: &TypeTable, checker: &mut Checker) -> Box<str> {
    let kind = table.resolve(&name.0);
    let is_url = kind.name().contains('/') && !kind.message().is_empty();
    if !table.knows(kind.name()) && !is_url {
        let reason = format!("unknown type {:?}: expected one that is built in or listed under types", name.0);
        checker.fault(&name.place, reason);
    }
    kind.name().into()
}

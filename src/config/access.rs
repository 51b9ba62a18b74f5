//! The access rules.

use super::checker::Checker;
use super::form::{Located, Name};
use super::raw;
use crate::xds::{Access, AccessRule, Name as ResourceName, NamePattern, Network, TypeTable};

impl Checker<'_> {
    pub(crate) fn access(&mut self, entries: &[Located<raw::AccessEntry>], table: &TypeTable) -> Access {
        let rules = entries.iter().map(|entry| AccessRule {
            types: entry.types.0.iter().flat_map(|types| &types.0).map(|name| self.known_type(name, table)).collect(),
            names: entry.names.iter().flat_map(|names| &names.0).map(|name| self.pattern(name)).collect(),
            peers: entry
                .allow_from
                .0
                .iter()
                .flat_map(|networks| &networks.0)
                .map(|network| self.network(network))
                .collect(),
        });
        Access::of(rules.collect())
    }

    /// Reports patterns that match no name, so that their rule would protect nothing.
    fn pattern(&mut self, name: &Located<Name>) -> NamePattern {
        let text = name.0.as_str();
        let start = text.strip_suffix('*').unwrap_or(text);
        let canonical = ResourceName::canonical(start);
        let is_canonical = canonical.as_str() == start || (start != text && start.contains('?'));
        if start.contains('*') {
            let reason = format!("invalid name {text:?}: expected * at the end only; elsewhere it matches nothing");
            self.fault(&name.place, reason);
        } else if !is_canonical {
            let (canonical, rest) = (canonical.as_str(), &text[start.len()..]);
            self.fault(
                &name.place,
                format!("invalid name {text:?}: expected its canonical form \"{canonical}{rest}\""),
            );
        }
        NamePattern::parse(text)
    }

    /// Reports networks that no client is in.
    pub(super) fn network(&mut self, network: &Located<Network>) -> Network {
        if let Some(v4) = network.value.as_mapped() {
            self.fault(&network.place, format!("invalid network {}: expected its IPv4 form {v4}", network.value));
        }
        network.value
    }

    pub(super) fn known_type(&mut self, name: &Located<Name>, table: &TypeTable) -> Box<str> {
        let kind = table.resolve(&name.0);
        if !table.knows(kind.name()) {
            let reason = format!("unknown type {:?}: expected one that is built in or listed under types", name.0);
            self.fault(&name.place, reason);
        }
        kind.name().into()
    }
}

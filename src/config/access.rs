//! The access rules.

use super::checker::Checker;
use super::form::{Located, Name};
use super::raw;
use crate::xds::{Access, AccessRule, NamePattern, TypeTable};

impl Checker<'_> {
    pub(crate) fn access(&mut self, entries: &[Located<raw::AccessEntry>], table: &TypeTable) -> Access {
        let rules = entries.iter().map(|entry| AccessRule {
            types: entry.types.0.iter().flat_map(|types| &types.0).map(|name| self.known_type(name, table)).collect(),
            names: entry.names.iter().map(|name| NamePattern::parse(name)).collect(),
            peers: entry
                .allow_from
                .0
                .iter()
                .flat_map(|networks| &networks.value)
                .map(|network| network.value)
                .collect(),
        });
        Access::of(rules.collect())
    }

    fn known_type(&mut self, name: &Located<Name>, table: &TypeTable) -> Box<str> {
        let kind = table.resolve(&name.0);
        if !table.knows(kind.name()) {
            let reason = format!("unknown type {:?}: expected one that is built in or listed under types", name.0);
            self.fault(&name.place, reason);
        }
        kind.name().into()
    }
}

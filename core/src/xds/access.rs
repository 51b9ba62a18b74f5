//! Access rules: which clients of a view may have which resources (KEY-11).
//!
//! A resource that no rule covers is open to all. The others are open to the clients that their rules list.

use std::net::IpAddr;
use std::sync::Arc;

use super::name::Name;
use super::name_pattern::NamePattern;
use super::network::Network;
use super::permissions::Permit;
use super::types::Type;

/// Resources that are limited to some clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// Names of types. The name of a v3 type covers its v2 predecessor too.
    pub types: Vec<Box<str>>,
    /// Empty means all names of these types.
    pub names: Vec<NamePattern>,
    /// The networks of the clients that may have the resources.
    pub peers: Vec<Network>,
}

/// The access rules. A resource that no rule covers is open to every client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    rules: Arc<[AccessRule]>,
}

/// The access of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clearance {
    access: Access,
    /// For each rule, whether it lists this client.
    named: Arc<[bool]>,
    /// What the permissions allow this client. A resource must be allowed by the rules and by the permit.
    permit: Option<Arc<Permit>>,
}

impl Access {
    /// Returns the rules. A resource that several rules cover is open to the clients of each of them.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }

    /// Returns access by these rules.
    pub fn of(rules: Vec<AccessRule>) -> Self {
        Self { rules: rules.into() }
    }

    /// Returns the access of a client at this address. A client on a Unix socket has no address, so it is in no network.
    pub fn clearance(&self, peer: Option<IpAddr>) -> Clearance {
        let contains = |network: &Network| peer.is_some_and(|peer| network.contains(peer));
        let names_peer = |rule: &AccessRule| rule.peers.iter().any(contains);
        Clearance { access: self.clone(), named: self.rules.iter().map(names_peer).collect(), permit: None }
    }
}

impl Clearance {
    /// Adds what the permissions allow this client.
    pub fn with_permit(self, permit: Option<Arc<Permit>>) -> Self {
        Self { permit, ..self }
    }

    /// Returns the name of the permission rule that forbids the client this type as a whole, if one does.
    pub(crate) fn rule_against(&self, kind: &Type) -> Option<&Arc<str>> {
        self.permit.as_ref().filter(|permit| !permit.allows_type(kind)).map(|permit| &permit.rule)
    }

    /// Whether any resources of a type, existing or not, are closed to this client.
    pub(crate) fn restricts(&self, kind: &Type) -> bool {
        let about = |rule: &AccessRule| rule.types.iter().any(|of| kind.is_called(of));
        self.permit.as_ref().is_some_and(|permit| permit.restricts(kind))
            || self.access.rules.iter().zip(&*self.named).any(|(rule, named)| !named && about(rule))
    }

    /// Whether the rules let a client have a resource.
    pub fn allows(&self, kind: &Type, name: &Name) -> bool {
        if self.permit.as_ref().is_some_and(|permit| !permit.allows(kind, name)) {
            return false;
        }
        let about = |rule: &AccessRule| {
            let of_type = rule.types.iter().any(|of| kind.is_called(of));
            of_type && (rule.names.is_empty() || rule.names.iter().any(|pattern| pattern.matches(name.as_str())))
        };
        let mut concerned = self.access.rules.iter().zip(&*self.named).filter(|(rule, _)| about(rule)).peekable();
        concerned.peek().is_none() || concerned.any(|(_, named)| *named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    #[test]
    fn key_11_what_a_rule_is_about_is_for_those_it_names() {
        let kind = TypeTable::new().resolve("envoy.extensions.transport_sockets.tls.v3.Secret");
        let rule = |names: &[&str], peers: &[&str]| AccessRule {
            types: vec![kind.name().into()],
            names: names.iter().map(|name| NamePattern::parse(name)).collect(),
            peers: peers.iter().filter_map(|peer| Network::parse(peer)).collect(),
        };
        let access =
            Access::of(vec![rule(&["pay/*", "root"], &["10.1.0.0/16"]), rule(&["pay/shared"], &["10.2.0.0/16"])]);
        let allowed = |peer: &str, name: &str| access.clearance(peer.parse().ok()).allows(&kind, &name.into());
        assert!(allowed("10.1.0.1", "pay/key") && allowed("10.1.0.1", "root") && allowed("10.1.0.1", "other"));
        assert!(!allowed("10.2.0.1", "pay/key") && !allowed("10.2.0.1", "root") && allowed("10.2.0.1", "other"));
        assert!(allowed("10.2.0.1", "pay/shared") && allowed("10.1.0.1", "pay/shared"), "either rule is enough");
        assert!(!access.clearance("10.9.0.1".parse().ok()).allows(&kind, &"root".into()));
        let other = TypeTable::new().resolve("a.B");
        assert!(access.clearance("10.9.0.1".parse().ok()).allows(&other, &"root".into()));
    }

    /// A client that is not restricted is sent the same as all others.
    #[test]
    fn key_11_a_client_that_one_rule_names_and_another_does_not_is_restricted() {
        let (kind, other) = (TypeTable::new().resolve("a.A"), TypeTable::new().resolve("a.B"));
        let rule = |name: &str, peers: &[&str]| AccessRule {
            types: vec![kind.name().into()],
            names: vec![NamePattern::parse(name)],
            peers: peers.iter().filter_map(|peer| Network::parse(peer)).collect(),
        };
        let access = Access::of(vec![
            rule("one", &["10.1.0.0/16", "10.3.0.0/16"]),
            rule("two", &["10.2.0.0/16", "10.3.0.0/16"]),
        ]);
        let restricts = |peer: &str, kind: &Type| access.clearance(peer.parse().ok()).restricts(kind);
        let of_kind = ["10.1.0.1", "10.2.0.1", "10.9.0.1", "10.3.0.1"].map(|peer| restricts(peer, &kind));
        assert_eq!(of_kind, [true, true, true, false]);
        assert!(!restricts("10.9.0.1", &other), "no rule is about the type");
    }
}

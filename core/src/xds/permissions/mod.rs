//! Permissions: who may be which client, and what it may have.
//!
//! Without rules, any client may state any node. With rules, the first one for a client's identity decides what its node may be and what it
//! may have. A client without a rule is rejected.

mod pattern;
mod permit;
mod rule;

use std::sync::Arc;

use prost::Message;

use self::pattern::Captures;
pub use self::pattern::{PatternFault, SegmentPattern, TENANT, Template};
pub use self::permit::Permit;
pub use self::rule::{IdentityPattern, NodeField, PermissionRule};
use super::key::{KeyField, NodeError, claimed_tenant};
use super::peer::Peer;
use crate::proto::node::Node;

/// The rules, in their order. Without rules, everything is permitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    rules: Arc<[PermissionRule]>,
}

/// The tenant to which a client belongs, and what that tenant gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The tenant. `None` without rules.
    pub tenant: Option<Arc<str>>,
    /// How many equal parts the tenant has of what all tenants share.
    pub share: usize,
    /// The client is a relay for other clients.
    pub is_relay: bool,
}

/// Why the permissions deny a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No rule is for the client.
    #[error("no rule of permissions is for {peer}")]
    NoRule {
        /// The client.
        peer: String,
        /// Whether the client has proved anything.
        proved: bool,
    },
    /// A field of the client's node has a value that the rule does not permit.
    #[error("node.{field} is {value:?}: rule {rule} of permissions permits {permitted}")]
    Field {
        /// The rule.
        rule: Arc<str>,
        /// The field.
        field: KeyField,
        /// Its value, shortened.
        value: String,
        /// What would be permitted.
        permitted: String,
    },
    /// The client states a tenant, which only relays may.
    #[error(
        "node.metadata.weir.tenant is {tenant:?}: only a relay may state a tenant, and rule {rule} of permissions is for none"
    )]
    StatesTenant {
        /// The rule.
        rule: Arc<str>,
        /// The tenant, shortened.
        tenant: String,
    },
    /// The client is a relay, but not for this tenant.
    #[error("node.metadata.weir.tenant is {tenant:?}: rule {rule} of permissions relays for {permitted}")]
    Tenant {
        /// The rule.
        rule: Arc<str>,
        /// The tenant, shortened.
        tenant: String,
        /// The tenants that the relay may state.
        permitted: String,
    },
    /// The node cannot be read.
    #[error("{0}")]
    Node(NodeError),
}

impl Permissions {
    /// Returns permissions by these rules.
    pub fn of(rules: Vec<PermissionRule>) -> Self {
        Self { rules: rules.into() }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[PermissionRule] {
        &self.rules
    }

    /// Judges a client by what it has proved and by its node. `None` means that there are no rules.
    pub fn judge(&self, peer: &Peer, encoded_node: &[u8]) -> Result<Option<Permit>, Denied> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let (rule, captures) = self
            .rule_for(peer)
            .ok_or_else(|| Denied::NoRule { peer: peer.to_string(), proved: peer.proven.is_some() })?;
        let node = Node::decode(encoded_node).map_err(|_| Denied::Node(NodeError))?;
        let tenant = match claimed_tenant(&node) {
            Some(tenant) => Some(rule.judge_tenant(&tenant)?),
            None => rule.tenant(peer, &captures),
        };
        let captures = captures.with_tenant(tenant.as_deref());
        rule.judge_node(&node, &captures)?;
        Ok(Some(rule.permit(&captures, tenant)))
    }

    /// Whether a client may have the status of all clients. Without rules, no client may.
    pub fn let_see_status(&self, peer: &Peer) -> bool {
        self.rule_for(peer).is_some_and(|(rule, _)| rule.client_status)
    }

    /// Returns the owner of a client by its rule. A tenant that the client states itself does not count.
    pub fn owner_of(&self, peer: &Peer) -> Owner {
        self.rule_for(peer).map_or_else(Owner::default, |(rule, captures)| Owner {
            tenant: rule.tenant(peer, &captures),
            share: rule.share,
            is_relay: !rule.relays_for.is_empty(),
        })
    }

    /// Whether both permissions treat a client alike: by equal rules, or both by none.
    pub fn treat_alike(&self, other: &Self, peer: &Peer) -> bool {
        // A changed share is no reason to end a client's streams.
        let rule =
            |(rule, captures): (&PermissionRule, Captures)| (PermissionRule { share: 1, ..rule.clone() }, captures);
        Arc::ptr_eq(&self.rules, &other.rules) || self.rule_for(peer).map(rule) == other.rule_for(peer).map(rule)
    }

    /// Whether two peers are treated alike although they have proved different things: by the same rule, as the same tenant.
    pub fn treat_as(&self, peer: &Peer, other: &Peer) -> bool {
        let of = |peer| self.rule_for(peer).map(|(rule, captures)| (rule, rule.tenant(peer, &captures), captures));
        of(peer) == of(other)
    }

    fn rule_for(&self, peer: &Peer) -> Option<(&PermissionRule, Captures)> {
        self.rules.iter().find_map(|rule| Some((rule, rule.captures(peer)?)))
    }
}

#[cfg(test)]
mod random_rules;
#[cfg(test)]
mod tests;

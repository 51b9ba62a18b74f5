//! One rule: which clients it is for, what they may be, and what they may have.

use std::fmt;
use std::sync::Arc;

use super::Denied;
use super::pattern::{Captures, SegmentPattern, Template};
use super::permit::Permit;
use crate::proto::node::Node;
use crate::xds::key::KeyField;
use crate::xds::name_pattern::NamePattern;
use crate::xds::network::Network;
use crate::xds::peer::{Peer, PeerProof};

/// Identities that a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityPattern {
    /// SPIFFE ids, verified by the bundle of their trust domain.
    Spiffe(SegmentPattern),
    /// URIs in a certificate that the client CA verified.
    Uri(SegmentPattern),
    /// DNS names in such a certificate.
    Dns(SegmentPattern),
    /// Processes of this user on a Unix socket.
    Uid(u32),
    /// Processes of this group on a Unix socket.
    Gid(u32),
    /// All clients that connect from this network. An address proves nothing.
    Network(Network),
}

/// The permitted values of one field of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeField {
    /// A field with one text as its value.
    pub field: KeyField,
    /// Any of these.
    pub values: Vec<Template>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// The rule's name in messages and logs.
    pub name: Arc<str>,
    /// The clients that the rule is for: those with any of these identities.
    pub identities: Vec<IdentityPattern>,
    /// The values that fields of the clients' nodes may have. Other fields may have any value.
    pub node: Vec<NodeField>,
    /// Full names of the types that the clients may request; `None` means all.
    pub types: Option<Arc<[Box<str>]>>,
    /// Names of resources other than secrets; empty means all.
    pub names: Vec<Template>,
    /// Names of secrets. All other secrets are denied.
    pub secrets: Vec<Template>,
    /// The clients' tenant. Without it, the segment `{tenant}` of the identity is the tenant. Without such a segment, each identity is a tenant
    /// of its own.
    pub tenant: Option<Template>,
    /// If the clients are relays: the tenants that they may state in the nodes that they send.
    pub relays_for: Vec<NamePattern>,
    /// Whether the clients may have the status of all clients and of the relay itself.
    pub client_status: bool,
    /// How many equal parts the clients have of what all clients share.
    pub share: usize,
}

impl IdentityPattern {
    /// Whether the pattern proves an identity. A network does not.
    pub fn is_proof(&self) -> bool {
        !matches!(self, Self::Network(_))
    }

    /// Returns the names of the pattern's segments.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Spiffe(pattern) | Self::Uri(pattern) | Self::Dns(pattern) => pattern.names().collect(),
            Self::Uid(_) | Self::Gid(_) | Self::Network(_) => Vec::new(),
        }
    }

    /// Whether a peer matches this pattern.
    pub fn is_of(&self, peer: &Peer) -> bool {
        self.captures(peer).is_some()
    }

    /// Returns the identity of a peer that matches, as [`Peer::identity`] names it. Of a certificate with several names it is the one that matches.
    fn identity(&self, peer: &Peer) -> Option<String> {
        match (self, self.matched(peer)?.0) {
            (Self::Uri(_), Some(uri)) => Some(format!("uri:{uri}")),
            (Self::Dns(_), Some(name)) => Some(format!("dns:{name}")),
            (_, Some(id)) => Some(id.to_owned()),
            (_, None) => peer.identity(),
        }
    }

    fn captures(&self, peer: &Peer) -> Option<Captures> {
        self.matched(peer).map(|(_, captures)| captures)
    }

    /// Returns the name in the certificate that matches, if it is a name, and what it has in the named segments.
    fn matched<'a>(&self, peer: &'a Peer) -> Option<(Option<&'a str>, Captures)> {
        let nothing = (None, Captures::default());
        match (self, peer.proven.as_ref()) {
            (Self::Spiffe(pattern), Some(PeerProof::Certificate(names))) => {
                let id = names.spiffe.as_deref()?;
                Some((Some(id), pattern.matches(id)?))
            }
            (Self::Uri(pattern), Some(PeerProof::Certificate(names))) => {
                names.uris.iter().find_map(|uri| Some((Some(&**uri), pattern.matches(uri)?)))
            }
            (Self::Dns(pattern), Some(PeerProof::Certificate(names))) => {
                names.dns.iter().find_map(|name| Some((Some(&**name), pattern.matches(&name.to_ascii_lowercase())?)))
            }
            (Self::Uid(own), Some(PeerProof::Process { uid, .. })) => (own == uid).then_some(nothing),
            (Self::Gid(own), Some(PeerProof::Process { gid, .. })) => (own == gid).then_some(nothing),
            (Self::Network(network), _) => network.contains(peer.ip()?).then_some(nothing),
            _ => None,
        }
    }
}

impl PermissionRule {
    /// Returns the captures of the rule's first pattern that matches a peer.
    pub(super) fn captures(&self, peer: &Peer) -> Option<Captures> {
        self.identities.iter().find_map(|identity| identity.captures(peer))
    }

    pub(super) fn judge_node(&self, node: &Node, captures: &Captures) -> Result<(), Denied> {
        for NodeField { field, values } in &self.node {
            let value = field.text_in(node);
            let permitted = patterns(values, captures);
            if !value.as_ref().is_some_and(|value| permitted.iter().any(|pattern| pattern.matches(value))) {
                return Err(Denied::Field {
                    rule: self.name.clone(),
                    field: field.clone(),
                    value: shortened(&value.unwrap_or_default()),
                    permitted: listed(&permitted),
                });
            }
        }
        Ok(())
    }

    /// Judges the tenant that a node states. Only relays may state one.
    pub(super) fn judge_tenant(&self, tenant: &str) -> Result<Arc<str>, Denied> {
        let (rule, shown) = (self.name.clone(), shortened(tenant));
        if self.relays_for.is_empty() {
            return Err(Denied::StatesTenant { rule, tenant: shown });
        }
        if !self.relays_for.iter().any(|pattern| pattern.matches(tenant)) {
            return Err(Denied::Tenant { rule, tenant: shown, permitted: listed(&self.relays_for) });
        }
        Ok(tenant.into())
    }

    /// Returns the tenant of a client whose node states none.
    pub(super) fn tenant(&self, peer: &Peer, captures: &Captures) -> Option<Arc<str>> {
        match &self.tenant {
            Some(template) => template.fill(captures),
            None => captures.tenant().map(String::from).or_else(|| self.identity(peer)),
        }
        .map(Arc::from)
    }

    /// Returns the identity of a peer by the first of its patterns that matches.
    fn identity(&self, peer: &Peer) -> Option<String> {
        self.identities.iter().find(|identity| identity.is_of(peer))?.identity(peer)
    }

    pub(super) fn permit(&self, captures: &Captures, tenant: Option<Arc<str>>) -> Permit {
        Permit {
            rule: self.name.clone(),
            tenant,
            types: self.types.clone(),
            names: (!self.names.is_empty()).then(|| patterns(&self.names, captures)),
            secrets: patterns(&self.secrets, captures),
        }
    }
}

/// Returns the patterns of templates. A template that refers to something that was not captured matches nothing.
fn patterns(templates: &[Template], captures: &Captures) -> Vec<NamePattern> {
    let pattern = |template: &Template| {
        let text = template.fill(captures)?.into();
        Some(if template.is_open() { NamePattern::Under(text) } else { NamePattern::Exactly(text) })
    };
    templates.iter().filter_map(pattern).collect()
}

fn listed(patterns: &[NamePattern]) -> String {
    patterns.iter().map(|pattern| format!("{:?}", pattern.to_string())).collect::<Vec<_>>().join(" or ")
}

/// Shortens a text of a peer, which may be long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const LONGEST: usize = 120;

impl fmt::Display for IdentityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spiffe(pattern) => pattern.fmt(f),
            Self::Uri(pattern) => write!(f, "uri:{pattern}"),
            Self::Dns(pattern) => write!(f, "dns:{pattern}"),
            Self::Uid(uid) => write!(f, "uid:{uid}"),
            Self::Gid(gid) => write!(f, "gid:{gid}"),
            Self::Network(network) => write!(f, "network:{network}"),
        }
    }
}

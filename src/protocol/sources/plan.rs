//! Which servers there are, and which authority is served by which of them in what order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::ladder::{Patience, Rule};
use crate::protocol::session::Variant;
use crate::protocol::upstream::ServerRules;
use crate::xds::Authority;

/// The same for every view.
#[derive(Debug, Clone)]
pub struct Plan {
    pub servers: Vec<ServerPlan>,
    /// For `*` and old-style names (XLAT-38, BOOT-14).
    pub top: AuthorityPlan,
    /// By authority, as canonical names spell it.
    pub authorities: BTreeMap<String, AuthorityPlan>,
    pub patience: Patience,
    /// What a server further down lacks stays, if one above it gave it.
    pub holds_missing: bool,
}

#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// What is tried first.
    pub variant: Variant,
    pub rules: Arc<ServerRules>,
}

#[derive(Debug, Clone)]
pub struct AuthorityPlan {
    /// Places in the list of servers, first choice first.
    pub servers: Vec<usize>,
    pub rule: Rule,
}

impl Plan {
    /// One server for everything.
    pub fn single(variant: Variant, rules: ServerRules) -> Self {
        Self {
            servers: vec![ServerPlan { variant, rules: rules.into() }],
            top: AuthorityPlan { servers: vec![0], rule: Rule::default() },
            authorities: BTreeMap::new(),
            patience: Patience::default(),
            holds_missing: true,
        }
    }

    pub fn authority(&self, authority: &Authority) -> Option<&AuthorityPlan> {
        match authority {
            Authority::Top => Some(&self.top),
            Authority::Named(name) => self.authorities.get(name),
        }
    }
}

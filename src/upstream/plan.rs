//! Which control planes there are, and who is asked for what.

use std::collections::BTreeMap;

use super::AdsServer;
use crate::protocol::ladder::{Patience, Rule};
use crate::protocol::session::Variant;
use crate::protocol::sources;

/// Every server once, and the lists that name them by their place here.
#[derive(Debug, Clone)]
pub struct Plan {
    pub servers: Vec<AdsServer>,
    /// For old-style names, the first choice first (BOOT-12, BOOT-14).
    pub top: Vec<usize>,
    pub authorities: BTreeMap<String, AuthorityPlan>,
    pub patience: Patience,
    /// What the old server had and the new one has not is kept after a move down (FB-26).
    pub hold_missing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityPlan {
    pub servers: Vec<usize>,
    pub rule: Rule,
}

/// The lists as they are written. That of an authority may be empty, which means the one at the top (BOOT-13).
#[derive(Debug, Default)]
pub struct Lists {
    pub top: Vec<AdsServer>,
    pub authorities: BTreeMap<String, (Vec<AdsServer>, Rule)>,
}

impl Plan {
    pub fn new(lists: Lists, patience: Patience, hold_missing: bool) -> Self {
        let mut servers = Vec::new();
        let top = places(&mut servers, lists.top);
        let authorities = lists.authorities.into_iter().map(|(name, (own, rule))| {
            let own = if own.is_empty() { top.clone() } else { places(&mut servers, own) };
            (name, AuthorityPlan { servers: own, rule })
        });
        let authorities = authorities.collect();
        Self { servers, top, authorities, patience, hold_missing }
    }

    /// What a view goes by: the same lists, and nothing of how a server is reached.
    pub fn for_sources(&self) -> sources::Plan {
        let server = |server: &AdsServer| sources::ServerPlan {
            variant: server.variant.unwrap_or(Variant::Delta),
            rules: server.rules.clone().into(),
        };
        let list = |servers: &[usize], rule| sources::AuthorityPlan { servers: servers.into(), rule };
        let authorities = self.authorities.iter().map(|(name, of)| (name.clone(), list(&of.servers, of.rule)));
        sources::Plan {
            servers: self.servers.iter().map(server).collect(),
            top: list(&self.top, Rule::default()), // there is no other for them (BOOT-22)
            authorities: authorities.collect(),
            patience: self.patience,
            holds_missing: self.hold_missing,
        }
    }
}

/// Where the servers of a list stand among all. What is equal is one (BOOT-9), also within a list: to turn from a server to
/// itself would help nobody.
fn places(servers: &mut Vec<AdsServer>, list: Vec<AdsServer>) -> Vec<usize> {
    let mut places = Vec::new();
    for server in list {
        let known = servers.iter().position(|known| *known == server);
        let at = known.unwrap_or_else(|| {
            servers.push(server);
            servers.len() - 1
        });
        if !places.contains(&at) {
            places.push(at);
        }
    }
    places
}

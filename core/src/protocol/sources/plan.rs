//! The servers, and the ordered server list of each authority.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::ladder::{FallbackTimers, Rule};
use crate::protocol::session::Variant;
use crate::protocol::upstream::ServerQuirks;
use crate::protocol::view::Selector;
use crate::xds::Authority;

/// The servers and server lists of the configuration. All views have the same.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Every server once.
    pub servers: Vec<ServerPlan>,
    /// For `*` and old-style names (XLAT-38, BOOT-14).
    pub top: AuthorityPlan,
    /// By authority, as canonical names spell it.
    pub authorities: BTreeMap<String, AuthorityPlan>,
    /// What delays a fallback.
    pub timers: FallbackTimers,
    /// Whether clients keep a resource of a server that a server further down the list lacks.
    pub holds_missing: bool,
}

/// What a server of the plan is.
#[derive(Debug, Clone)]
pub enum ServerPlan {
    /// A server that Weir sends requests to.
    Streams {
        /// The variant that is tried first.
        variant: Variant,
        /// How this server differs from others.
        quirks: Arc<ServerQuirks>,
    },
    /// A local set, which has its resources in the process.
    LocalSet {
        /// Whether what is not in the set does not exist, because no other server gets the same requests.
        authoritative: bool,
    },
}

/// The servers of one authority, and the rule for falling back.
#[derive(Debug, Clone)]
pub struct AuthorityPlan {
    /// Indexes in [`Plan::servers`], first choice first.
    pub servers: Vec<usize>,
    /// When to fall back from a server that is unreachable.
    pub rule: Rule,
}

impl Plan {
    /// Returns a plan with one server for everything.
    pub fn single(variant: Variant, rules: ServerQuirks) -> Self {
        Self {
            servers: vec![ServerPlan::Streams { variant, quirks: rules.into() }],
            top: AuthorityPlan { servers: vec![0], rule: Rule::default() },
            authorities: BTreeMap::new(),
            timers: FallbackTimers::default(),
            holds_missing: true,
        }
    }

    /// Returns the servers of an authority, if it is in the plan.
    pub fn authority(&self, authority: &Authority) -> Option<&AuthorityPlan> {
        match authority {
            Authority::TopLevel => Some(&self.top),
            Authority::Named(name) => self.authorities.get(name),
        }
    }
}

impl ServerPlan {
    /// Whether brakes do not hold what the server removes.
    pub(super) fn skips_brakes(&self) -> bool {
        match self {
            Self::Streams { quirks, .. } => quirks.skips_brakes,
            Self::LocalSet { .. } => true,
        }
    }

    /// Whether Weir polls each type of the server separately.
    pub(super) fn is_polled(&self) -> bool {
        match self {
            Self::Streams { quirks, .. } => quirks.per_type_liveness,
            Self::LocalSet { .. } => false,
        }
    }
}

/// Returns the authority whose servers are asked for a selector.
pub(crate) fn authority_of(selector: &Selector) -> Authority {
    match selector {
        Selector::Wildcard => Authority::TopLevel,
        Selector::Name(name) => Authority::of(name),
    }
}

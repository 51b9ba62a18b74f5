//! The permissions in force, which may change while the relay runs.

use std::sync::{PoisonError, RwLock};

use crate::xds::{Peer, Permissions};

#[derive(Debug, Default)]
pub(crate) struct LivePermissions(RwLock<Permissions>);

/// Rules may change, but not from none to some or back: clients that came without any were never judged, and a file that lost its rules by
/// mistake must not open everything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("permissions change from none to some, or from some to none, with a restart only")]
pub struct NeedsRestart;

impl LivePermissions {
    pub(crate) fn new(permissions: Permissions) -> Self {
        Self(RwLock::new(permissions))
    }

    pub(crate) fn current(&self) -> Permissions {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other permissions in force, and returns whether they differ.
    pub(crate) fn replace(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if current.rules().is_empty() != permissions.rules().is_empty() {
            return Err(NeedsRestart);
        }
        let differ = *current != permissions;
        *current = permissions;
        Ok(differ)
    }

    /// Whether a client is still treated as by these earlier permissions.
    pub(crate) fn still_treat(&self, peer: &Peer, earlier: &Permissions) -> bool {
        self.current().treat_alike(earlier, peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::{IdentityPattern, Network, PermissionRule};

    fn rule(name: &str, network: &str) -> PermissionRule {
        PermissionRule {
            name: name.into(),
            identities: vec![IdentityPattern::Network(Network::parse(network).unwrap())],
            node: Vec::new(),
            types: None,
            names: Vec::new(),
            secrets: Vec::new(),
            tenant: None,
            relays_for: Vec::new(),
        }
    }

    #[test]
    fn a_change_concerns_those_whose_rule_is_another_now() {
        let of = |rules: &[PermissionRule]| Permissions::of(rules.to_vec());
        let (one, two) = (rule("one", "10.1.0.0/16"), rule("two", "10.2.0.0/16"));
        let earlier = of(&[one.clone(), two.clone()]);
        let live = LivePermissions::new(earlier.clone());
        let [of_one, of_two] = ["10.1.0.1:1", "10.2.0.1:1"].map(|address| Peer::at(address.parse().unwrap()));
        assert_eq!(live.replace(earlier.clone()), Ok(false));
        let narrowed = PermissionRule { types: Some(["a.B".into()].into()), ..one.clone() };
        assert_eq!(live.replace(of(&[narrowed, two.clone()])), Ok(true));
        assert!(!live.still_treat(&of_one, &earlier) && live.still_treat(&of_two, &earlier));
        assert_eq!(live.replace(of(&[two])), Ok(true));
        assert!(!live.still_treat(&of_one, &earlier), "there is no rule for it");
        assert!(live.still_treat(&of_two, &earlier), "its rule stands elsewhere, and is the same");
    }

    #[test]
    fn rules_do_not_come_and_go_altogether() {
        let live = LivePermissions::new(Permissions::of(vec![rule("one", "10.0.0.0/8")]));
        assert_eq!(live.replace(Permissions::default()), Err(NeedsRestart));
        assert!(!live.current().rules().is_empty());
        assert_eq!(LivePermissions::default().replace(live.current()), Err(NeedsRestart));
    }
}

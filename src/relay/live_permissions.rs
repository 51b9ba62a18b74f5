//! The permissions in force, which may change while the relay runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weir_core::xds::{Peer, Permissions};

#[derive(Debug)]
pub(crate) struct LivePermissions(RwLock<Versions>);

/// The permissions in force and earlier ones. A client that was judged by earlier ones may have opened streams under any since.
#[derive(Debug)]
struct Versions {
    /// The number of the newest.
    number: u64,
    /// The newest one last.
    all: VecDeque<Permissions>,
    /// The number of the newest generation of views.
    generation: u64,
    /// The first generation whose configuration was checked together with the newest permissions. Each later one was too.
    checked_since: u64,
}

/// The permissions that a client was last judged by.
#[derive(Debug)]
pub(crate) struct JudgedBy(AtomicU64);

/// Rules may change, but not from none to some or back: clients that came without any were never judged, and a file that lost its rules by
/// mistake must not open everything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("permissions change from none to some, or from some to none, with a restart only")]
pub struct NeedsRestart;

impl LivePermissions {
    pub(crate) fn new(permissions: Permissions) -> Self {
        Self(RwLock::new(Versions { number: 0, all: [permissions].into(), generation: 0, checked_since: 0 }))
    }

    pub(crate) fn current(&self) -> Permissions {
        self.versions().all.back().cloned().unwrap_or_default() // there is always one
    }

    /// Returns the permissions in force, for the views of a generation. There are none if its configuration was not checked with them:
    /// its key may have fields that only earlier rules judge.
    pub(crate) fn current_for(&self, generation: u64) -> Option<Permissions> {
        let versions = self.versions();
        versions.all.back().filter(|_| generation >= versions.checked_since).cloned()
    }

    /// Returns the number of the newest generation of views.
    pub(crate) fn generation(&self) -> u64 {
        self.versions().generation
    }

    /// Whether there are rules for who may be which client.
    pub(crate) fn has_rules(&self) -> bool {
        !self.current().rules().is_empty()
    }

    /// Returns a mark for the permissions in force.
    pub(crate) fn judged_now(&self) -> JudgedBy {
        JudgedBy(self.versions().number.into())
    }

    /// Puts other permissions in force that go with the newest generation, and returns whether they differ.
    pub(crate) fn replace(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        let mut versions = self.versions_mut();
        let generation = versions.generation;
        versions.replace(permissions, generation)
    }

    /// Does the same for a new generation, whose views are made after this.
    pub(crate) fn replace_with_generation(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        let mut versions = self.versions_mut();
        let generation = versions.generation + 1;
        versions.replace(permissions, generation)
    }

    /// Whether all permissions since have treated a client like those that it was judged by. If so, it now counts as judged by the newest.
    pub(crate) fn still_treat(&self, peer: &Peer, judged: &JudgedBy) -> bool {
        let versions = self.versions();
        let age = versions.number - judged.0.load(Ordering::Relaxed);
        let since = usize::try_from(age).ok().and_then(|age| versions.all.len().checked_sub(age + 1));
        let Some(since) = since else { return false };
        let earlier = &versions.all[since];
        let alike = versions.all.range(since + 1..).all(|later| later.treat_alike(earlier, peer));
        if alike {
            judged.0.store(versions.number, Ordering::Relaxed);
        }
        alike
    }

    fn versions(&self) -> RwLockReadGuard<'_, Versions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn versions_mut(&self) -> RwLockWriteGuard<'_, Versions> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Versions {
    /// Puts permissions in force that were checked with the configuration of the newest generation, which has this number.
    fn replace(&mut self, permissions: Permissions, generation: u64) -> Result<bool, NeedsRestart> {
        let current = self.all.back();
        if current.is_some_and(|current| current.rules().is_empty() != permissions.rules().is_empty()) {
            return Err(NeedsRestart);
        }
        self.generation = generation;
        if current == Some(&permissions) {
            return Ok(false);
        }
        self.checked_since = generation;
        self.number += 1;
        self.all.push_back(permissions);
        if self.all.len() > KEPT {
            self.all.pop_front();
        }
        Ok(true)
    }
}

/// Clients are judged after each change. A client that was not judged after so many changes loses its streams.
const KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use weir_core::xds::{IdentityPattern, Network, PermissionRule};

    use super::*;

    fn rule(name: &str, network: &str) -> PermissionRule {
        PermissionRule {
            share: 1,
            name: name.into(),
            identities: vec![IdentityPattern::Network(Network::parse(network).unwrap())],
            node: Vec::new(),
            types: None,
            names: Vec::new(),
            secrets: Vec::new(),
            tenant: None,
            relays_for: Vec::new(),
            client_status: false,
        }
    }

    #[test]
    fn a_change_concerns_those_whose_rule_is_another_now() {
        let of = |rules: &[PermissionRule]| Permissions::of(rules.to_vec());
        let (one, two) = (rule("one", "10.1.0.0/16"), rule("two", "10.2.0.0/16"));
        let earlier = of(&[one.clone(), two.clone()]);
        let live = LivePermissions::new(earlier.clone());
        let (judged_one, judged_two) = (live.judged_now(), live.judged_now());
        let [of_one, of_two] = ["10.1.0.1:1", "10.2.0.1:1"].map(|address| Peer::at(address.parse().unwrap()));
        assert_eq!(live.replace(earlier.clone()), Ok(false));
        let narrowed = PermissionRule { types: Some(["a.B".into()].into()), ..one.clone() };
        assert_eq!(live.replace(of(&[narrowed, two.clone()])), Ok(true));
        assert!(!live.still_treat(&of_one, &judged_one) && live.still_treat(&of_two, &judged_two));
        assert_eq!(live.replace(of(&[two])), Ok(true));
        assert!(!live.still_treat(&of_one, &judged_one), "there is no rule for it");
        assert!(live.still_treat(&of_two, &judged_two), "its rule stands elsewhere, and is the same");
    }

    #[test]
    fn a_change_that_is_taken_back_concerns_those_who_may_have_come_under_it() {
        let (one, two) = (rule("one", "10.1.0.0/16"), rule("two", "10.2.0.0/16"));
        let first = Permissions::of(vec![one.clone(), two.clone()]);
        let live = LivePermissions::new(first.clone());
        let [of_one, of_two] = ["10.1.0.1:1", "10.2.0.1:1"].map(|address| Peer::at(address.parse().unwrap()));
        let (judged_one, judged_two) = (live.judged_now(), live.judged_now());
        let wider = PermissionRule { types: Some(["a.B".into()].into()), ..one };
        for round in 0..3 * KEPT {
            assert_eq!(live.replace(Permissions::of(vec![wider.clone(), two.clone()])), Ok(true));
            assert_eq!(live.replace(first.clone()), Ok(true));
            assert!(!live.still_treat(&of_one, &judged_one), "it may have opened a stream in between");
            assert!(live.still_treat(&of_two, &judged_two), "however often that happens: {round}");
        }
        let unjudged = live.judged_now();
        for _ in 0..KEPT {
            live.replace(Permissions::of(vec![wider.clone(), two.clone()])).unwrap();
            live.replace(first.clone()).unwrap();
        }
        assert!(!live.still_treat(&of_two, &unjudged), "what was in between is no longer known");
    }

    #[test]
    fn rules_do_not_come_and_go_altogether() {
        let live = LivePermissions::new(Permissions::of(vec![rule("one", "10.0.0.0/8")]));
        assert_eq!(live.replace(Permissions::default()), Err(NeedsRestart));
        assert!(!live.current().rules().is_empty());
        assert_eq!(live.replace_with_generation(Permissions::default()), Err(NeedsRestart));
        assert_eq!(live.generation(), 0, "nor is there another generation");
        assert_eq!(LivePermissions::new(Permissions::default()).replace(live.current()), Err(NeedsRestart));
    }
}

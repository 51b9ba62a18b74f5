//! The resources of the origin, for checks that need them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::kind::Kind;
use crate::origin::Shared;
use crate::subscription::Name;

/// The state of an origin in the same process.
#[derive(Clone)]
pub struct Truth {
    origin: Arc<Shared>,
}

impl Truth {
    pub fn new(origin: Arc<Shared>) -> Self {
        Self { origin }
    }

    /// Returns a name that existed at an update, has existed ever since, and is not in `names`.
    pub fn missing(
        &self,
        kind: Kind,
        names: &BTreeSet<&Name>,
        update: u64,
        concerns: impl Fn(&str) -> bool,
    ) -> Option<Name> {
        let world = self.origin.world();
        let mut expected = world.set(kind).iter().filter(|(name, item)| item.created <= update && concerns(name));
        expected.find(|(name, _)| !names.contains(name)).map(|(name, _)| name.clone())
    }

    /// Returns the update of a resource, if it exists.
    pub fn update_of(&self, kind: Kind, name: &str) -> Option<u64> {
        self.origin.world().set(kind).get(name).map(|item| item.stamp.update)
    }

    /// Returns all names of a type, each with its update.
    pub fn set(&self, kind: Kind) -> Vec<(Name, u64)> {
        let world = self.origin.world();
        world.set(kind).iter().map(|(name, item)| (name.clone(), item.stamp.update)).collect()
    }
}

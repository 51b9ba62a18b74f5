//! What waits of one name, since when and until when, for operators.

use std::time::Duration;

use super::{Key, Order};
use crate::protocol::view::explain::Held;
use crate::xds::Name;

impl Order {
    /// Returns since when a removed resource stays, and until when at the latest. `bound` is `limits.reference_hold`.
    pub(crate) fn doomed_until(&self, key: &Key, bound: Duration) -> Option<Held> {
        let doomed = self.removable.get(key)?;
        Some(Held { since: Some(doomed.since), until: self.bound_of(&key.2, doomed.since, bound) })
    }

    /// Returns the clusters that a change of routing waits for.
    pub(crate) fn awaited_by(&self, key: &Key) -> Option<(Vec<Name>, Held)> {
        let waiting = self.waiting.get(key)?;
        Some((waiting.left.iter().cloned().collect(), Held { since: Some(waiting.since), until: self.goes_by(key) }))
    }
}

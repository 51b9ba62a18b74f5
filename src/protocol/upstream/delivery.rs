//! Whether a server was seen to send its sets in pieces: by type, and for all streams to that server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::xds::Type;

/// What one opening has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A set came in pieces.
    Piece,
    /// An opening has ended, and the first response was the complete set.
    AtOnce,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeliveryHabit {
    pub(crate) cuts: bool,
    /// Openings in a row on which everything came in the first response.
    at_once: u8,
}

/// What all views have seen of one server. Servers and clients can make up any number of types, so the number kept is bounded.
#[derive(Debug, Default)]
pub(crate) struct DeliveryHabits {
    of: BTreeMap<Type, DeliveryHabit>,
    cut: Arc<BTreeSet<Type>>,
}

impl DeliveryHabit {
    pub(crate) fn note(&mut self, seen: Delivery) {
        match seen {
            Delivery::Piece => *self = Self { cuts: true, at_once: 0 },
            Delivery::AtOnce => {
                self.at_once = self.at_once.saturating_add(1);
                self.cuts &= self.at_once < FORGOTTEN_AFTER;
            }
        }
    }
}

impl DeliveryHabits {
    pub(crate) fn note(&mut self, kind: &Type, seen: Delivery) {
        let known = self.of.contains_key(kind);
        if !known && (seen == Delivery::AtOnce || self.of.len() >= MOST) {
            return;
        }
        self.of.entry(kind.clone()).or_default().note(seen);
        self.of.retain(|_, habit| habit.cuts);
        if self.of.len() != self.cut.len() || !self.of.keys().eq(self.cut.iter()) {
            self.cut = Arc::new(self.of.keys().cloned().collect());
        }
    }

    /// The types of which it sends sets in pieces.
    pub(crate) fn types_in_pieces(&self) -> &Arc<BTreeSet<Type>> {
        &self.cut
    }
}

const FORGOTTEN_AFTER: u8 = 3;
/// Types of one server.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    #[test]
    fn what_one_has_seen_all_know_until_the_server_has_sent_it_at_once_a_few_times() {
        let clusters = TypeTable::new().resolve("type.googleapis.com/envoy.config.cluster.v3.Cluster");
        let mut habits = DeliveryHabits::default();
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().is_empty() && habits.of.is_empty(), "nothing is kept of the usual");
        habits.note(&clusters, Delivery::Piece);
        for _ in 1..FORGOTTEN_AFTER {
            habits.note(&clusters, Delivery::AtOnce);
            assert!(habits.types_in_pieces().contains(&clusters));
        }
        habits.note(&clusters, Delivery::Piece);
        habits.note(&clusters, Delivery::AtOnce);
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().contains(&clusters), "in a row");
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().is_empty() && habits.of.is_empty());
    }
}

//! Which streams hold which stated versions, and whose versions are refused when memory is short.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::StatedVersions;

/// The number of a hold within its ledger.
pub(super) type HoldId = u64;

/// Called when a hold is refused, without a lock.
pub(super) type OnRefusal = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Ledger {
    bytes: usize,
    next: HoldId,
    copies: HashMap<CopyId, SharedCopy>,
    by_sum: HashMap<u64, Vec<CopyId>>,
    holds: BTreeMap<HoldId, LedgerClaim>,
}

/// The number of the hold that a copy was made for.
type CopyId = HoldId;

struct SharedCopy {
    versions: Arc<StatedVersions>,
    sum: u64,
    bytes: usize,
    holds: usize,
}

struct LedgerClaim {
    copy: CopyId,
    connection: u64,
    refused: Arc<AtomicBool>,
    on_refusal: OnRefusal,
}

/// The stream that holds the versions, and what happens when the hold is refused.
pub(super) struct Holder {
    pub(super) connection: u64,
    pub(super) refused: Arc<AtomicBool>,
    pub(super) on_refusal: OnRefusal,
}

impl Ledger {
    /// Returns the bytes of all copies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn copies_with(&self, sum: u64) -> Vec<Arc<StatedVersions>> {
        let copies = self.by_sum.get(&sum).into_iter().flatten();
        copies.filter_map(|copy| Some(self.copies.get(copy)?.versions.clone())).collect()
    }

    /// Adds a hold of these versions. Returns the shared copy: an earlier equal one if there is one, else this one.
    pub(super) fn hold(
        &mut self,
        sum: u64,
        versions: Arc<StatedVersions>,
        holder: Holder,
    ) -> (HoldId, Arc<StatedVersions>) {
        let id = self.next;
        self.next += 1;
        let is_equal = |copy: &&CopyId| {
            self.copies.get(copy).is_some_and(|of| Arc::ptr_eq(&of.versions, &versions) || of.versions == versions)
        };
        let equal = self.by_sum.get(&sum).and_then(|copies| copies.iter().find(is_equal).copied());
        let copy = equal.unwrap_or(id);
        let of = self.copies.entry(copy).or_insert_with(|| {
            let bytes = versions.bytes();
            self.bytes += bytes;
            self.by_sum.entry(sum).or_default().push(id);
            SharedCopy { versions, sum, bytes, holds: 0 }
        });
        of.holds += 1;
        let Holder { connection, refused, on_refusal } = holder;
        self.holds.insert(id, LedgerClaim { copy, connection, refused, on_refusal });
        (id, of.versions.clone())
    }

    /// Ends a hold, unless it has been refused.
    pub(super) fn release(&mut self, id: HoldId) {
        let _ = self.remove(id);
    }

    /// Refuses the costliest hold of the connection whose holds cost most. If holds share a copy, each of them pays a part of it. Returns
    /// `None` if there is no hold.
    pub(super) fn refuse_costliest(&mut self) -> Option<OnRefusal> {
        let mut costs: HashMap<u64, usize> = HashMap::new();
        for hold in self.holds.values() {
            *costs.entry(hold.connection).or_default() += self.cost(hold);
        }
        let (connection, _) = costs.into_iter().max_by_key(|(_, cost)| *cost)?;
        let of_connection = self.holds.iter().filter(|(_, hold)| hold.connection == connection);
        let (id, _) = of_connection.max_by_key(|(_, hold)| self.cost(hold))?;
        let hold = self.remove(*id)?;
        hold.refused.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Some(hold.on_refusal)
    }

    fn cost(&self, hold: &LedgerClaim) -> usize {
        self.copies.get(&hold.copy).map_or(0, |copy| copy.bytes / copy.holds.max(1))
    }

    fn remove(&mut self, id: HoldId) -> Option<LedgerClaim> {
        let hold = self.holds.remove(&id)?;
        if let Some(copy) = self.copies.get_mut(&hold.copy) {
            copy.holds -= 1;
            if copy.holds == 0 {
                let (sum, bytes) = (copy.sum, copy.bytes);
                self.bytes -= bytes;
                self.copies.remove(&hold.copy);
                self.forget(sum, hold.copy);
            }
        }
        Some(hold)
    }

    fn forget(&mut self, sum: u64, copy: CopyId) {
        let Some(copies) = self.by_sum.get_mut(&sum) else { return };
        copies.retain(|other| *other != copy);
        if copies.is_empty() {
            self.by_sum.remove(&sum);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.by_sum.is_empty() && self.holds.is_empty() && self.bytes == 0
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.copies.len(), self.holds.len())
    }
}

//! A bound on what is kept, in bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The bytes that are left.
pub(super) struct Room<'a> {
    bytes: &'a mut usize,
    limit: usize,
    rejected: bool,
}

impl<'r> Room<'r> {
    /// `bytes` counts what is used.
    pub(crate) fn of(bytes: &'r mut usize, limit: usize) -> Self {
        Self { bytes, limit, rejected: false }
    }

    /// Whether something did not fit.
    pub(crate) fn rejected(&self) -> bool {
        self.rejected
    }

    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.limit;
        if fits {
            *self.bytes += bytes;
        }
        self.rejected |= !fits;
        fits
    }

    /// Returns the entry of a key, and creates it if it is missing and fits.
    pub(crate) fn entry<'a, K: Ord + Clone + Cost, V: Default>(
        &mut self,
        map: &'a mut BTreeMap<K, V>,
        key: K,
    ) -> Option<(K, &'a mut V)> {
        match map.entry(key) {
            Entry::Occupied(entry) => Some((entry.key().clone(), entry.into_mut())),
            Entry::Vacant(entry) if self.take(entry.key().cost()) => {
                Some((entry.key().clone(), entry.insert(V::default())))
            }
            Entry::Vacant(_) => None,
        }
    }
}

/// About how many bytes an entry with this key takes.
pub(super) trait Cost {
    fn cost(&self) -> usize;
}

impl Cost for String {
    fn cost(&self) -> usize {
        self.len() + 64
    }
}

//! When the names of a table last changed, by revision, and how far back that is known.
//!
//! Owns the changes that sessions of `*` read from their cursors on. The entries themselves belong to the table.

use std::ops::Bound::{Excluded, Unbounded};

use rpds::RedBlackTreeMapSync;

use super::entry::{Presence, TableEntry};
use crate::protocol::keys::Revision;
use crate::protocol::moment::Moment;
use crate::protocol::view::receipts::Receipts;
use crate::protocol::visits::visit;
use crate::xds::Name;

type Changes = RedBlackTreeMapSync<Revision, Name>;

#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// What is present.
    additions: Changes,
    removals: Changes,
    /// Resources whose TTL was extended since their last change, by the revision of the extension.
    refreshes: Changes,
    removal_bytes: usize,
    horizon: Revision,
    forgotten_at: Revision,
    /// The publications with additions, and those with removals. Only kept for `*`.
    added: Receipts,
    removed: Receipts,
}

impl Journal {
    /// Returns the journal of an empty table, made at a revision.
    pub(super) fn empty_at(made: Revision, horizon: Revision) -> Self {
        Self { horizon, forgotten_at: made, ..Self::default() }
    }

    pub(super) fn present_names(&self) -> impl Iterator<Item = &Name> {
        self.additions.values().inspect(|_| visit())
    }

    pub(in crate::protocol::view) fn present(&self) -> usize {
        self.additions.size()
    }

    /// Returns the present names that changed after a revision, in the order of change.
    pub(super) fn additions(&self, after: Revision) -> impl Iterator<Item = &Name> {
        changes_after(&self.additions, after)
    }

    /// Returns the present names whose TTL was extended after a revision.
    pub(super) fn refreshes(&self, after: Revision) -> impl Iterator<Item = &Name> {
        changes_after(&self.refreshes, after)
    }

    /// Returns the names that were removed after a revision, in the order of removal.
    pub(super) fn removals(&self, after: Revision) -> impl Iterator<Item = &Name> {
        changes_after(&self.removals, after)
    }

    /// Returns the revision of the last addition or removal.
    pub(in crate::protocol::view) fn newest(&self) -> Revision {
        newest(&self.additions).max(newest(&self.removals)).unwrap_or_default()
    }

    /// Returns the revision of the oldest remembered removal.
    pub(crate) fn oldest_removal(&self) -> Option<Revision> {
        self.removals.first().map(|(revision, _)| *revision)
    }

    /// Returns what the remembered removals take in memory, without bodies.
    pub(crate) fn removal_bytes(&self) -> usize {
        self.removal_bytes
    }

    /// Returns the removal horizon: a session that was sent removals only up to an earlier revision has missed some.
    pub(crate) fn horizon(&self) -> Revision {
        self.horizon
    }

    /// Returns when something present was last forgotten without a tombstone, or the table was made.
    pub fn forgotten_at(&self) -> Revision {
        self.forgotten_at
    }

    /// Whether everything that left since a revision is among the removals: nothing was forgotten meanwhile.
    pub fn remembers_since(&self, revision: Revision, forgotten_at: Revision) -> bool {
        self.forgotten_at == forgotten_at && self.horizon <= revision
    }

    /// Returns when the oldest change was received that added something after a revision.
    pub(crate) fn additions_received(&self, after: Revision) -> Option<Moment> {
        self.added.oldest_after(after)
    }

    /// Returns when the oldest removal after a revision was received.
    pub(crate) fn removals_received(&self, after: Revision) -> Option<Moment> {
        self.removed.oldest_after(after)
    }

    /// Records a publication at `revision`. The one before was at `last`, and the oldest change since then was received at `received`.
    pub(in crate::protocol::view) fn note_received(&mut self, last: Revision, revision: Revision, received: Moment) {
        for (changes, receipts) in [(&self.additions, &mut self.added), (&self.removals, &mut self.removed)] {
            if newest(changes).is_some_and(|at| at > last) {
                receipts.note(revision, received);
            }
        }
    }

    pub(super) fn add(&mut self, name: &Name, revision: Revision) {
        self.additions.insert_mut(revision, name.clone());
    }

    pub(super) fn remove(&mut self, name: &Name, revision: Revision) {
        self.removals.insert_mut(revision, name.clone());
        self.removal_bytes += bytes_of_removal(name);
    }

    /// The TTL of what is present is extended again.
    pub(super) fn refresh(&mut self, name: &Name, last: Revision, revision: Revision) {
        self.refreshes.remove_mut(&last);
        self.refreshes.insert_mut(revision, name.clone());
    }

    /// Takes out a name whose entry is about to be replaced.
    pub(super) fn take_out(&mut self, name: &Name, entry: &TableEntry) {
        match entry.presence {
            Presence::Present(_) => {
                self.additions.remove_mut(&entry.changed);
                self.refreshes.remove_mut(&entry.refreshed);
            }
            Presence::Absent(_) => {
                self.removals.remove_mut(&entry.changed);
                self.removal_bytes = self.removal_bytes.saturating_sub(bytes_of_removal(name));
            }
            Presence::Unknown => {}
        }
    }

    /// Raises the horizon to the oldest removal. Returns its name, which is to be forgotten.
    pub(super) fn pass_oldest_removal(&mut self) -> Option<Name> {
        let (revision, name) = self.removals.first()?;
        self.horizon = self.horizon.max(*revision);
        Some(name.clone())
    }

    /// Records that something present is forgotten without a tombstone.
    pub(super) fn note_forgotten(&mut self, at: Revision) {
        self.forgotten_at = at;
    }
}

/// Returns the names that changed after a revision, in the order of change.
fn changes_after(changes: &Changes, after: Revision) -> impl Iterator<Item = &Name> {
    changes.range((Excluded(after), Unbounded)).map(|(_, name)| name).inspect(|_| visit())
}

fn newest(changes: &Changes) -> Option<Revision> {
    changes.last().map(|(revision, _)| *revision)
}

/// Returns about what a remembered removal takes: its entry, its places in two persistent maps, and its name.
fn bytes_of_removal(name: &Name) -> usize {
    REMOVAL_BYTES + name.as_str().len()
}

pub(super) const REMOVAL_BYTES: usize = 350;

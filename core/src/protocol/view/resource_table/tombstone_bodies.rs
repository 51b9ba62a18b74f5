//! The bodies of removed resources, until they are old or too many. The names stay longer: they are in the journal.

use rpds::{HashTrieMapSync, QueueSync};

use super::entry::{Presence, TableEntry};
use crate::protocol::keys::Revision;
use crate::protocol::moment::Moment;
use crate::protocol::view::options::ViewOptions;
use crate::xds::{Name, Resource};

#[derive(Debug, Clone, Default)]
pub(super) struct TombstoneBodies {
    /// Oldest first.
    queue: QueueSync<TombstoneBody>,
    bytes: usize,
}

/// What is needed to drop a body. The body itself is in the entry of its name.
#[derive(Debug, Clone)]
pub(super) struct TombstoneBody {
    name: Name,
    /// When it was removed.
    revision: Revision,
    at: Moment,
    bytes: usize,
}

impl TombstoneBodies {
    pub(super) fn add(&mut self, name: &Name, removed: &Resource, revision: Revision, at: Moment) {
        let bytes = removed.body.bytes().len();
        self.bytes += bytes;
        self.queue.enqueue_mut(TombstoneBody { name: name.clone(), revision, at, bytes });
    }

    /// Takes out the oldest one, if it is old, they are too many, or its removal is forgotten.
    pub(super) fn take_surplus(
        &mut self,
        horizon: Revision,
        now: Moment,
        options: &ViewOptions,
    ) -> Option<TombstoneBody> {
        let is_surplus = |oldest: &&TombstoneBody| {
            oldest.revision <= horizon
                || self.bytes > options.tombstone_bytes
                || now - oldest.at >= options.tombstone_age
        };
        let oldest = self.queue.peek().filter(is_surplus)?.clone();
        self.queue.dequeue_mut();
        self.bytes -= oldest.bytes;
        Some(oldest)
    }

    /// Returns when the oldest one is old.
    pub(super) fn next_deadline(&self, options: &ViewOptions) -> Option<Moment> {
        self.queue.peek().map(|oldest| oldest.at + options.tombstone_age)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl TombstoneBody {
    /// Returns the entry of the body, without the body. The name may have been added or removed again since: then its entry does not have
    /// this body. If the client requested it under another name, the body stays, because the removal has to state the resource's own name.
    pub(super) fn taken_out_of(self, entries: &HashTrieMapSync<Name, TableEntry>) -> Option<(Name, TableEntry)> {
        let entry = entries.get(&self.name).filter(|entry| entry.changed == self.revision)?;
        let has_it = matches!(&entry.presence, Presence::Absent(Some(last)) if last.name == self.name);
        has_it.then(|| (self.name, TableEntry { presence: Presence::Absent(None), ..entry.clone() }))
    }
}

//! What has been applied to a view since its last snapshot, and whom that concerns.
//!
//! Owns the revisions and the published snapshot. Invariants: a revision is given once, and only to a real difference; a published snapshot
//! never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::interest::Interest;
use super::options::ViewOptions;
use super::receipts::Receipts;
use super::snapshot::Snapshot;
use super::tables::Tables;
use crate::protocol::keys::{Class, Revision, SessionId};
use crate::protocol::moment::{Moment, earliest};
use crate::xds::{Authority, Name, Type};

/// A change to one name that a session requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChanged {
    /// The type.
    pub kind: Type,
    /// The name, in canonical form.
    pub name: Name,
    /// The revision of the change.
    pub revision: Revision,
    /// Nothing is under the name any more, neither a resource nor an error.
    pub is_absent: bool,
    /// It answers a claim: the server has no such name. No table shows that.
    pub claimed: Option<Class>,
}

impl NameChanged {
    /// Returns the answer to a claim of a name that does not exist.
    pub(super) fn answer(kind: Type, class: Class, name: Name, revision: Revision) -> Self {
        Self { kind, name, revision, is_absent: true, claimed: Some(class) }
    }
}

/// A new snapshot and the sessions that it concerns. Wildcard sessions get no per-name notifications: they read the snapshot.
#[derive(Debug, Default)]
pub struct Notifications(pub BTreeMap<SessionId, Vec<NameChanged>>);

/// The snapshot that was published last, and what is to be in the next one.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// Of the last change, published or not.
    revision: Revision,
    published: Arc<Snapshot>,
    wakes: BTreeMap<SessionId, Vec<NameChanged>>,
    /// Types whose `*` table changed since the last publication, each with the receipt of the oldest change of a resource.
    changed_wildcards: BTreeMap<Type, Option<Moment>>,
    /// When the oldest unpublished change of a name was received.
    names_received: Option<Moment>,
    /// The publications with changes of names.
    receipts: Receipts,
    is_due: bool,
    /// A server has given the same resource as another one before.
    is_reattributed: bool,
    /// Authorities without a reachable server.
    down: Arc<BTreeSet<Authority>>,
}

impl Publication {
    /// Returns the revision of the last change, published or not.
    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// Gives a revision to a change.
    pub(super) fn advance(&mut self) -> Revision {
        self.revision = self.revision.next();
        self.revision
    }

    pub(super) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.published
    }

    pub(super) fn is_down(&self, authority: &Authority) -> bool {
        self.down.contains(authority)
    }

    /// Records that the next snapshot differs.
    pub(super) fn note_difference(&mut self) {
        self.is_due = true;
    }

    /// A server has given the same resource as another one before: no client needs to know.
    pub(super) fn note_reattributed(&mut self) {
        self.is_reattributed = true;
    }

    /// Lets a session read the next snapshot.
    pub(super) fn wake(&mut self, session: SessionId) {
        self.wakes.entry(session).or_default();
    }

    /// Notifies a session of names.
    pub(super) fn notify(&mut self, session: SessionId, of: impl IntoIterator<Item = NameChanged>) {
        self.wakes.entry(session).or_default().extend(of);
    }

    /// What is known of a `*` set has changed: its sessions read the next snapshot.
    pub(super) fn wake_wildcard(&mut self, kind: &Type) {
        self.changed_wildcards.entry(kind.clone()).or_default();
    }

    /// A resource of a `*` set has changed.
    pub(super) fn change_wildcard(&mut self, kind: &Type, received: Moment) {
        let oldest = self.changed_wildcards.entry(kind.clone()).or_default();
        *oldest = earliest(*oldest, Some(received));
    }

    /// A name has changed that sessions subscribe to.
    pub(super) fn change_name(
        &mut self,
        change: &NameChanged,
        received: Moment,
        sessions: impl Iterator<Item = SessionId>,
    ) {
        self.names_received = earliest(self.names_received, Some(received));
        sessions.for_each(|session| self.notify(session, [change.clone()]));
    }

    /// Records the authorities without a reachable server. Returns whether they have changed.
    pub(super) fn note_down(&mut self, down: BTreeSet<Authority>) -> bool {
        let is_new = *self.down != down;
        if is_new {
            self.down = down.into();
            self.is_due = true;
        }
        is_new
    }

    /// Whether the next publication concerns the sessions of `*` because a resource of the type has changed.
    pub(super) fn has_changed_wildcard(&self, kind: &Type) -> bool {
        self.changed_wildcards.get(kind).is_some_and(Option::is_some)
    }

    /// Publishes what has been applied since the last publication, and returns the sessions to notify.
    pub(super) fn publish(&mut self, tables: &mut Tables, interest: &Interest, options: &ViewOptions) -> Notifications {
        for (kind, received) in std::mem::take(&mut self.changed_wildcards) {
            if let Some(table) = tables.table_mut(&kind, Class::Wildcard) {
                table.sums_mut().remember_version(options);
                if let Some(received) = received {
                    table.journal_mut().note_received(self.published.revision, self.revision, received);
                }
            }
            interest.wildcard_sessions(&kind).for_each(|session| self.wake(session));
        }
        let is_reattributed = std::mem::take(&mut self.is_reattributed);
        if std::mem::take(&mut self.is_due) {
            if self.revision == self.published.revision {
                self.advance(); // no entry changed, but the completeness did: another snapshot needs another revision
            }
            if let Some(received) = self.names_received.take() {
                self.receipts.note(self.revision, received);
            }
            self.replace_snapshot(tables, options);
        } else if is_reattributed {
            self.replace_snapshot(tables, options); // what clients are sent stays the same, and so does the revision
        }
        Notifications(std::mem::take(&mut self.wakes))
    }

    fn replace_snapshot(&mut self, tables: &Tables, options: &ViewOptions) {
        debug_assert!(
            tables.all().all(|(_, table)| table.journal().newest() <= self.revision),
            "a change later than the snapshot"
        );
        let (down, receipts) = (self.down.clone(), self.receipts.clone());
        self.published = Arc::new(Snapshot::new(self.revision, down, tables, receipts, options.history_bytes));
    }
}

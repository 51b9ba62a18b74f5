//! Why something has to be sent: a name, or a reply of a type whatever its names.

use super::carried::ReplyAge;
use super::reply::ReplyContext;
use crate::protocol::moment::Moment;
use crate::protocol::view::Revision;
use crate::xds::SetVersion;

/// Why a name has to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pending {
    /// When the client requested the name. It is sent the name even if it has it already (DELTA-10).
    requested: Option<Moment>,
    /// Changes that the client was not sent.
    changed: Option<Changes>,
    /// A cluster waits for the name, which is sent at this time, changed or not.
    forced_resend: Option<Moment>,
}

/// Unsent changes of a name. A snapshot between the first and the last has some of them; a reply made from it sends those.
#[derive(Debug, Clone, Copy)]
struct Changes {
    first: Revision,
    last: Revision,
    /// The first change by a server since the client was sent the name; zero if no server has made one.
    oldest: Revision,
}

impl Pending {
    pub(super) fn requested(asked: Moment) -> Self {
        Self { requested: Some(asked), ..Self::default() }
    }

    /// Records a request, unless an earlier one waits.
    pub(super) fn request(&mut self, asked: Moment) {
        self.requested.get_or_insert(asked);
    }

    /// Replaces the request of a name by a change. With `asked`, the client counts as having requested it then, and is sent it in any case.
    pub(super) fn replace_request(&mut self, asked: Option<Moment>) {
        self.changed_at(Revision::ZERO); // the resource may be absent by now, or may always have been
        self.requested = asked;
    }

    pub(super) fn force(&mut self, due: Moment) {
        self.forced_resend.get_or_insert(due);
    }

    /// Records that the client was sent the name in another way, so that no cluster waits for it.
    pub(super) fn end_force(&mut self) {
        self.forced_resend = None;
    }

    pub(super) fn changed_at(&mut self, revision: Revision) {
        let changes = self.changed.get_or_insert(Changes { first: revision, last: revision, oldest: Revision::ZERO });
        changes.first = changes.first.min(revision);
        changes.last = changes.last.max(revision);
    }

    /// Records a change by a server. The client already has every change up to `reached`, unless the view counted its interest later.
    pub(super) fn changed_by_server(&mut self, revision: Revision, reached: Revision) {
        self.changed_at(revision);
        if let Some(changes) = self.changed.as_mut().filter(|of| revision > reached && of.oldest == Revision::ZERO) {
            changes.oldest = revision;
        }
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requested.is_some()
    }

    /// Returns when the client requested the name, if a request is pending.
    pub(super) fn asked(&self) -> Option<Moment> {
        self.requested
    }

    /// Whether a request is the only reason why the name is pending.
    pub(super) fn is_request_alone(&self) -> bool {
        self.changed.is_none() && self.forced_resend.is_none()
    }

    /// Whether a change is the only reason why the name is pending.
    pub(super) fn is_change_alone(&self) -> bool {
        self.requested.is_none() && self.forced_resend.is_none()
    }

    pub(super) fn is_forced(&self, now: Moment) -> bool {
        self.forced_resend.is_some_and(|due| due <= now)
    }

    /// Returns when the name is due by force, if that is later than now.
    pub(super) fn forced_later(&self, now: Moment) -> Option<Moment> {
        self.forced_resend.filter(|due| *due > now)
    }

    /// Whether the name is due now, if there is something to send.
    pub(super) fn is_ripe(&self, view: &ReplyContext) -> bool {
        self.is_requested() || self.changed_by(view.state.revision) || self.is_forced(view.now)
    }

    /// Returns the age of what a reply sends of the name.
    pub(super) fn carried(&self, view: &ReplyContext) -> ReplyAge {
        let oldest = self.changed.filter(|changes| self.requested.is_none() && changes.oldest != Revision::ZERO);
        let change = oldest.and_then(|changes| view.state.received(changes.oldest));
        ReplyAge { change, request: self.requested }
    }

    /// Whether `revision` may be that of an unsent change.
    pub(super) fn covers(&self, revision: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= revision && revision <= changes.last)
    }

    /// Whether a snapshot has an unsent change.
    pub(super) fn changed_by(&self, mark: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first <= mark)
    }

    /// Whether all unsent changes are later than a snapshot.
    pub(super) fn changes_after(&self, mark: Revision) -> bool {
        self.changed.is_some_and(|changes| changes.first > mark)
    }

    /// Whether the name has only changed since a snapshot, requested or not, and no cluster waits for it.
    pub(super) fn is_new_since(&self, mark: Revision) -> bool {
        self.changes_after(mark) && self.forced_resend.is_none()
    }

    /// Returns what is still pending after the snapshot of revision `mark` was sent.
    pub(super) fn after(self, mark: Revision) -> Option<Self> {
        let last = self.changed.map(|changes| changes.last).filter(|last| *last > mark)?;
        Some(Self { changed: Some(Changes { first: mark.next(), last, oldest: mark.next() }), ..Self::default() })
    }

    /// Returns what is still pending if the snapshot of revision `mark` had nothing new for the client. A cluster that waits for the name still does.
    pub(super) fn after_no_news(self, mark: Revision) -> Option<Self> {
        match (self.after(mark), self.forced_resend) {
            (still, None) => still,
            (still, forced_resend) => Some(Self { forced_resend, ..still.unwrap_or_default() }),
        }
    }

    /// Returns what is still pending after an error of the snapshot of revision `mark` was sent: the name is requested until it has a value.
    pub(super) fn after_error(self, mark: Revision, now: Moment) -> Self {
        let changed = self.after(mark).and_then(|still| still.changed);
        Self { requested: self.requested.or(Some(now)), changed, ..self }
    }

    /// Returns what is still pending after a set was sent that still has an absent resource, because the client holds it. The request is
    /// answered, and the reduced set removes the resource.
    pub(super) fn before_removal(self, mark: Revision) -> Self {
        let mut still = Self { requested: None, ..self };
        still.changed_at(mark);
        still
    }

    /// Returns what is still pending after the name was sent without its error: the change to that error, which has this revision.
    pub(super) fn before_error(self, revision: Revision) -> Self {
        let mut still = Self { requested: None, forced_resend: None, ..self };
        still.changed_at(revision);
        still
    }
}

/// Which replies of a type are due whatever its names are, and the version of the last one.
#[derive(Debug)]
pub(super) struct RepliesDue {
    /// When the latest request was received.
    asked: Moment,
    /// Since when a complete set is due because of a request (SotW, full-state types).
    complete: Option<Moment>,
    /// An empty reply is due (DELTA-36).
    empty: bool,
    /// Removals were forgotten before this client was sent them. Its set is compared even if the history shows no removals.
    missed_removals: bool,
    /// The snapshot of removals that the client was sent while there was no room for all that replaces them (I7). What else that snapshot has waits
    /// for nothing more.
    owed: Option<Revision>,
    /// The version of the last reply. In delta it only shows that there was one.
    last: Option<SetVersion>,
}

impl RepliesDue {
    pub(super) fn new() -> Self {
        let (complete, last) = (None, None);
        Self { asked: Moment::START, complete, empty: false, missed_removals: false, owed: None, last }
    }

    pub(super) fn on_request(&mut self, now: Moment) {
        self.asked = now;
    }

    /// Returns when the latest request was received.
    pub(super) fn asked(&self) -> Moment {
        self.asked
    }

    pub(super) fn set_complete(&mut self, due: bool) {
        self.complete = due.then(|| self.complete.unwrap_or(self.asked));
    }

    /// Returns since when a complete set is due because of a request.
    pub(super) fn complete(&self) -> Option<Moment> {
        self.complete
    }

    pub(super) fn add_empty(&mut self) {
        self.empty = true;
    }

    pub(super) fn is_empty_due(&self) -> bool {
        self.empty
    }

    pub(super) fn take_empty(&mut self) -> bool {
        std::mem::take(&mut self.empty)
    }

    pub(super) fn miss_removals(&mut self) {
        self.missed_removals = true;
    }

    pub(super) fn has_missed_removals(&self) -> bool {
        self.missed_removals
    }

    pub(super) fn set_owed(&mut self, owed: Option<Revision>) {
        self.owed = owed;
    }

    pub(super) fn owed(&self) -> Option<Revision> {
        self.owed
    }

    /// Whether what has changed last at this revision may replace what the client was sent the removal of.
    pub(super) fn owes(&self, changed: Revision) -> bool {
        self.owed.is_some_and(|owed| changed <= owed)
    }

    /// Returns the version of the last reply. In delta it only shows that one was sent.
    pub(super) fn last(&self) -> Option<SetVersion> {
        self.last
    }

    pub(super) fn sent(&mut self, version: SetVersion) {
        self.last = Some(version);
    }

    pub(super) fn sent_complete(&mut self, version: SetVersion) {
        (self.complete, self.last) = (None, Some(version));
    }

    pub(super) fn sent_reduced(&mut self, version: SetVersion) {
        (self.missed_removals, self.last) = (false, Some(version));
    }
}

//! The leased snapshots of a view. They are kept here and nowhere else, so their number is bounded by construction: a session
//! whose lease was revoked finds out at its next access, and starts over on the newest snapshot.

use std::sync::Arc;
use std::time::Duration;

use super::snapshot::Snapshot;
use crate::protocol::keys::Revision;
use crate::protocol::moment::{AtomicMoment, Moment};
use crate::protocol::view::options::ViewOptions;

/// A session's claim on one snapshot. Dropping it releases the claim.
#[derive(Debug)]
pub struct Lease {
    revision: Revision,
    /// Counts the users of a leased snapshot.
    ticket: Arc<Ticket>,
}

#[derive(Debug)]
struct Ticket {
    progress: LeaseProgress,
}

/// When any user of a leased snapshot last made progress. Recorded without a lock, since each piece of a reply records it.
#[derive(Debug, Clone, Default)]
pub struct LeaseProgress(Arc<AtomicMoment>);

/// Gives access to the leases of a view for one look-up.
pub trait LeaseAccess {
    /// Calls `with` on the leases.
    fn access<T>(&mut self, with: impl FnOnce(&mut Leases) -> T) -> T;
}

impl LeaseAccess for Leases {
    fn access<T>(&mut self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(self)
    }
}

/// The snapshots that sessions of one view are working through. It bounds how many are kept alive.
#[derive(Debug)]
pub struct Leases {
    pinned: Vec<Pinned>,
    /// When the next stream may end because it has missed removals.
    next_end: Moment,
    options: Arc<ViewOptions>,
}

#[derive(Debug)]
struct Pinned {
    state: Arc<Snapshot>,
    ticket: Arc<Ticket>,
}

impl Leases {
    /// Starts without leases.
    pub fn new(options: Arc<ViewOptions>) -> Self {
        Self { pinned: Vec::new(), next_end: Moment::START, options }
    }

    /// Leases the newest snapshot. If too many are leased already, joins the newest of those after `after`, which is what the
    /// session has reached. If there is none, replaces the one without progress for the longest time.
    pub fn take(&mut self, newest: &Arc<Snapshot>, after: Revision, now: Moment) -> (Lease, Arc<Snapshot>) {
        drop(self.sweep(now));
        if let Some(pinned) = self.pinned.iter().find(|pinned| Arc::ptr_eq(&pinned.state, newest)) {
            return pinned.join(now);
        }
        if self.pinned.len() >= self.options.leased_states {
            // A session knows the changes up to its newest snapshot. Others may have leased later ones.
            let known = |revision| after < revision && revision <= newest.revision;
            let ahead = self.pinned.iter().filter(|pinned| known(pinned.state.revision));
            if let Some(pinned) = ahead.max_by_key(|pinned| pinned.state.revision) {
                return pinned.join(now);
            }
            let stuck = (0..self.pinned.len()).min_by_key(|at| self.pinned[*at].progressed());
            stuck.map(|at| self.pinned.swap_remove(at));
        }
        let ticket = Arc::new(Ticket { progress: LeaseProgress::default() });
        let pinned = Pinned { state: newest.clone(), ticket };
        let joined = pinned.join(now);
        self.pinned.push(pinned);
        joined
    }

    /// Returns the snapshot of a lease, unless it was revoked. The access counts as progress.
    pub fn state(&mut self, lease: &Lease, now: Moment) -> Option<Arc<Snapshot>> {
        self.expire(now);
        let pinned = self.pinned.iter().find(|pinned| Arc::ptr_eq(&pinned.ticket, &lease.ticket))?;
        lease.progress().note(now);
        Some(pinned.state.clone())
    }

    /// Releases snapshots whose sessions make no progress, and returns those that no session uses: to drop one may take long, and leases may be locked.
    pub fn sweep(&mut self, now: Moment) -> Vec<Arc<Snapshot>> {
        let is_unused = |pinned: &mut Pinned| Arc::strong_count(&pinned.ticket) == 1;
        let unused = self.pinned.extract_if(.., is_unused).map(|pinned| pinned.state).collect();
        self.expire(now);
        unused
    }

    /// Returns when a session that has missed removals may end. Such sessions end one after another, because each client reconnects and
    /// states what it holds.
    pub(crate) fn reserve_end(&mut self, now: Moment) -> Moment {
        let at = self.next_end.max(now);
        self.next_end = at + BETWEEN_ENDS;
        at
    }

    /// Returns how many snapshots are leased.
    pub fn count(&self) -> usize {
        self.pinned.len()
    }

    fn expire(&mut self, now: Moment) {
        let patience = self.options.lease_patience;
        self.pinned.retain(|pinned| now - pinned.progressed() < patience);
    }
}

impl Pinned {
    fn progressed(&self) -> Moment {
        self.ticket.progress.0.latest()
    }

    fn join(&self, now: Moment) -> (Lease, Arc<Snapshot>) {
        self.ticket.progress.note(now);
        (Lease { revision: self.state.revision, ticket: self.ticket.clone() }, self.state.clone())
    }
}

impl Lease {
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub fn progress(&self) -> &LeaseProgress {
        &self.ticket.progress
    }
}

impl LeaseProgress {
    /// Records that a session that uses the snapshot has made progress.
    pub fn note(&self, now: Moment) {
        self.0.note(now);
    }
}

/// Fifty in a second.
const BETWEEN_ENDS: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::view::Tables;

    fn state(mark: u64) -> Arc<Snapshot> {
        let mark = (0..mark).fold(Revision::ZERO, |revision, _| revision.next());
        Arc::new(Snapshot::new(mark, Arc::default(), &Tables::default(), Default::default(), 0))
    }

    fn four_held(leases: &mut Leases) -> Vec<Lease> {
        (1..=4).map(|mark| leases.take(&state(mark), Revision::ZERO, Moment::START).0).collect()
    }

    #[test]
    fn a_fifth_burst_joins_the_newest_of_four() {
        let mut leases = Leases::new(Arc::default());
        let held = four_held(&mut leases);
        let (fifth, joined) = leases.take(&state(5), held[1].revision(), Moment::START);
        assert_eq!((leases.count(), joined.revision), (4, held[3].revision()));
        assert_eq!(fifth.revision(), held[3].revision());
    }

    #[test]
    fn a_session_past_all_four_takes_the_place_of_the_one_that_is_stuck() {
        let mut leases = Leases::new(Arc::default());
        let held = four_held(&mut leases);
        let later = Moment::START + Duration::from_millis(500);
        for lease in [&held[0], &held[2], &held[3]] {
            leases.state(lease, later);
        }
        let (_, joined) = leases.take(&state(5), held[3].revision(), later);
        assert_eq!((leases.count(), joined.revision), (4, state(5).revision));
        assert!(leases.state(&held[1], later).is_none() && leases.state(&held[0], later).is_some());
    }

    #[test]
    fn a_lease_without_progress_is_revoked_and_a_dropped_one_given_back() {
        let mut leases = Leases::new(Arc::default());
        let mut held = four_held(&mut leases);
        drop(held.pop());
        leases.sweep(Moment::START);
        assert_eq!(leases.count(), 3);
        let late = Moment::START + Duration::from_secs(1);
        assert!(leases.state(&held[0], late).is_none());
        assert_eq!(leases.count(), 0);
    }
}

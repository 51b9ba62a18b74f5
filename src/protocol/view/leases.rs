//! Which states sessions are working through. The states are held here and nowhere else, so their number is bounded by
//! construction: a session whose lease was taken away finds out when it next asks, and starts over on the newest.

use std::sync::Arc;

use super::revision::Revision;
use super::snapshot::Snapshot;
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;

/// A session's hold on one state. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    revision: Revision,
    /// Counts the users of a pinned state, and says no more than that.
    ticket: Arc<()>,
}

/// The snapshots that sessions of one view are working through. It bounds how many are kept alive.
#[derive(Debug)]
pub struct Leases {
    pinned: Vec<Pinned>,
    limits: Arc<Limits>,
}

#[derive(Debug)]
struct Pinned {
    state: Arc<Snapshot>,
    ticket: Arc<()>,
    /// When any of its users last got on.
    progressed: Moment,
}

impl Leases {
    /// Starts without leases.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self { pinned: Vec::new(), limits }
    }

    /// A lease on the newest state; where too many are held already, on the newest of these that is past `after`, which is
    /// as far as the session has come; and where there is none, in the place of the one that got on least lately.
    pub(crate) fn take(&mut self, newest: &Arc<Snapshot>, after: Revision, now: Moment) -> (Lease, Arc<Snapshot>) {
        self.sweep(now);
        if let Some(pinned) = self.pinned.iter_mut().find(|pinned| Arc::ptr_eq(&pinned.state, newest)) {
            return pinned.join(now);
        }
        if self.pinned.len() >= self.limits.leased_states && !self.limits.faults.has(Fault::LeaseEveryState) {
            let ahead = self.pinned.iter_mut().filter(|pinned| pinned.state.revision > after);
            if let Some(pinned) = ahead.max_by_key(|pinned| pinned.state.revision) {
                return pinned.join(now);
            }
            let stuck = (0..self.pinned.len()).min_by_key(|at| self.pinned[*at].progressed);
            stuck.map(|at| self.pinned.swap_remove(at));
        }
        let mut pinned = Pinned { state: newest.clone(), ticket: Arc::new(()), progressed: now };
        let joined = pinned.join(now);
        self.pinned.push(pinned);
        joined
    }

    /// The state of a lease that still stands. Asking counts as progress.
    pub(crate) fn state(&mut self, lease: &Lease, now: Moment) -> Option<Arc<Snapshot>> {
        self.expire(now);
        let pinned = self.pinned.iter_mut().find(|pinned| Arc::ptr_eq(&pinned.ticket, &lease.ticket))?;
        pinned.progressed = now;
        Some(pinned.state.clone())
    }

    /// Releases snapshots that no session uses, or whose sessions make no progress.
    pub fn sweep(&mut self, now: Moment) {
        self.pinned.retain(|pinned| Arc::strong_count(&pinned.ticket) > 1);
        self.expire(now);
    }

    /// Returns how many snapshots are leased.
    pub fn count(&self) -> usize {
        self.pinned.len()
    }

    fn expire(&mut self, now: Moment) {
        let patience = self.limits.lease_patience;
        self.pinned.retain(|pinned| now - pinned.progressed < patience);
    }
}

impl Pinned {
    fn join(&mut self, now: Moment) -> (Lease, Arc<Snapshot>) {
        self.progressed = now;
        (Lease { revision: self.state.revision, ticket: self.ticket.clone() }, self.state.clone())
    }
}

impl Lease {
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn state(mark: u64) -> Arc<Snapshot> {
        let mark = (0..mark).fold(Revision::ZERO, |revision, _| revision.next());
        Arc::new(Snapshot::new(mark, Arc::default(), BTreeMap::new(), Revision::ZERO))
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

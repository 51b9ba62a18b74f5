//! What the views have found of the servers: observations are shared, decisions are not (FB-20). A view that has not tried a server yet
//! uses the observations of those that have and show the same credentials, so that it does not wait for each server that is known to be
//! unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::protocol::sources::Reachability;
use weir_core::protocol::upstream::{Delivery, DeliveryHabits};
use weir_core::xds::Type;

#[derive(Debug)]
pub(super) struct SharedReachability {
    /// By the servers' places in the plan.
    servers: Vec<SharedFindings>,
    /// Each view shows the servers its own headers. What a server gives to one view it may refuse to others.
    shows_headers: bool,
}

/// What the views have found of one server.
#[derive(Debug, Default)]
struct SharedFindings {
    habits: Mutex<DeliveryHabits>,
    /// By the credentials that the server is shown. What a server gives to one tenant it may refuse to another, and a tenant whose own certificate or
    /// token is missing cannot reach it.
    counts: Mutex<BTreeMap<usize, Arc<Counts>>>,
}

/// How many views found which result with the same credentials. The counts are not synchronised: an observation may come a moment late.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    unreachable: AtomicUsize,
    /// Types that the server has answered in any of these views.
    answered_types: Mutex<Arc<BTreeSet<Type>>>,
}

/// The findings of one view, removed with the view.
#[derive(Debug)]
pub(super) struct ViewReachability {
    health: Arc<SharedReachability>,
    found: Vec<Option<Reachability>>,
    /// The counts of each server, for the credentials that it is shown.
    counts: Vec<Arc<Counts>>,
}

impl SharedReachability {
    pub(crate) fn of(servers: usize, shows_headers: bool) -> Self {
        Self { servers: (0..servers).map(|_| SharedFindings::default()).collect(), shows_headers }
    }

    /// Returns the types whose sets the server sends in several responses.
    pub(crate) fn types_in_pieces(&self, server: usize) -> Arc<BTreeSet<Type>> {
        self.habits(server).types_in_pieces().clone()
    }

    pub(crate) fn record_deliveries(&self, seen: Vec<(usize, Type, Delivery)>) {
        seen.into_iter().for_each(|(server, kind, seen)| self.habits(server).note(&kind, seen));
    }

    fn habits(&self, server: usize) -> MutexGuard<'_, DeliveryHabits> {
        self.servers[server].habits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedFindings {
    fn counts_for(&self, credentials: usize) -> Arc<Counts> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.entry(credentials).or_default().clone()
    }
}

impl Counts {
    /// Returns the counter of a finding. A rejection concerns one view's node and is not shared with the others.
    fn counter(&self, finding: Option<Reachability>) -> Option<&AtomicUsize> {
        match finding? {
            Reachability::Responded => Some(&self.answered),
            Reachability::Unreachable => Some(&self.unreachable),
            Reachability::Refused => None,
        }
    }

    fn record_answered(&self, seen: Vec<Type>) {
        let mut types = self.answered_types();
        let room = ANSWERED_TYPES.saturating_sub(types.len());
        let news: Vec<_> = seen.into_iter().filter(|kind| !types.contains(kind)).take(room).collect();
        if !news.is_empty() {
            Arc::make_mut(&mut types).extend(news);
        }
    }

    fn answered_types(&self) -> MutexGuard<'_, Arc<BTreeSet<Type>>> {
        self.answered_types.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewReachability {
    /// Returns the findings of a view that has tried no server. The servers are shown these credentials.
    pub(crate) fn none(health: Arc<SharedReachability>, credentials: Vec<usize>) -> Self {
        let found = vec![None; health.servers.len()];
        let servers = health.servers.iter().zip(credentials.into_iter().chain(std::iter::repeat(0)));
        let counts = servers.map(|(server, credentials)| server.counts_for(credentials)).collect();
        Self { health, found, counts }
    }

    pub(crate) fn health(&self) -> &SharedReachability {
        &self.health
    }

    /// Whether views with the same credentials failed to reach the server, and none of them has had a response from it.
    pub(crate) fn is_unreachable(&self, server: usize) -> bool {
        self.counts.get(server).is_some_and(|counts| {
            counts.answered.load(Ordering::Relaxed) == 0 && counts.unreachable.load(Ordering::Relaxed) > 0
        })
    }

    /// Returns the types that the server has answered in any view with the same credentials. None are known if each view shows its own headers.
    pub(crate) fn answered(&self, server: usize) -> Arc<BTreeSet<Type>> {
        self.counts[server].answered_types().clone()
    }

    pub(crate) fn record_answered(&self, server: usize, seen: Vec<Type>) {
        if !self.health.shows_headers {
            self.counts[server].record_answered(seen);
        }
    }

    pub(crate) fn replace(&mut self, findings: impl Iterator<Item = Option<Reachability>>) {
        for ((counts, known), found) in self.counts.iter().zip(&mut self.found).zip(findings) {
            if *known != found {
                if let Some(counter) = counts.counter(found) {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(counter) = counts.counter(std::mem::replace(known, found)) {
                    counter.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Drop for ViewReachability {
    fn drop(&mut self) {
        self.replace(std::iter::repeat_n(None, self.found.len()));
    }
}

/// More types than a control plane has. Some control planes answer any type, and clients can invent types; further types are tried in each view.
const ANSWERED_TYPES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn none(health: &Arc<SharedReachability>) -> ViewReachability {
        ViewReachability::none(health.clone(), Vec::new())
    }

    #[test]
    fn fb_20_a_server_is_unreachable_if_some_say_so_and_nobody_knows_better() {
        let health = Arc::new(SharedReachability::of(2, false));
        let (mut one, mut two) = (none(&health), none(&health));
        let unreachable = || [0, 1].map(|server| none(&health).is_unreachable(server));
        one.replace([Some(Reachability::Unreachable), None].into_iter());
        assert_eq!(unreachable(), [true, false]);
        two.replace([Some(Reachability::Responded), Some(Reachability::Unreachable)].into_iter());
        assert_eq!(unreachable(), [false, true]);
        drop(two);
        assert_eq!(unreachable(), [true, false], "what a view has found goes with it");
        one.replace([Some(Reachability::Responded), None].into_iter());
        assert_eq!(unreachable(), [false, false]);
        one.replace([Some(Reachability::Refused), None].into_iter());
        assert_eq!(unreachable(), [false, false], "it is there, and does not serve this view");
    }

    #[test]
    fn fb_20_i8_a_server_that_views_with_the_same_credentials_cannot_reach_is_not_unreachable_to_others() {
        let health = Arc::new(SharedReachability::of(2, false));
        let of = |credentials: [usize; 2]| ViewReachability::none(health.clone(), credentials.to_vec());
        let unreachable = |credentials| [0, 1].map(|server| of(credentials).is_unreachable(server));
        let (mut one, mut other) = (of([1, 0]), of([2, 0]));
        one.replace([Some(Reachability::Unreachable); 2].into_iter());
        assert_eq!(unreachable([1, 0]), [true, true]);
        assert_eq!(unreachable([2, 0]), [false, true], "the second server is shown the same for both");
        other.replace([Some(Reachability::Responded); 2].into_iter());
        assert_eq!(unreachable([1, 0]), [true, false], "a response to other credentials says nothing of these");
    }

    #[test]
    fn what_one_view_has_seen_of_how_a_server_sends_its_sets_all_views_know_of_that_server() {
        let health = Arc::new(SharedReachability::of(2, false));
        let (one, two) = (none(&health), none(&health));
        let kind = weir_core::xds::TypeTable::new().clusters();
        one.health().record_deliveries(vec![(1, kind.clone(), Delivery::Piece)]);
        drop(one);
        let pieces = [0, 1].map(|server| two.health().types_in_pieces(server).contains(&kind));
        assert_eq!(pieces, [false, true]);
    }

    #[test]
    fn what_a_server_answers_in_one_view_it_answers_in_all_unless_they_show_it_headers_of_their_own() {
        let kind = weir_core::xds::TypeTable::new().clusters();
        for shows_headers in [false, true] {
            let health = Arc::new(SharedReachability::of(1, shows_headers));
            none(&health).record_answered(0, vec![kind.clone()]);
            assert_eq!(none(&health).answered(0).contains(&kind), !shows_headers);
        }
    }

    #[test]
    fn what_a_server_answers_to_one_tenant_s_credentials_says_nothing_of_another_s_at_that_server() {
        let kind = weir_core::xds::TypeTable::new().clusters();
        let health = Arc::new(SharedReachability::of(2, false));
        let of = |credentials: [usize; 2]| ViewReachability::none(health.clone(), credentials.to_vec());
        for server in [0, 1] {
            of([1, 0]).record_answered(server, vec![kind.clone()]);
        }
        let knows = |credentials| [0, 1].map(|server| of(credentials).answered(server).contains(&kind));
        assert_eq!(knows([1, 0]), [true, true]);
        assert_eq!(knows([2, 0]), [false, true], "the second server is shown the same for both");
        assert_eq!(knows([0, 0]), [false, true]);
        assert!(Arc::ptr_eq(&of([0, 0]).answered(0), &of([0, 0]).answered(0)), "nothing is no news");
    }
}

//! What the views have found of the servers: observations are shared, decisions are not (FB-20). A view that has not tried a server yet
//! uses the observations of those that have, so that it does not wait for each server that is known to be unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::protocol::sources::Reachability;
use weir_core::protocol::upstream::{Delivery, DeliveryHabits};
use weir_core::xds::Type;

/// By the servers' places in the plan.
#[derive(Debug)]
pub(super) struct SharedReachability {
    servers: Vec<Counts>,
    /// Each view shows the servers its own headers. What a server gives to one view it may refuse to others.
    shows_headers: bool,
}

/// How many views found which result. The counts are not synchronised: an observation may come a moment late.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    unreachable: AtomicUsize,
    habits: Mutex<DeliveryHabits>,
    /// Types that the server has answered in any view, by the credentials that it was shown.
    answered_types: Mutex<BTreeMap<usize, Arc<BTreeSet<Type>>>>,
}

/// The findings of one view, removed with the view.
#[derive(Debug)]
pub(super) struct ViewReachability {
    health: Arc<SharedReachability>,
    found: Vec<Option<Reachability>>,
    /// Which credentials each server is shown. What a server gives to one tenant it may refuse to another.
    credentials: Vec<usize>,
}

impl SharedReachability {
    pub(crate) fn of(servers: usize, shows_headers: bool) -> Self {
        Self { servers: (0..servers).map(|_| Counts::default()).collect(), shows_headers }
    }

    /// Whether views failed to reach the server and no view has had a response from it.
    pub(crate) fn is_unreachable(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|counts| {
            counts.answered.load(Ordering::Relaxed) == 0 && counts.unreachable.load(Ordering::Relaxed) > 0
        })
    }

    /// Returns the types whose sets the server sends in several responses.
    pub(crate) fn types_in_pieces(&self, server: usize) -> Arc<BTreeSet<Type>> {
        self.habits(server).types_in_pieces().clone()
    }

    pub(crate) fn record_deliveries(&self, seen: Vec<(usize, Type, Delivery)>) {
        seen.into_iter().for_each(|(server, kind, seen)| self.habits(server).note(&kind, seen));
    }

    fn answered(&self, server: usize, credentials: usize) -> Arc<BTreeSet<Type>> {
        self.answered_by(server).entry(credentials).or_default().clone()
    }

    fn record_answered(&self, server: usize, credentials: usize, seen: Vec<Type>) {
        if self.shows_headers {
            return;
        }
        let mut answered = self.answered_by(server);
        let types = answered.entry(credentials).or_default();
        let news =
            seen.into_iter().filter(|kind| !types.contains(kind)).take(ANSWERED_TYPES.saturating_sub(types.len()));
        let news: Vec<_> = news.collect();
        if !news.is_empty() {
            Arc::make_mut(types).extend(news);
        }
    }

    fn answered_by(&self, server: usize) -> MutexGuard<'_, BTreeMap<usize, Arc<BTreeSet<Type>>>> {
        self.servers[server].answered_types.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn habits(&self, server: usize) -> MutexGuard<'_, DeliveryHabits> {
        self.servers[server].habits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counter of a finding. A rejection concerns one view's node and is not shared with the others.
    fn counter(&self, server: usize, finding: Option<Reachability>) -> Option<&AtomicUsize> {
        match finding? {
            Reachability::Responded => Some(&self.servers[server].answered),
            Reachability::Unreachable => Some(&self.servers[server].unreachable),
            Reachability::Refused => None,
        }
    }
}

impl ViewReachability {
    /// Returns the findings of a view that has tried no server. The servers are shown these credentials.
    pub(crate) fn none(health: Arc<SharedReachability>, credentials: Vec<usize>) -> Self {
        let found = vec![None; health.servers.len()];
        Self { health, found, credentials }
    }

    pub(crate) fn health(&self) -> &SharedReachability {
        &self.health
    }

    /// Returns the types that the server has answered in any view with the same credentials. None are known if each view shows its own headers.
    pub(crate) fn answered(&self, server: usize) -> Arc<BTreeSet<Type>> {
        self.health.answered(server, self.credentials_at(server))
    }

    pub(crate) fn record_answered(&self, server: usize, seen: Vec<Type>) {
        self.health.record_answered(server, self.credentials_at(server), seen);
    }

    fn credentials_at(&self, server: usize) -> usize {
        self.credentials.get(server).copied().unwrap_or_default()
    }

    pub(crate) fn replace(&mut self, findings: impl Iterator<Item = Option<Reachability>>) {
        for (server, (known, found)) in self.found.iter_mut().zip(findings).enumerate() {
            if *known != found {
                if let Some(counter) = self.health.counter(server, found) {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(counter) = self.health.counter(server, std::mem::replace(known, found)) {
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
        one.replace([Some(Reachability::Unreachable), None].into_iter());
        assert!(health.is_unreachable(0) && !health.is_unreachable(1));
        two.replace([Some(Reachability::Responded), Some(Reachability::Unreachable)].into_iter());
        assert!(!health.is_unreachable(0) && health.is_unreachable(1));
        drop(two);
        assert!(health.is_unreachable(0) && !health.is_unreachable(1), "what a view has found goes with it");
        one.replace([Some(Reachability::Responded), None].into_iter());
        assert!(!health.is_unreachable(0));
        one.replace([Some(Reachability::Refused), None].into_iter());
        assert!(!health.is_unreachable(0), "it is there, and does not serve this view");
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

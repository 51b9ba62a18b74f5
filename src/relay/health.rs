//! What the views have found of the servers: facts are shared, decisions are not (FB-20). A view that has not tried a server yet
//! takes the word of those that have, so that it does not wait for each server that is known to be out of reach (row 22).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::sources::Finding;
use crate::protocol::upstream::{Habits, SetSeen};
use crate::xds::Type;

/// By the servers' places in the plan.
#[derive(Debug)]
pub(super) struct Health {
    servers: Vec<Counts>,
}

/// How many views have found what. Nobody waits for these to agree: a finding that comes a moment late is a late finding.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    unreachable: AtomicUsize,
    habits: Mutex<Habits>,
}

/// What one view has found, which goes when the view goes.
#[derive(Debug)]
pub(super) struct Findings {
    health: Arc<Health>,
    found: Vec<Option<Finding>>,
}

impl Health {
    pub fn of(servers: usize) -> Self {
        Self { servers: (0..servers).map(|_| Counts::default()).collect() }
    }

    /// Some have tried the server in vain, and nobody has an answer of it.
    pub fn is_unreachable(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|counts| {
            counts.answered.load(Ordering::Relaxed) == 0 && counts.unreachable.load(Ordering::Relaxed) > 0
        })
    }

    /// The types of which the server sends sets in pieces.
    pub fn cut(&self, server: usize) -> Arc<BTreeSet<Type>> {
        self.habits(server).cut().clone()
    }

    pub fn note_seen(&self, seen: Vec<(usize, Type, SetSeen)>) {
        seen.into_iter().for_each(|(server, kind, seen)| self.habits(server).note(&kind, seen));
    }

    fn habits(&self, server: usize) -> MutexGuard<'_, Habits> {
        self.servers[server].habits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a server says to one view's node is nothing to the others.
    fn counter(&self, server: usize, finding: Option<Finding>) -> Option<&AtomicUsize> {
        match finding? {
            Finding::Answered => Some(&self.servers[server].answered),
            Finding::Unreachable => Some(&self.servers[server].unreachable),
            Finding::Refused => None,
        }
    }
}

impl Findings {
    pub fn none(health: Arc<Health>) -> Self {
        let found = vec![None; health.servers.len()];
        Self { health, found }
    }

    pub fn health(&self) -> &Health {
        &self.health
    }

    pub fn replace(&mut self, findings: impl Iterator<Item = Option<Finding>>) {
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

impl Drop for Findings {
    fn drop(&mut self) {
        self.replace(std::iter::repeat_n(None, self.found.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fb_20_a_server_is_out_of_reach_if_some_say_so_and_nobody_knows_better() {
        let health = Arc::new(Health::of(2));
        let (mut one, mut two) = (Findings::none(health.clone()), Findings::none(health.clone()));
        one.replace([Some(Finding::Unreachable), None].into_iter());
        assert!(health.is_unreachable(0) && !health.is_unreachable(1));
        two.replace([Some(Finding::Answered), Some(Finding::Unreachable)].into_iter());
        assert!(!health.is_unreachable(0) && health.is_unreachable(1));
        drop(two);
        assert!(health.is_unreachable(0) && !health.is_unreachable(1), "what a view has found goes with it");
        one.replace([Some(Finding::Answered), None].into_iter());
        assert!(!health.is_unreachable(0));
        one.replace([Some(Finding::Refused), None].into_iter());
        assert!(!health.is_unreachable(0), "it is there, and does not serve this view");
    }
}

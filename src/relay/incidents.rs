//! Errors in views, counted over the life of the process: the counts stay when a view is removed. A wait beyond its bound is such an error, and is
//! counted once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_core::protocol::wait::WaitKind;
use weir_core::xds::{Type, TypeTable};

use super::audit::AuditBoard;
use super::brakes::BrakeWatch;
use super::report::{Totals, WaitKey};
use super::troubles::TroubleWatch;
use crate::problems::ProblemBoard;

/// One for the process, shared by the views and the hub.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// By server and type. Unknown types count as one, since peers can invent them.
    rejected: Mutex<BTreeMap<(String, String), u64>>,
    panics: AtomicU64,
    /// By server.
    upstream: Mutex<BTreeMap<String, Totals>>,
    pub(crate) brakes: Arc<BrakeWatch>,
    pub(crate) troubles: Arc<TroubleWatch>,
    /// The problems of the process at present.
    pub(crate) problems: ProblemBoard,
    pub(crate) waits: WaitWatch,
    pub(crate) audits: AuditBoard,
}

impl Incidents {
    /// Starts with the types that have brakes.
    pub(crate) fn with_brakes<'a>(types: impl Iterator<Item = &'a str>) -> Self {
        Self { brakes: Arc::new(BrakeWatch::new(types)), ..Self::default() }
    }

    pub(crate) fn rejected(&self, server: &str, kind: &Type, table: &TypeTable, count: usize) {
        let kind = if table.knows(kind.name()) { kind.name() } else { "other" };
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected.entry((server.to_owned(), kind.to_owned())).or_default() += count as u64;
    }

    /// Counts what happened on upstream streams to a server.
    pub(crate) fn upstream(&self, server: String, news: Totals) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner).entry(server).or_default() += news;
    }

    /// Returns what happened on upstream streams, by server.
    pub(crate) fn upstream_totals(&self) -> BTreeMap<String, Totals> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn view_panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many view tasks panicked.
    pub(crate) fn view_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Returns how many resources of servers were rejected, each version of a name once, by server and type.
    pub(crate) fn rejected_resources(&self) -> BTreeMap<(String, String), u64> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One for the process, shared by the views and the hub.
#[derive(Debug, Default)]
pub(crate) struct WaitWatch {
    state: Mutex<KnownWaits>,
}

/// Which views have answered in one look at the waits.
#[derive(Debug)]
pub(crate) enum AnsweringViews {
    All,
    Some(BTreeSet<String>),
}

#[derive(Debug, Default)]
struct KnownWaits {
    /// The waits that were beyond their bounds at the last look.
    known: BTreeSet<WaitKey>,
    counts: [u64; WaitKind::ALL.len()],
}

impl WaitWatch {
    /// Counts the waits that have passed their bounds since the last look, and logs them, in one line for each kind. If a view has not answered, its
    /// waits keep their state. The waits of its sessions are read without the view.
    pub(crate) fn note(&self, beyond: &BTreeSet<WaitKey>, answered: &AnsweringViews) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<_> = beyond.difference(&state.known).cloned().collect();
        for key in &new {
            state.counts[key.kind as usize] += 1;
        }
        match answered {
            AnsweringViews::All if new.is_empty() && beyond.len() == state.known.len() => {}
            AnsweringViews::All => state.known.clone_from(beyond),
            AnsweringViews::Some(views) => {
                state.known.retain(|key| key.session.is_none() && !views.contains(&key.view));
                state.known.extend(beyond.iter().cloned());
            }
        }
        drop(state);
        for of_kind in new.chunk_by(|one, other| one.kind == other.kind) {
            let WaitKey { kind, view, session, subject } = &of_kind[0];
            let type_url = subject.kind.as_ref().map(|kind| kind.name());
            tracing::warn!(wait = kind.name(), count = of_kind.len(), view, session, type_url, "wait beyond its bound");
        }
    }

    /// Returns the waits that were beyond their bounds at the last look.
    pub(crate) fn beyond(&self) -> Vec<WaitKey> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).known.iter().cloned().collect()
    }

    /// Returns how many waits were beyond their bounds, by kind.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (WaitKind, u64)> {
        let counts = self.state.lock().unwrap_or_else(PoisonError::into_inner).counts;
        WaitKind::ALL.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::protocol::wait::WaitSubject;

    use super::*;

    fn key(session: u64, kind: WaitKind) -> WaitKey {
        WaitKey { kind, view: "one".into(), session: Some(session), subject: WaitSubject::default() }
    }

    #[test]
    fn a_wait_beyond_its_bound_is_counted_once_however_often_it_is_read_and_again_if_it_comes_back() {
        let watch = WaitWatch::default();
        let count_of = |beyond: &[WaitKey], answered| {
            watch.note(&beyond.iter().cloned().collect(), &answered);
            let counts: Vec<_> = watch.counts().filter(|(_, count)| *count > 0).collect();
            counts
        };
        let count = |beyond: &[WaitKey]| count_of(beyond, AnsweringViews::All);
        assert_eq!(count(&[]), []);
        let (one, two, other) = (key(1, WaitKind::Ack), key(2, WaitKind::Ack), key(1, WaitKind::RoutingHold));
        assert_eq!(count(std::slice::from_ref(&one)), [(WaitKind::Ack, 1)]);
        assert_eq!(count(std::slice::from_ref(&one)), [(WaitKind::Ack, 1)], "it is the same one");
        assert_eq!(count(&[one.clone(), two.clone()]), [(WaitKind::Ack, 2)]);
        assert_eq!(count(&[two.clone(), other.clone()]), [(WaitKind::Ack, 2), (WaitKind::RoutingHold, 1)]);
        assert_eq!(count(&[one, two, other]), [(WaitKind::Ack, 3), (WaitKind::RoutingHold, 1)], "another wait");
    }

    #[test]
    fn only_waits_of_views_that_have_not_answered_are_there_unseen() {
        let watch = WaitWatch::default();
        let of = |view: &str, session| WaitKey { view: view.into(), session, ..key(1, WaitKind::Name) };
        let all = [of("one", None), of("one", Some(1)), of("two", None)];
        watch.note(&all.iter().cloned().collect(), &AnsweringViews::All);
        watch.note(&BTreeSet::new(), &AnsweringViews::Some(BTreeSet::from(["two".to_owned()])));
        assert_eq!(watch.beyond(), [of("one", None)]);
        watch.note(&BTreeSet::from([of("one", None)]), &AnsweringViews::All);
        assert_eq!(watch.counts().map(|(_, count)| count).sum::<u64>(), 3, "it was there all the time");
        watch.note(&BTreeSet::new(), &AnsweringViews::All);
        assert!(watch.beyond().is_empty());
    }
}

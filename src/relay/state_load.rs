//! The state of an earlier process while it is read from disk: what waits for it, and for how long.
//!
//! A view that begins without this state would look to its clients as if nothing were known. So streams wait before they enter their view, and the
//! relay is not ready. A disk may hang: the load is late when one access takes longer than [`ACCESS`], or all of them longer than [`IN_ALL`]. From
//! then on the relay serves without it. What is loaded later goes only to views that have never begun: in other views it could bring back what a
//! server has removed since.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_core::xds::SharingKey;

/// One for the process. The thread that reads the file reports to it.
#[derive(Debug)]
pub(crate) struct StateLoad {
    phase: watch::Sender<Phase>,
    began: Instant,
    /// Since when the disk has not answered: milliseconds since the beginning, plus one. 0 while no access is under way.
    asked: AtomicU64,
    /// Guards itself alone.
    begun: Mutex<BegunViews>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is waited for.
    Over,
    Running {
        since: Instant,
    },
    /// The load still runs, and nothing waits for it any more.
    Late,
}

/// Why a load is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LateLoad {
    #[error("the disk has not answered for {} s", ACCESS.as_secs())]
    Hangs,
    #[error("it takes longer than {} s", IN_ALL.as_secs())]
    Slow,
}

/// The views that have begun without what is on disk.
#[derive(Debug, Default)]
enum BegunViews {
    /// The disk has nothing that these views lack, so none is noted.
    #[default]
    Unnoted,
    /// The keys of these views, each with whether it is of the hub.
    Some(HashSet<(bool, SharingKey)>),
    /// Too many views have begun to note each.
    Any,
}

impl Default for StateLoad {
    fn default() -> Self {
        let (phase, began) = (watch::Sender::new(Phase::Over), Instant::now());
        Self { phase, began, asked: AtomicU64::new(0), begun: Mutex::default() }
    }
}

impl StateLoad {
    /// Begins to keep streams waiting.
    pub(crate) fn begin(&self) {
        *self.begun() = BegunViews::Some(HashSet::new());
        self.phase.send_replace(Phase::Running { since: Instant::now() });
    }

    /// Notes that reading the file has ended, with any result. Returns whether that was late.
    pub(crate) fn end(&self) -> bool {
        self.phase.send_replace(Phase::Over) == Phase::Late
    }

    /// Notes that everything on disk is in the views that had not begun.
    pub(crate) fn is_taken(&self) {
        *self.begun() = BegunViews::Unnoted;
    }

    /// Accesses the disk. The load is not late as long as the disk answers.
    pub(crate) fn ask<T>(&self, disk: impl FnOnce() -> T) -> T {
        self.asked.store(self.elapsed() + 1, Ordering::Relaxed);
        let answer = disk();
        self.asked.store(0, Ordering::Relaxed);
        answer
    }

    /// Whether streams wait for it.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Running { .. })
    }

    /// Whether the file is not read to its end yet, even if nothing waits for it any more.
    pub(crate) fn is_pending(&self) -> bool {
        *self.phase.borrow() != Phase::Over
    }

    /// Returns once nothing has to wait for the load.
    pub(crate) async fn awaited(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| !matches!(phase, Phase::Running { .. })).await; // `self` keeps the sender alive
    }

    /// Waits for a change of [`Self::is_awaited`].
    pub(super) async fn changed_from(&self, awaited: bool) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Running { .. }) != awaited).await;
    }

    /// Stops the waiting when the load is late, and returns why. `None` if the load ends before.
    pub(crate) async fn let_go_when_late(&self) -> Option<LateLoad> {
        loop {
            let Phase::Running { since } = *self.phase.borrow() else { return None };
            if let Some(late) = self.lateness(since, Instant::now()) {
                let is_new = self.phase.send_if_modified(|phase| {
                    let is_running = *phase != Phase::Over;
                    if is_running {
                        *phase = Phase::Late;
                    }
                    is_running
                });
                return is_new.then_some(late);
            }
            let _ = tokio::time::timeout(LOOKS, self.awaited()).await; // it is looked at again, whatever has happened
        }
    }

    fn lateness(&self, since: Instant, now: Instant) -> Option<LateLoad> {
        let asked = self.asked.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_millis);
        let hangs = asked.is_some_and(|asked| now.saturating_duration_since(self.began + asked) >= ACCESS);
        match hangs {
            true => Some(LateLoad::Hangs),
            false => (now.saturating_duration_since(since) >= IN_ALL).then_some(LateLoad::Slow),
        }
    }

    /// Notes that a view begins with what is loaded by now.
    pub(super) fn note_view(&self, is_hub: bool, key: &SharingKey) {
        let mut begun = self.begun();
        if let BegunViews::Some(keys) = &mut *begun {
            keys.insert((is_hub, key.clone()));
            if keys.len() > MAX_NOTED {
                *begun = BegunViews::Any;
            }
        }
    }

    /// Whether a view has begun without what is on disk, in this configuration or in one before it.
    pub(super) fn has_begun(&self, is_hub: bool, key: &SharingKey) -> bool {
        match &*self.begun() {
            BegunViews::Unnoted => false,
            BegunViews::Some(keys) => keys.contains(&(is_hub, key.clone())),
            BegunViews::Any => true,
        }
    }

    fn begun(&self) -> MutexGuard<'_, BegunViews> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// How long the disk may take for one answer.
const ACCESS: Duration = Duration::from_secs(2);
/// How long streams wait for a disk that answers.
const IN_ALL: Duration = Duration::from_secs(30);
const LOOKS: Duration = Duration::from_millis(100);
/// How many such views are noted by key.
const MAX_NOTED: usize = 10_000;

#[cfg(test)]
mod tests {
    use weir_core::xds::KeyRule;

    use super::*;

    fn key(cluster: &str) -> SharingKey {
        let node = weir_core::proto::node::Node { cluster: cluster.into(), ..Default::default() };
        KeyRule::default().key(&prost::Message::encode_to_vec(&node)).unwrap()
    }

    #[test]
    fn a_load_is_late_when_one_answer_is_and_when_all_of_them_are() {
        let load = StateLoad::default();
        load.begin();
        let (start, second) = (load.began, Duration::from_secs(1));
        let at = |seconds: u32| load.lateness(start, start + seconds * second);
        assert_eq!((at(29), at(30)), (None, Some(LateLoad::Slow)), "it is busy, and the disk is not asked");
        load.asked.store(5_001, Ordering::Relaxed);
        assert_eq!((at(6), at(7)), (None, Some(LateLoad::Hangs)));
        load.ask(|| assert!(load.asked.load(Ordering::Relaxed) > 0));
        assert_eq!(at(7), None, "it has answered");
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_it_is_over_or_late_and_only_one_that_was_late_is_said_to_be() {
        for is_late in [false, true] {
            let load = StateLoad::default();
            load.awaited().await;
            assert!(!load.is_pending());
            load.begin();
            assert!(load.is_awaited() && tokio::time::timeout(LOOKS, load.awaited()).await.is_err());
            if is_late {
                load.asked.store(1, Ordering::Relaxed);
                assert_eq!(load.let_go_when_late().await, Some(LateLoad::Hangs));
                assert!(!load.is_awaited() && load.is_pending());
                assert_eq!(load.let_go_when_late().await, None, "once");
            }
            assert_eq!((load.end(), load.is_pending()), (is_late, false));
            load.awaited().await;
            assert_eq!(load.let_go_when_late().await, None);
        }
    }

    #[test]
    fn views_that_have_begun_without_the_file_are_known_until_it_is_taken_and_few_of_them_by_their_keys() {
        let load = StateLoad::default();
        load.note_view(false, &key("a"));
        assert!(!load.has_begun(false, &key("a")), "there is no file");
        load.begin();
        load.note_view(false, &key("a"));
        let begun = [(false, "a"), (true, "a"), (false, "b")].map(|(is_hub, name)| load.has_begun(is_hub, &key(name)));
        assert_eq!(begun, [true, false, false]);
        assert!(!load.end() && load.has_begun(false, &key("a")), "it could not be used yet");
        (0..MAX_NOTED).for_each(|number| load.note_view(false, &key(&number.to_string())));
        assert!(load.has_begun(false, &key("b")), "too many to know");
        load.is_taken();
        assert!(!load.has_begun(false, &key("a")));
    }
}

//! The brakes of all views: what they hold now, counters, and log lines that sum up what one push does to many views.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use weir_core::protocol::view::{BrakeEvent, ReleaseReason, View};

/// One for the process, shared by the views and the hub.
#[derive(Debug, Default)]
pub(crate) struct BrakeWatch {
    /// Guards only this state; nothing awaits while it is locked.
    state: Mutex<BrakeSums>,
    news: Notify,
    next_view: AtomicU64,
}

#[derive(Debug, Default)]
struct BrakeSums {
    /// How many removals each view holds, by type. Views that hold none have no entry.
    held: BTreeMap<u64, HeldOfView>,
    engaged: BTreeMap<String, u64>,
    released: BTreeMap<(String, ReleaseReason), u64>,
    /// What has happened since the last log line, over all views.
    news: BTreeMap<EventKind, EventSum>,
}

#[derive(Debug)]
struct HeldOfView {
    view: Arc<str>,
    by_type: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EventKind {
    server: String,
    type_name: String,
    /// `None` for a brake that has engaged.
    reason: Option<ReleaseReason>,
}

#[derive(Debug, Default)]
struct EventSum {
    views: BTreeSet<Arc<str>>,
    more_views: usize,
    removals: usize,
    generation: u64,
}

/// An event of a brake in one view.
#[derive(Debug)]
pub(super) struct BrakeNews {
    pub(crate) server: String,
    pub(crate) type_name: String,
    pub(crate) reason: Option<ReleaseReason>,
    pub(crate) removals: usize,
    pub(crate) generation: u64,
}

/// The part of one view, removed with the view.
#[derive(Debug)]
pub(super) struct ViewBrakes {
    watch: Arc<BrakeWatch>,
    number: u64,
    view: Arc<str>,
    /// How many changes of the view's brakes there were at the last report.
    changes: u64,
}

impl BrakeWatch {
    /// Starts with the types that have brakes, so that their series exist.
    pub(super) fn new<'a>(types: impl Iterator<Item = &'a str>) -> Self {
        let watch = Self::default();
        watch.add_types(types);
        watch
    }

    /// Adds types that have brakes from now on.
    pub(super) fn add_types<'a>(&self, types: impl Iterator<Item = &'a str>) {
        let mut state = self.state();
        for name in types {
            state.engaged.entry(name.to_owned()).or_default();
            for reason in ReleaseReason::ALL {
                state.released.entry((name.to_owned(), reason)).or_default();
            }
        }
    }

    pub(super) fn view(self: &Arc<Self>, name: &str) -> ViewBrakes {
        let number = self.next_view.fetch_add(1, Ordering::Relaxed);
        ViewBrakes { watch: self.clone(), number, view: name.into(), changes: 0 }
    }

    /// Returns how many removals are held, by type.
    pub(crate) fn held(&self) -> BTreeMap<String, usize> {
        let state = self.state();
        let mut sum: BTreeMap<String, usize> = state.engaged.keys().map(|name| (name.clone(), 0)).collect();
        for (name, count) in state.held.values().flat_map(|of| &of.by_type) {
            *sum.entry(name.clone()).or_default() += count;
        }
        sum
    }

    /// Returns how many removals each view holds of each type.
    pub(crate) fn held_by_view(&self) -> Vec<(Arc<str>, BTreeMap<String, usize>)> {
        self.state().held.values().map(|of| (of.view.clone(), of.by_type.clone())).collect()
    }

    /// Returns how many views hold removals.
    pub(crate) fn views(&self) -> usize {
        self.state().held.len()
    }

    /// Returns how often brakes engaged, by type.
    pub(crate) fn engaged(&self) -> BTreeMap<String, u64> {
        self.state().engaged.clone()
    }

    /// Returns how many removals were released or taken back, by type and reason.
    pub(crate) fn released(&self) -> BTreeMap<(String, ReleaseReason), u64> {
        self.state().released.clone()
    }

    /// Writes log lines: one for events of many views at about the same time, and a reminder while anything is held.
    pub(crate) async fn log(&self) {
        self.log_each(REMINDER).await;
    }

    async fn log_each(&self, reminder_interval: Duration) {
        let mut remind_at: Option<Instant> = None;
        loop {
            let reminder = async {
                match remind_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.news.notified() => {
                    sleep(GATHER).await;
                    self.log_news();
                }
                () = reminder => {
                    remind_at = None;
                    let (views, removals) = (self.views(), self.held().values().sum::<usize>());
                    if views > 0 {
                        tracing::warn!(views, removals, "brakes still hold removals");
                    }
                }
            }
            if self.views() == 0 {
                remind_at = None;
            } else {
                remind_at.get_or_insert_with(|| Instant::now() + reminder_interval);
            }
        }
    }

    fn log_news(&self) {
        let news = std::mem::take(&mut self.state().news);
        for (EventKind { server, type_name, reason }, sum) in news {
            let EventSum { views, more_views, removals, generation } = sum;
            let view = views.first().filter(|_| views.len() == 1).map(|view| &**view);
            let (views, type_url) = (views.len() + more_views, type_name);
            match reason.map(ReleaseReason::name) {
                None => {
                    tracing::warn!(server, type_url, views, view, removals, generation, "brake holds removals");
                }
                Some(reason) => {
                    tracing::warn!(server, type_url, views, view, removals, reason, "brake holds removals no longer");
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, BrakeSums> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewBrakes {
    /// Reports what has changed since the last call.
    pub(super) fn report(&mut self, view: &mut View, server_name: impl Fn(u16) -> String) {
        let changes = view.holds().brake_changes();
        if changes == self.changes {
            return;
        }
        self.changes = changes;
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        for brake in view.holds().brakes(0) {
            *held.entry(brake.kind.name().to_owned()).or_default() += brake.held;
        }
        let news = view.take_brake_events().into_iter().map(|event| {
            let (kind, server, reason, removals, generation) = match event {
                BrakeEvent::Engaged { kind, server, generation, held, .. } => (kind, server, None, held, generation),
                BrakeEvent::Released { kind, server, reason, count, .. } => (kind, server, Some(reason), count, 0),
            };
            let (server, type_name) = (server_name(server), kind.name().to_owned());
            BrakeNews { server, type_name, reason, removals, generation }
        });
        self.update(held, news.collect());
    }

    pub(crate) fn update(&mut self, held: BTreeMap<String, usize>, news: Vec<BrakeNews>) {
        let is_news = !news.is_empty();
        let mut state = self.watch.state();
        for BrakeNews { server, type_name, reason, removals, generation } in news {
            match reason {
                None => *state.engaged.entry(type_name.clone()).or_default() += 1,
                Some(reason) => *state.released.entry((type_name.clone(), reason)).or_default() += removals as u64,
            }
            let sum = state.news.entry(EventKind { server, type_name, reason }).or_default();
            if sum.views.len() < MAX_NAMED {
                sum.views.insert(self.view.clone());
            } else {
                sum.more_views += usize::from(!sum.views.contains(&self.view));
            }
            sum.removals += removals;
            sum.generation = sum.generation.max(generation);
        }
        match held.is_empty() {
            true => drop(state.held.remove(&self.number)),
            false => drop(state.held.insert(self.number, HeldOfView { view: self.view.clone(), by_type: held })),
        }
        drop(state);
        if is_news {
            self.watch.news.notify_one();
        }
    }
}

impl Drop for ViewBrakes {
    fn drop(&mut self) {
        self.watch.state().held.remove(&self.number);
    }
}

/// Events within this time share a line.
const GATHER: Duration = Duration::from_millis(500);
const REMINDER: Duration = Duration::from_secs(60);
/// How many views one line can count.
const MAX_NAMED: usize = 1000;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::tests::WrittenLines;

    fn news(reason: Option<ReleaseReason>) -> Vec<BrakeNews> {
        let (server, type_name) = ("http://cp:1".to_owned(), "a.B".to_owned());
        vec![BrakeNews { server, type_name, reason, removals: 5, generation: 7 }]
    }

    #[test]
    fn one_push_to_many_views_is_one_line() {
        let watch = Arc::new(BrakeWatch::new(["a.B"].into_iter()));
        let mut views: Vec<_> = (0..1500).map(|number| watch.view(&format!("view {number}"))).collect();
        let held = BTreeMap::from([("a.B".to_owned(), 5)]);
        views.iter_mut().for_each(|view| view.update(held.clone(), news(None)));
        assert!(watch.news.notified().now_or_never().is_some(), "the log is woken");
        let state = watch.state();
        let sums: Vec<_> = state.news.values().map(|sum| (sum.views.len() + sum.more_views, sum.removals)).collect();
        assert_eq!(sums, [(1500, 7500)]);
        drop(state);
        assert_eq!((watch.held()["a.B"], watch.engaged()["a.B"], watch.views()), (7500, 1500, 1500));
        views[0].update(BTreeMap::new(), news(Some(ReleaseReason::Grace)));
        views.truncate(10);
        assert_eq!((watch.held()["a.B"], watch.views()), (45, 9), "a view that has ended holds nothing");
        assert_eq!(watch.released()[&("a.B".to_owned(), ReleaseReason::Grace)], 5);
        assert_eq!(watch.released()[&("a.B".to_owned(), ReleaseReason::Operator)], 0);
    }

    /// Waits until so many lines contain this.
    async fn have(lines: &WrittenLines, count: usize, part: &str) {
        let wait = async {
            while lines.count(part) < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("no {part}"));
    }

    #[tokio::test]
    async fn while_removals_are_held_a_line_says_so_again_and_again() {
        let (lines, _guard) = WrittenLines::of_this_thread();
        let watch = Arc::new(BrakeWatch::new(["a.B"].into_iter()));
        let log = watch.log_each(Duration::from_millis(10));
        let held = BTreeMap::from([("a.B".to_owned(), 5)]);
        let reminder = "brakes still hold removals views=1 removals=5";
        let story = async {
            let mut view = watch.view("view");
            view.update(held.clone(), news(None));
            have(&lines, 1, "brake holds removals server=").await;
            have(&lines, 3, reminder).await;
            view.update(BTreeMap::new(), news(Some(ReleaseReason::Grace)));
            have(&lines, 1, "brake holds removals no longer").await;
            view.update(held.clone(), news(None));
            have(&lines, 2, "brake holds removals server=").await;
            let reminders = lines.count(reminder);
            have(&lines, reminders + 1, reminder).await;
            assert_eq!(lines.count("still hold removals views=0"), 0, "none while nothing was held");
        };
        tokio::select! {
            () = log => {}
            () = story => {}
        }
    }

    #[tokio::test]
    async fn what_is_held_is_said_again_only_after_the_interval() {
        let (lines, _guard) = WrittenLines::of_this_thread();
        let watch = Arc::new(BrakeWatch::new(["a.B"].into_iter()));
        let log = watch.log_each(Duration::from_secs(3600));
        let story = async {
            let mut view = watch.view("view");
            for count in 1..=2 {
                view.update(BTreeMap::from([("a.B".to_owned(), 5)]), news(None));
                have(&lines, count, "brake holds removals server=").await;
            }
            assert_eq!(lines.count("brakes still hold"), 0);
        };
        tokio::select! {
            () = log => {}
            () = story => {}
        }
    }
}

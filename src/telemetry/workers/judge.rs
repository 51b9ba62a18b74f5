//! Decides from the progress of the worker threads and shards whether they stall. Only time in which the watchdog's own thread ran counts: if that thread
//! had to wait, the process was suspended or throttled, and so were the workers.

use std::time::{Duration, Instant};

/// The progress of the worker threads so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// How many tasks of the watchdog they have run.
    pub(super) tasks: u64,
    pub(super) workers: Vec<WorkerProgress>,
    /// How often each shard has come round.
    pub(super) shards: Vec<u64>,
}

/// The progress of one worker, as far as the runtime has counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerProgress {
    /// Odd while the worker sleeps.
    pub(super) parks_and_unparks: u64,
    pub(super) busy: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// A worker has made no progress for too long.
    Stalled { worker: usize, after: Duration },
    /// A worker that had stalled makes progress again.
    GetsOn { worker: usize, after: Duration },
    /// No worker has made progress for as long as the watchdog allows.
    Hung { after: Duration },
    /// A worker makes progress again, after all had hung.
    Recovered { after: Duration },
    /// A shard has not come round for as long as the watchdog allows.
    ShardHung { shard: usize, after: Duration },
    /// A shard that had hung comes round again.
    ShardRecovered { shard: usize, after: Duration },
}

/// Judges the progress at each check.
#[derive(Debug)]
pub(super) struct Judge {
    every: Duration,
    watchdog: Option<Duration>,
    looked: Instant,
    tasks: Standstill<u64>,
    workers: Vec<Standstill<WorkerProgress>>,
    shards: Vec<Standstill<u64>>,
}

/// A count, and since when it has not changed.
#[derive(Debug)]
struct Standstill<T> {
    value: T,
    since: Instant,
    lasted: Duration,
    /// Whether the standstill was reported as too long.
    is_found: bool,
}

/// The change that a check finds.
enum Change {
    TooLong,
    /// A standstill that was too long has ended.
    Over(Duration),
}

impl Judge {
    pub(super) fn new(every: Duration, watchdog: Option<Duration>, now: Instant, progress: Progress) -> Self {
        let tasks = Standstill::new(progress.tasks, now);
        let workers = progress.workers.into_iter().map(|worker| Standstill::new(worker, now)).collect();
        let shards = progress.shards.into_iter().map(|rounds| Standstill::new(rounds, now)).collect();
        Self { every, watchdog, looked: now, tasks, workers, shards }
    }

    /// Returns what has changed since the last check. If that was much longer ago than it should be, judging starts again from this one.
    pub(super) fn look(&mut self, now: Instant, progress: Progress) -> Vec<Finding> {
        if now.saturating_duration_since(self.looked) > self.every * LATE {
            *self = Self::new(self.every, self.watchdog, now, progress);
            return Vec::new();
        }
        self.looked = now;
        let mut findings = Vec::new();
        for (worker, (standstill, progress)) in self.workers.iter_mut().zip(progress.workers).enumerate() {
            let sleeps = progress.parks_and_unparks % 2 == 1;
            let change = standstill.look(now, progress, sleeps, Some(STALL));
            findings.extend(change.map(|change| match change {
                Change::TooLong => Finding::Stalled { worker, after: standstill.lasted },
                Change::Over(after) => Finding::GetsOn { worker, after },
            }));
        }
        for (shard, (standstill, rounds)) in self.shards.iter_mut().zip(progress.shards).enumerate() {
            // An idle shard comes round three times a second.
            let longest = self.watchdog.map(|watchdog| watchdog.max(SHARD));
            let change = standstill.look(now, rounds, false, longest);
            findings.extend(change.map(|change| match change {
                Change::TooLong => Finding::ShardHung { shard, after: standstill.lasted },
                Change::Over(after) => Finding::ShardRecovered { shard, after },
            }));
        }
        let change = self.tasks.look(now, progress.tasks, false, self.watchdog);
        findings.extend(change.map(|change| match change {
            Change::TooLong => Finding::Hung { after: self.tasks.lasted },
            Change::Over(after) => Finding::Recovered { after },
        }));
        findings
    }

    /// Returns for how long no worker had made progress at the last check, if that is too long.
    pub(super) fn hung_for(&self) -> Option<Duration> {
        self.tasks.too_long()
    }

    /// Returns for how long each shard had not come round at the last check, if that is too long.
    pub(super) fn shards_hung_for(&self) -> impl Iterator<Item = Option<Duration>> {
        self.shards.iter().map(Standstill::too_long)
    }
}

impl<T: PartialEq> Standstill<T> {
    fn new(value: T, now: Instant) -> Self {
        Self { value, since: now, lasted: Duration::ZERO, is_found: false }
    }

    /// Returns how long it lasted at the last check, if that is too long.
    fn too_long(&self) -> Option<Duration> {
        self.is_found.then_some(self.lasted)
    }

    /// `may_stand`: an unchanged value is no standstill now.
    fn look(&mut self, now: Instant, value: T, may_stand: bool, longest: Option<Duration>) -> Option<Change> {
        let lasted = now.saturating_duration_since(self.since);
        if may_stand || self.value != value {
            let was_found = self.is_found;
            *self = Self::new(value, now);
            return was_found.then_some(Change::Over(lasted));
        }
        self.lasted = lasted;
        let is_news = !self.is_found && longest.is_some_and(|longest| lasted >= longest);
        self.is_found |= is_news;
        is_news.then_some(Change::TooLong)
    }
}

/// The shortest time after which a shard may count as hung.
const SHARD: Duration = Duration::from_secs(1);
/// How long a worker may take for one task.
const STALL: Duration = Duration::from_secs(5);
/// A multiple of the time between checks. A longer pause counts as a pause of the process.
const LATE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Workers and shards with scripted progress, which a judge checks each second.
    struct Bench {
        judge: Judge,
        now: Instant,
        progress: Progress,
        /// A shard that does not come round.
        hung_shard: Option<usize>,
    }

    impl Bench {
        fn new(watchdog: Option<Duration>) -> Self {
            let worker = WorkerProgress { parks_and_unparks: 2, busy: SECOND };
            let progress = Progress { tasks: 0, workers: vec![worker; 2], shards: vec![0; 2] };
            let now = Instant::now();
            Self { judge: Judge::new(SECOND, watchdog, now, progress.clone()), now, progress, hung_shard: None }
        }

        /// Checks each second. The workers in `get_on` make progress, and if there are any, the task is run.
        fn seconds(&mut self, seconds: u32, get_on: &[usize]) -> Vec<Finding> {
            (0..seconds).flat_map(|_| self.look_after(SECOND, get_on)).collect()
        }

        fn look_after(&mut self, time: Duration, get_on: &[usize]) -> Vec<Finding> {
            self.now += time;
            self.progress.tasks += u64::from(!get_on.is_empty());
            get_on.iter().for_each(|worker| self.progress.workers[*worker].busy += SECOND);
            let shards = self.progress.shards.iter_mut().enumerate();
            shards.filter(|(shard, _)| self.hung_shard != Some(*shard)).for_each(|(_, rounds)| *rounds += 100);
            self.judge.look(self.now, self.progress.clone())
        }
    }

    fn after(seconds: u32) -> Duration {
        SECOND * seconds
    }

    #[test]
    fn a_worker_that_does_not_get_on_is_named_after_five_seconds_and_when_it_does_and_nothing_hangs() {
        let mut bench = Bench::new(Some(after(30)));
        assert_eq!(bench.seconds(100, &[0, 1]), []);
        assert_eq!(bench.seconds(4, &[0]), []);
        assert_eq!(bench.seconds(100, &[0]), [Finding::Stalled { worker: 1, after: after(5) }]);
        assert_eq!(bench.judge.hung_for(), None);
        assert_eq!(bench.seconds(9, &[0, 1]), [Finding::GetsOn { worker: 1, after: after(105) }]);
    }

    #[test]
    fn a_worker_that_sleeps_gets_on() {
        let mut bench = Bench::new(Some(after(30)));
        bench.progress.workers[1].parks_and_unparks += 1;
        assert_eq!(bench.seconds(100, &[0]), []);
        bench.progress.workers[1].parks_and_unparks += 1;
        assert_eq!(bench.seconds(6, &[0]), [Finding::Stalled { worker: 1, after: after(5) }], "since it woke");
    }

    #[test]
    fn workers_hang_if_none_gets_on_for_as_long_as_the_watchdog_says_and_until_one_does() {
        let mut bench = Bench::new(Some(after(30)));
        bench.seconds(29, &[]);
        assert_eq!(bench.judge.hung_for(), None);
        assert_eq!(bench.seconds(1, &[]), [Finding::Hung { after: after(30) }]);
        assert_eq!(bench.seconds(10, &[]), []);
        assert_eq!(bench.judge.hung_for(), Some(after(40)));
        let both = [Finding::GetsOn { worker: 0, after: after(41) }, Finding::Recovered { after: after(41) }];
        assert_eq!(bench.seconds(1, &[0]), both);
        assert_eq!(bench.judge.hung_for(), None);

        let mut bench = Bench::new(None);
        assert_eq!(bench.seconds(100, &[]).len(), 2, "each is named");
        assert_eq!(bench.judge.hung_for(), None, "the watchdog is off");
    }

    #[test]
    fn a_shard_hangs_if_it_does_not_come_round_for_as_long_as_the_watchdog_says_although_workers_get_on() {
        let mut bench = Bench::new(Some(after(30)));
        bench.hung_shard = Some(1);
        assert_eq!(bench.seconds(29, &[0, 1]), []);
        assert_eq!(bench.seconds(1, &[0, 1]), [Finding::ShardHung { shard: 1, after: after(30) }]);
        assert_eq!(bench.seconds(10, &[0, 1]), []);
        let hung: Vec<_> = bench.judge.shards_hung_for().collect();
        assert_eq!((bench.judge.hung_for(), hung), (None, vec![None, Some(after(40))]));
        bench.hung_shard = None;
        assert_eq!(bench.seconds(1, &[0, 1]), [Finding::ShardRecovered { shard: 1, after: after(41) }]);
        assert!(bench.judge.shards_hung_for().all(|hung| hung.is_none()));

        let mut bench = Bench::new(None);
        bench.hung_shard = Some(0);
        assert_eq!(bench.seconds(100, &[0, 1]), [], "the watchdog is off");
    }

    #[test]
    fn it_begins_anew_if_the_one_who_looks_was_not_run() {
        let mut bench = Bench::new(Some(after(30)));
        bench.seconds(29, &[]);
        assert_eq!(bench.look_after(after(3), &[]), []);
        assert_eq!((bench.seconds(29, &[]).len(), bench.judge.hung_for()), (2, None));
        bench.seconds(1, &[]);
        assert!(bench.judge.hung_for().is_some());
        bench.look_after(after(60), &[]);
        assert_eq!(bench.judge.hung_for(), None, "suspended while it hung");

        // A process that gets only a third of a processor is slow, but does not hang.
        let mut bench = Bench::new(Some(after(30)));
        let findings: Vec<_> = (0..100).flat_map(|_| bench.look_after(after(3), &[])).collect();
        assert_eq!((findings, bench.judge.hung_for()), (vec![], None));
    }
}

//! The watchdog: a thread of its own that checks whether the worker threads of the runtime make progress, and threads on which connections live.
//!
//! The thread spawns a task at each check, which shows whether any worker makes progress. The task also wakes a worker: tokio wakes none by itself if
//! the worker that has waited for I/O blocks, and one slow task would then hang the relay. The runtime's counts show which worker makes no
//! progress: it counts when a worker goes to sleep, when it wakes, and after 61 tasks.

mod judge;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use self::judge::{Finding, Judge, Progress, WorkerProgress};
use crate::downstream::ShardFigures;

/// The health of the worker threads of a runtime, and of the shards beside it.
#[derive(Debug)]
pub(crate) struct WorkerHealth {
    /// For how long no worker has made progress.
    workers: Silence,
    /// How often each worker has stalled.
    stalls: Box<[AtomicU64]>,
    /// The shards, and for how long each has not come round.
    shards: Box<[(ShardFigures, Silence)]>,
}

/// For how many milliseconds there was no progress, if that is too long; otherwise 0.
#[derive(Debug, Default)]
struct Silence(AtomicU64);

/// Dropping this ends the thread.
#[derive(Debug)]
pub(crate) struct WorkerWatch {
    _alive: Sender<()>,
}

/// The state of the thread.
struct Watch {
    runtime: Handle,
    health: Arc<WorkerHealth>,
    /// How many tasks the thread has spawned, and how many of them have run.
    spawned: u64,
    run: Arc<AtomicU64>,
    /// Called at each check at which nothing hangs.
    alive: fn(),
}

impl WorkerHealth {
    /// Returns the health of the current runtime's workers, without shards.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with_shards(Vec::new())
    }

    /// Returns the health of the current runtime's workers, and of these shards.
    pub(crate) fn with_shards(shards: Vec<ShardFigures>) -> Self {
        let stalls = (0..Handle::current().metrics().num_workers()).map(|_| AtomicU64::new(0)).collect();
        let shards = shards.into_iter().map(|shard| (shard, Silence::default())).collect();
        Self { workers: Silence::default(), stalls, shards }
    }

    /// Returns what hangs, in the words for probes; `None` if nothing does.
    pub(crate) fn hang(&self) -> Option<String> {
        let of_workers = self.workers.time().map(|silent| ("the worker threads have".to_owned(), silent));
        let of_shard =
            |(number, (_, silence)): (usize, &(_, Silence))| Some((format!("shard {number} has"), silence.time()?));
        let found = of_workers.or_else(|| self.shards.iter().enumerate().find_map(of_shard));
        found.map(|(what, silent)| format!("{what} not answered for {} s", silent.as_secs()))
    }

    /// Returns the shards.
    pub(super) fn shards(&self) -> impl Iterator<Item = &ShardFigures> {
        self.shards.iter().map(|(shard, _)| shard)
    }

    /// Records what the last check has found.
    fn note(&self, judge: &Judge) {
        self.workers.set(judge.hung_for());
        self.shards.iter().zip(judge.shards_hung_for()).for_each(|((_, silence), hung)| silence.set(hung));
    }

    /// Returns how often each worker has stalled.
    pub(super) fn stalls(&self) -> impl Iterator<Item = u64> {
        self.stalls.iter().map(|stalls| stalls.load(Ordering::Relaxed))
    }
}

impl Silence {
    fn time(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|hung| *hung > 0).map(Duration::from_millis)
    }

    fn set(&self, time: Option<Duration>) {
        let millis = time.map_or(0, |hung| u64::try_from(hung.as_millis()).unwrap_or(u64::MAX));
        self.0.store(millis, Ordering::Relaxed);
    }
}

impl WorkerWatch {
    /// Starts to check the current runtime. The workers hang if none makes progress for `watchdog`, a shard if it has none; `None`: they never count
    /// as hanging.
    pub(crate) fn start(health: Arc<WorkerHealth>, watchdog: Option<Duration>, alive: fn()) -> io::Result<Self> {
        #[allow(clippy::disallowed_methods, reason = "nothing is sent")]
        let (until_dropped, dropped) = channel();
        let watch = Watch { runtime: Handle::current(), health, spawned: 0, run: Arc::default(), alive };
        let every = watchdog.map_or(LOOK, |watchdog| LOOK.min(watchdog / 4));
        thread::Builder::new().name(NAME.into()).spawn(move || watch.look(every, watchdog, &dropped))?;
        Ok(Self { _alive: until_dropped })
    }
}

impl Watch {
    fn look(mut self, every: Duration, watchdog: Option<Duration>, dropped: &Receiver<()>) {
        let mut judge = Judge::new(every, watchdog, Instant::now(), self.progress());
        loop {
            self.spawn();
            if dropped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let findings = judge.look(Instant::now(), self.progress());
            self.health.note(&judge);
            findings.iter().for_each(|finding| self.report(finding));
            if self.health.hang().is_none() {
                (self.alive)();
            }
        }
    }

    /// Spawns a task that counts, unless many are waiting already.
    fn spawn(&mut self) {
        if self.spawned - self.run.load(Ordering::Relaxed) < MAX_WAITING {
            self.spawned += 1;
            let run = self.run.clone();
            self.runtime.spawn(async move { run.fetch_add(1, Ordering::Relaxed) });
        }
    }

    fn progress(&self) -> Progress {
        let metrics = self.runtime.metrics();
        let of_worker = |worker| WorkerProgress {
            parks_and_unparks: metrics.worker_park_unpark_count(worker),
            busy: metrics.worker_total_busy_duration(worker),
        };
        Progress {
            tasks: self.run.load(Ordering::Relaxed),
            workers: (0..metrics.num_workers()).map(of_worker).collect(),
            shards: self.health.shards().map(ShardFigures::rounds).collect(),
        }
    }

    fn report(&self, finding: &Finding) {
        match finding {
            Finding::Stalled { worker, after } => {
                if let Some(stalls) = self.health.stalls.get(*worker) {
                    stalls.fetch_add(1, Ordering::Relaxed);
                }
                tracing::warn!(worker, seconds = after.as_secs(), "worker thread does not get on; a task blocks it");
            }
            Finding::GetsOn { worker, after } => {
                tracing::info!(worker, seconds = after.as_secs(), "worker thread gets on again");
            }
            Finding::Hung { after } => {
                tracing::error!(seconds = after.as_secs(), "no worker thread gets on (watchdog); /healthz fails");
            }
            Finding::Recovered { after } => tracing::info!(seconds = after.as_secs(), "worker threads get on again"),
            Finding::ShardHung { shard, after } => {
                tracing::error!(shard, seconds = after.as_secs(), "shard does not get on (watchdog); /healthz fails");
            }
            Finding::ShardRecovered { shard, after } => {
                tracing::info!(shard, seconds = after.as_secs(), "shard gets on again");
            }
        }
    }
}

/// The time between checks, unless the watchdog needs a shorter one.
const LOOK: Duration = Duration::from_secs(1);
/// The limit of the thread's tasks that wait for a worker.
const MAX_WAITING: u64 = 8;
/// The name that tools such as `top` show.
const NAME: &str = "weir-watchdog";

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn until(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "never: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Keeps a worker busy until the result is dropped.
    fn block_worker(runtime: &Handle) -> Sender<()> {
        let ((end, ended), (begun, begins)) = (channel::<()>(), channel());
        runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        begins.recv_timeout(PATIENCE).expect("a worker is free for it");
        end
    }

    #[test]
    fn workers_that_all_block_hang_until_one_gets_on_and_the_process_says_meanwhile_that_it_lives_no_more() {
        static ALIVE: AtomicU64 = AtomicU64::new(0);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let entered = runtime.enter();
        let health = Arc::new(WorkerHealth::new());
        let alive = || {
            ALIVE.fetch_add(1, Ordering::Relaxed);
        };
        let watch = WorkerWatch::start(health.clone(), Some(Duration::from_millis(200)), alive).unwrap();
        let lives = || {
            let before = ALIVE.load(Ordering::Relaxed);
            // On a busy machine, even a free worker may be late for a moment.
            until("it lives", || ALIVE.load(Ordering::Relaxed) > before && health.hang().is_none());
        };
        lives();
        let one = block_worker(runtime.handle());
        (0..10).for_each(|_| lives()); // for longer than all workers may hang
        let other = block_worker(runtime.handle());
        // A worker that was late before may count as hanging until the next look, and after a late look judging starts again.
        until("they hang for longer, and it does not say that it lives", || {
            until("they hang", || health.hang().is_some());
            let before = ALIVE.load(Ordering::Relaxed);
            let long = health.workers.time().unwrap_or_default() + Duration::from_millis(500); // another half second in each round
            until("it is decided", || health.workers.time().is_none_or(|hung| hung > long));
            health.hang().is_some() && ALIVE.load(Ordering::Relaxed) == before
        });
        drop(other);
        lives();
        drop((one, watch, entered));
    }

    #[test]
    fn a_shard_that_does_not_come_round_hangs_until_it_does_and_is_named() {
        static ALIVE: AtomicU64 = AtomicU64::new(0);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let _entered = runtime.enter();
        let [comes, hangs] = [(); 2].map(|()| ShardFigures::default());
        let health = Arc::new(WorkerHealth::with_shards(vec![comes.clone(), hangs.clone()]));
        let alive = || {
            ALIVE.fetch_add(1, Ordering::Relaxed);
        };
        let _watch = WorkerWatch::start(health.clone(), Some(Duration::from_millis(200)), alive).unwrap();
        until("one hangs", || {
            comes.come_round();
            health.hang().is_some_and(|what| what.starts_with("shard 1 has not answered for "))
        });
        let before = ALIVE.load(Ordering::Relaxed);
        until("both get on", || {
            [&comes, &hangs].into_iter().for_each(ShardFigures::come_round);
            health.hang().is_none() && ALIVE.load(Ordering::Relaxed) > before
        });
    }

    #[test]
    fn workers_with_nothing_to_do_and_those_that_are_busy_do_not_stall() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let watch = Watch {
            runtime: runtime.handle().clone(),
            health: runtime.block_on(async { Arc::new(WorkerHealth::new()) }),
            spawned: 0,
            run: Arc::default(),
            alive: || {},
        };
        let sleeps = |worker: &WorkerProgress| worker.parks_and_unparks % 2 == 1;
        until("both sleep", || watch.progress().workers.iter().all(sleeps));
        for _ in 0..2 {
            runtime.spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        until("none sleeps", || !watch.progress().workers.iter().any(sleeps));
        let before = watch.progress().workers;
        let gets_on = |worker: usize| watch.progress().workers[worker] != before[worker];
        until("both get on without any sleep", || gets_on(0) && gets_on(1));
        runtime.shutdown_background();
    }

    #[test]
    fn one_worker_that_blocks_while_the_other_sleeps_holds_up_no_timer() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let entered = runtime.enter();
        let _watch = WorkerWatch::start(Arc::new(WorkerHealth::new()), None, || {}).unwrap();
        // A timer starts the task, so the task blocks the worker that has waited for all timers.
        let ((end, ended), (begun, begins)) = (channel::<()>(), channel());
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        let (rang, rings) = channel();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            rang.send(()).unwrap();
        });
        begins.recv_timeout(PATIENCE).unwrap();
        rings.recv_timeout(PATIENCE).expect("the other worker runs the timer");
        drop((end, entered));
    }
}

//! Threads on which connections live, each with a runtime of its own: a connection, the readers and bodies of its streams and their timers are
//! polled by one thread, from when its client is known to its end. What outlives a connection or serves others too is on the shared runtime
//! (`shared_runtime`), as is a connection whose client is not known yet.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::opening_turns::OpeningTurns;
use super::polls::{self, Polls, timed};
use super::rounds::Rounds;
use crate::relay::deliveries::HistogramCounts;
use crate::relay::have_little_weight;
use crate::shared_runtime;

/// All shards. When this is dropped, their threads end, and so do the connections that are left there.
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// The thread of load reports and of what goes upstream for them: a flood of them keeps neither connections nor views waiting, on whose cores it
    /// has little weight. It serves no connection.
    loads: Shard,
    /// The shard that the next connection goes to if all have the same load.
    next: Mutex<usize>,
}

struct Shard {
    runtime: Handle,
    figures: ShardFigures,
    openings: Arc<OpeningTurns>,
    /// Sending ends the thread. Closed once it has ended, and nothing is left there.
    until_dropped: watch::Sender<()>,
}

/// What a shard has to do, and whether its thread comes round.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardFigures {
    load: Arc<Load>,
    rounds: Arc<Rounds>,
    polls: Polls,
}

/// The connections and streams of a shard.
#[derive(Debug, Default)]
struct Load {
    connections: AtomicUsize,
    streams: AtomicUsize,
}

/// A connection of a shard, until this is dropped.
#[derive(Debug)]
pub(super) struct OnShard {
    load: Arc<Load>,
    openings: Arc<OpeningTurns>,
    /// The runtime of load reports.
    loads: Handle,
}

/// A stream of a shard, until this is dropped.
#[derive(Debug)]
pub(super) struct StreamOnShard(Arc<Load>);

/// A connection that a shard serves. It ends when this is dropped.
pub(super) struct Served(JoinHandle<()>);

impl Shards {
    /// Starts this many shards beside the current runtime. `None` for 0: connections live on the current runtime.
    pub(super) fn start(count: usize) -> io::Result<Option<Arc<Self>>> {
        Self::start_up_to(count, count)
    }

    /// Starts as many as the process can have, up to [`default_shards`].
    pub(super) fn start_default(open_files: usize) -> io::Result<Option<Arc<Self>>> {
        Self::start_up_to(default_shards(open_files), 1)
    }

    fn start_up_to(count: usize, least: usize) -> io::Result<Option<Arc<Self>>> {
        if count == 0 {
            return Ok(None);
        }
        let shared = Handle::current();
        let fails = |error: io::Error| io::Error::new(error.kind(), format!("cannot start {count} shards: {error}"));
        let start = |name: String, prepare: fn()| Shard::start(name, prepare, shared.clone()).map_err(fails);
        let (loads, mut shards) = (start("weir-loads".into(), have_little_weight)?, Vec::new());
        for number in 0..count {
            match start(format!("weir-shard-{number}"), || ()) {
                Ok(shard) => shards.push(shard),
                Err(error) if shards.len() < least => return Err(error),
                Err(error) => {
                    shards.truncate(shards.len().div_ceil(2)); // others need threads too
                    tracing::warn!(%error, shards = shards.len(), "going on with fewer shards");
                    break;
                }
            }
        }
        Ok(Some(Arc::new(Self { shards: shards.into(), loads, next: Mutex::new(0) })))
    }

    /// Serves a connection on the shard with the least load. `serving` gets what counts the connection there.
    pub(super) fn serve<F>(&self, serving: impl FnOnce(OnShard) -> F) -> Served
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (shard, place) = self.enter();
        Served(shard.runtime.spawn(timed(serving(place))))
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.shards.len()
    }

    /// Returns what is known of each, and last of the thread of load reports.
    pub(super) fn figures(&self) -> impl Iterator<Item = ShardFigures> {
        self.shards.iter().chain([&self.loads]).map(|shard| shard.figures.clone())
    }

    /// Ends the threads of connections with what is left there, and waits for them. One that hangs is not waited for any longer.
    pub(super) async fn end(&self, patience: Duration) {
        Shard::end(self.shards.iter(), patience).await;
    }

    /// Ends the thread of load reports in the same way.
    pub(super) async fn end_loads(&self, patience: Duration) {
        Shard::end([&self.loads], patience).await;
    }

    /// Chooses the shard of a connection, and counts it there. A shard whose thread does not come round gets none while another does, nor one whose
    /// thread has ended.
    fn enter(&self) -> (&Shard, OnShard) {
        let now = Instant::now();
        self.enter_unless(|shard| shard.figures.rounds.are_late(now))
    }

    /// One at a time: otherwise connections that come together would go to the same. If all are late, as after a pause of the machine, none is.
    fn enter_unless(&self, is_late: impl Fn(&Shard) -> bool) -> (&Shard, OnShard) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let state_of = |shard: &Shard| (shard.until_dropped.is_closed(), is_late(shard), shard.figures.load());
        let states: Vec<_> = self.shards.iter().map(state_of).collect();
        let chosen = least_loaded(&states, *next);
        *next = (chosen + 1) % states.len();
        let shard = &self.shards[chosen];
        let (load, openings, loads) = (shard.figures.load.clone(), shard.openings.clone(), self.loads.runtime.clone());
        load.connections.fetch_add(1, Ordering::Relaxed);
        (shard, OnShard { load, openings, loads })
    }
}

/// Returns the number of shards where the configuration states none: one for each processor that the process may use, by its affinity and the quota of
/// its container, as there are worker threads. Fewer if only so many files may be open.
pub(crate) fn default_shards(open_files: usize) -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    processors.min(MAX_SHARDS).min(open_files / FILES_FOR_EACH).max(1)
}

/// More than there are processors in nearly all machines. A number that was meant for another key would take a stack and open files for each.
pub(crate) const MAX_SHARDS: usize = 256;
/// The open files that there have to be for each shard, which has about four of them itself.
const FILES_FOR_EACH: usize = 64;

/// Each time that a shard has run so many tasks, one that another thread has woken is next, for example because a view has a change. By default it would
/// be 31: beside thousands of connections that always have something to do, changes queued up.
const OTHERS_AFTER: u32 = 8;

/// Returns the index of the least load: of equal ones, the first from `from` on, in a circle.
fn least_loaded<T: Ord + Copy>(loads: &[T], from: usize) -> usize {
    let in_turn = (0..loads.len()).map(|step| (from + step) % loads.len());
    in_turn.min_by_key(|shard| loads[*shard]).unwrap_or_default() // there is one
}

impl Shard {
    /// Starts one, whose thread first prepares itself.
    fn start(name: String, prepare: fn(), shared: Handle) -> io::Result<Self> {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().global_queue_interval(OTHERS_AFTER).build()?;
        let (handle, figures) = (runtime.handle().clone(), ShardFigures::default());
        let (rounds, (until_dropped, mut dropped)) = (figures.rounds.clone(), watch::channel(()));
        let measured = figures.polls.clone();
        // A runtime cannot be dropped within another one, as a thread that does not start would.
        let kept = Arc::new(Mutex::new(Some(runtime)));
        let take = |kept: &Mutex<Option<Runtime>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let of_thread = kept.clone();
        let run = move || {
            let Some(runtime) = take(&of_thread) else { return };
            prepare();
            polls::measure_on_this_thread(measured);
            shared_runtime::set_beside_this_thread(shared, runtime.handle().clone());
            runtime.spawn(rounds.keep(polls::made_on_this_thread));
            let _ = runtime.block_on(dropped.changed()); // sent to, or dropped
            runtime.shutdown_background();
            drop(dropped);
        };
        if let Err(error) = thread::Builder::new().name(name).spawn(run) {
            take(&kept).into_iter().for_each(Runtime::shutdown_background);
            return Err(error);
        }
        Ok(Self { runtime: handle, figures, openings: Arc::default(), until_dropped })
    }

    async fn end<'a>(shards: impl IntoIterator<Item = &'a Self, IntoIter: Clone>, patience: Duration) {
        let shards = shards.into_iter();
        shards.clone().for_each(|shard| shard.until_dropped.send_replace(()));
        let ended = async {
            for shard in shards {
                shard.until_dropped.closed().await;
            }
        };
        if timeout(patience, ended).await.is_err() {
            tracing::warn!("shard does not end; ending without it");
        }
    }
}

impl ShardFigures {
    /// Returns how many connections and streams it has.
    fn load(&self) -> usize {
        self.connections() + self.streams()
    }

    /// Returns how many connections it has.
    pub(crate) fn connections(&self) -> usize {
        self.load.connections.load(Ordering::Relaxed)
    }

    /// Returns how many streams its connections have.
    pub(crate) fn streams(&self) -> usize {
        self.load.streams.load(Ordering::Relaxed)
    }

    /// Returns how much processor time the polls took that were measured.
    pub(crate) fn polls(&self) -> HistogramCounts {
        self.polls.counts()
    }

    /// Returns how often its thread has come round.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.count()
    }

    /// Returns how often it was late.
    pub(crate) fn late_rounds(&self) -> u64 {
        self.rounds.late()
    }

    /// Counts a round.
    #[cfg(test)]
    pub(crate) fn come_round(&self) {
        self.rounds.note_one();
    }
}

impl OnShard {
    /// Counts a stream of the connection.
    pub(super) fn stream(&self) -> StreamOnShard {
        self.load.streams.fetch_add(1, Ordering::Relaxed);
        StreamOnShard(self.load.clone())
    }

    /// Returns the runtime of load reports.
    pub(super) fn loads(&self) -> &Handle {
        &self.loads
    }

    /// Returns the turns of connections that open streams there.
    pub(super) fn openings(&self) -> &Arc<OpeningTurns> {
        &self.openings
    }
}

impl Drop for OnShard {
    fn drop(&mut self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for StreamOnShard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Future for Served {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop) // a panic is logged, and ends this connection alone
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;
    use crate::telemetry::{WorkerHealth, WorkerWatch};

    const LONG: Duration = Duration::from_secs(20);

    fn started(count: usize) -> Arc<Shards> {
        Shards::start(count).unwrap().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_thread_of_load_reports_has_little_weight_beside_those_of_connections() {
        let shards = started(1);
        let nice_of = |shard: &Shard| {
            let (tell, told) = mpsc::channel();
            shard.runtime.spawn(async move { tell.send(rustix::process::getpriority_process(None).unwrap()) });
            told.recv_timeout(LONG).expect("the thread runs")
        };
        let own = rustix::process::getpriority_process(None).unwrap();
        assert_eq!([nice_of(&shards.shards[0]), nice_of(&shards.loads)], [own, (own + 10).min(19)]);
    }

    fn loads(shards: &Shards) -> Vec<usize> {
        shards.shards.iter().map(|shard| shard.figures.load()).collect()
    }

    /// Like [`Shards::enter`], if none is late: on a busy machine one may be.
    fn enter(shards: &Shards) -> OnShard {
        shards.enter_unless(|_| false).1
    }

    /// Keeps the thread of a shard until the result is dropped.
    fn block(shard: &Shard) -> mpsc::SyncSender<()> {
        let ((end, ended), (begun, begins)) = (mpsc::sync_channel::<()>(1), mpsc::sync_channel(1));
        shard.runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        begins.recv_timeout(LONG).expect("the thread is free for it");
        end
    }

    async fn until(holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LONG, waiting).await.expect("never");
    }

    /// Changes come from other threads, and what thousands of connections send does not.
    #[tokio::test]
    async fn what_other_threads_wake_does_not_queue_up_behind_what_the_shard_always_has_to_do() {
        const WOKEN: usize = 100;
        const OWN: usize = 50;
        let (shards, polls, begun) = (started(1), Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let shard = &shards.shards[0];
        let end = block(shard);
        for _ in 0..OWN {
            let (polls, mut not_begun) = (polls.clone(), Some(begun.clone()));
            shard.runtime.spawn(std::future::poll_fn(move |cx| {
                not_begun.take();
                polls.fetch_add(1, Ordering::Relaxed);
                cx.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            }));
        }
        end.send(()).unwrap();
        until(|| Arc::strong_count(&begun) == 1).await;
        let end = block(shard);
        let before = polls.load(Ordering::Relaxed);
        let woken: Vec<_> = (0..WOKEN)
            .map(|_| {
                let ((tell, told), polls) = (oneshot::channel(), polls.clone());
                shard.runtime.spawn(async move { tell.send(polls.load(Ordering::Relaxed)) });
                told
            })
            .collect();
        end.send(()).unwrap();
        let mut last = 0;
        for told in woken {
            last = timeout(LONG, told).await.expect("it runs").unwrap();
        }
        let between = last - before;
        assert!(between <= 10 * WOKEN, "{between} polls of its own");
    }

    #[test]
    fn the_shard_with_least_is_chosen_and_those_with_as_much_take_turns() {
        assert_eq!(least_loaded(&[3, 1, 2], 0), 1);
        assert_eq!(least_loaded(&[3, 1, 2], 2), 1);
        assert_eq!([0, 1, 2, 3].map(|from| least_loaded(&[1, 1, 4, 1], from)), [0, 1, 3, 3]);
        assert_eq!(least_loaded(&[7], 0), 0);
    }

    #[test]
    fn there_is_a_shard_for_each_processor_unless_few_files_may_be_open() {
        let processors = thread::available_parallelism().unwrap().get();
        assert_eq!(default_shards(usize::MAX), processors.min(256));
        assert_eq!(default_shards(2 * 64 + 63), processors.min(2));
        assert_eq!(default_shards(0), 1);
    }

    #[tokio::test]
    async fn connections_and_their_streams_are_spread_evenly_and_count_until_they_end() {
        for count in [2, 7] {
            let shards = started(count);
            let burst: Vec<_> = (0..1000).map(|_| enter(&shards)).collect();
            let of_burst = loads(&shards);
            assert!(of_burst.iter().max().unwrap() - of_burst.iter().min().unwrap() <= 1, "{of_burst:?}");
            drop(burst);
            assert_eq!(loads(&shards), vec![0; count]);
            // Each opens its streams, 1 to 50 of them, before the next one comes.
            let (mut connections, mut streams) = (Vec::new(), Vec::new());
            for number in 0..1000 {
                let connection = enter(&shards);
                streams.extend((0..1 + number * 37 % 50).map(|_| connection.stream()));
                connections.push(connection);
            }
            let of_each = |of: fn(&ShardFigures) -> usize| shards.figures().map(|it| of(&it)).collect::<Vec<_>>();
            let (connected, open) = (of_each(ShardFigures::connections), of_each(ShardFigures::streams));
            assert_eq!(connected.iter().sum::<usize>(), connections.len());
            assert_eq!(open.iter().sum::<usize>(), streams.len());
            let mean = streams.len() / count; // and none is on the thread of load reports
            assert!(open[..count].iter().all(|open| open.abs_diff(mean) * 5 <= mean) && open[count] == 0, "{open:?}");
            drop((connections, streams));
            assert_eq!(loads(&shards), vec![0; count]);
        }
    }

    #[tokio::test]
    async fn a_shard_whose_thread_has_ended_gets_no_connection() {
        let mut shards = started(2);
        let (ended, _) = watch::channel(());
        Arc::get_mut(&mut shards).unwrap().shards[0].until_dropped = ended;
        let _kept: Vec<_> = (0..10).map(|_| enter(&shards)).collect();
        assert_eq!(loads(&shards), [0, 10]);
        let _late: Vec<_> = (0..10).map(|_| shards.enter_unless(|_| true).1).collect();
        assert_eq!(loads(&shards), [0, 20], "rather one that is late");
    }

    #[tokio::test]
    async fn a_shard_that_is_late_gets_no_connection_unless_all_are() {
        let shards = started(2);
        let first_is_late = |shard: &Shard| std::ptr::eq(shard, &shards.shards[0]);
        let _kept: Vec<_> = (0..10).map(|_| shards.enter_unless(first_is_late).1).collect();
        assert_eq!(loads(&shards), [0, 10]);
        let _others: Vec<_> = (0..20).map(|_| shards.enter_unless(|_| true).1).collect();
        assert_eq!(loads(&shards), [15, 15]);
    }

    #[tokio::test]
    async fn a_shard_whose_thread_is_kept_is_late_until_it_comes_round_again() {
        let shards = started(2);
        let [first, second] = &*shards.shards else { panic!("two") };
        let (first, second) = (&first.figures.rounds, &second.figures.rounds);
        let kept = block(&shards.shards[0]);
        until(|| first.are_late(Instant::now()) && !second.are_late(Instant::now())).await;
        let before = (first.count(), second.count());
        until(|| second.count() > before.1 + 10).await;
        assert_eq!(first.count(), before.0);
        drop(kept);
        until(|| first.count() > before.0 && !first.are_late(Instant::now())).await;
    }

    /// By the text that `/healthz` has.
    #[tokio::test]
    async fn a_thread_that_has_ended_is_named_as_one_that_does_not_answer() {
        let shards = started(2);
        let health = Arc::new(WorkerHealth::with_shards(shards.figures().collect()));
        let _watch = WorkerWatch::start(health.clone(), Some(Duration::from_secs(1)), || {}).unwrap();
        Shard::end([&shards.shards[1]], LONG).await;
        until(|| health.hang().is_some_and(|what| what.starts_with("shard 1 has not answered for "))).await;
    }

    #[tokio::test]
    async fn a_connection_and_its_tasks_have_one_thread_and_a_panic_ends_it_alone() {
        let shards = started(1);
        let name = || thread::current().name().map(str::to_owned);
        for panics in [true, false] {
            let (tell, told) = oneshot::channel();
            let served = shards.serve(|place| async move {
                let own = tokio::spawn(async move { name() }).await.unwrap();
                let _ = tell.send((name(), own));
                assert!(!panics, "on purpose");
                drop(place);
            });
            let on_shard = Some("weir-shard-0".to_owned());
            assert_eq!(tokio::time::timeout(LONG, told).await.unwrap().unwrap(), (on_shard.clone(), on_shard));
            tokio::time::timeout(LONG, served).await.unwrap();
            assert_eq!(loads(&shards), [0]);
        }
    }

    #[tokio::test]
    async fn a_connection_ends_with_who_waits_for_it_and_with_all_shards() {
        let shards = started(2);
        let endless = |shards: &Shards| {
            let (held, ends) = oneshot::channel::<()>();
            let served = shards.serve(|place| async move {
                let _held = (held, place);
                std::future::pending::<()>().await;
            });
            (served, ends)
        };
        let (served, ends) = endless(&shards);
        drop(served);
        assert!(tokio::time::timeout(LONG, ends).await.unwrap().is_err());
        let (_served, ends) = endless(&shards);
        drop(shards);
        assert!(tokio::time::timeout(LONG, ends).await.unwrap().is_err());
    }

    /// What is dropped slowly.
    struct Slow(Arc<AtomicUsize>);

    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(50));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn at_the_end_nothing_is_left_of_connections_and_a_thread_that_hangs_is_not_waited_for() {
        let (shards, dropped) = (started(2), Arc::<AtomicUsize>::default());
        for shard in shards.shards.iter() {
            let slow = Slow(dropped.clone());
            shard.runtime.spawn(async move {
                let _slow = slow;
                std::future::pending::<()>().await;
            });
        }
        shards.end(LONG).await;
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        assert!(shards.shards.iter().all(|shard| shard.until_dropped.is_closed()));

        let hung = started(2);
        let kept = block(&hung.shards[0]);
        timeout(LONG, hung.end(Duration::from_millis(100))).await.expect("it waits for a thread that hangs");
        drop(kept);
        hung.end(LONG).await;
        assert!(hung.shards.iter().all(|shard| shard.until_dropped.is_closed()));
    }
}

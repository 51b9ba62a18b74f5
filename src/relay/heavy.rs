//! Work that takes so long that other tasks would notice: for example, work on 100,000 names of one client. That of a session goes to another
//! thread, of little weight. That of a view stays, and another thread runs the other tasks of its worker meanwhile. In both cases the kernel
//! divides the time between the two. Work that can wait takes turns, so that little runs at a time.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};

use super::background_threads::BackgroundThreads;
use crate::shared_runtime;

/// The turns for what takes long: the work of views on many names, inflating large requests, and compressing replies.
#[derive(Debug, Clone)]
pub(crate) struct HeavyTurns(Arc<Semaphore>);

/// A turn, until this is dropped. Its holder must not wait for anything.
pub(crate) type HeavyTurn = OwnedSemaphorePermit;

impl HeavyTurns {
    /// Half as many as there are workers.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new((workers() / 2).max(1))))
    }

    /// Half as many views as there are workers may work on many names, and at least two. So there is a thread for each view, and two are left for
    /// sessions of the hub and of polls. Work without a thread would keep its worker.
    pub(crate) fn of_views() -> Self {
        Self(Arc::new(Semaphore::new(views_at_work())))
    }

    /// Waits for a turn for work with so many names. Work with few names needs none.
    pub(crate) async fn turn(&self, names: usize) -> Option<HeavyTurn> {
        if names < HEAVY {
            return None;
        }
        self.next().await
    }

    /// Waits for a turn, whatever the amount of work.
    pub(crate) async fn next(&self) -> Option<HeavyTurn> {
        self.0.clone().acquire_owned().await.ok() // never closed
    }

    /// Returns so many turns.
    #[cfg(test)]
    pub(crate) fn of(turns: usize) -> Self {
        Self(Arc::new(Semaphore::new(turns)))
    }
}

/// Runs work with so many names. If they are many, other tasks of the same worker run meanwhile.
pub(crate) fn beside_others<T>(names: usize, work: impl FnOnce() -> T) -> T {
    THREADS.beside_others(names, work)
}

/// What is done apart. Each kind has threads of its own, so that replies do not wait for the requests of all others.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeavyKind {
    Request,
    /// A reply, or the end of a session.
    Reply,
}

/// A thread for work on many names of a session, until this is dropped. There are few, so this is the turn of such work too.
pub(crate) struct ThreadApart {
    _until_dropped: SemaphorePermit<'static>,
}

impl ThreadApart {
    /// Waits until one is free for work with so many names.
    pub(crate) async fn free(kind: HeavyKind, names: usize) -> Self {
        match threads(kind, names).acquire().await {
            Ok(thread) => Self { _until_dropped: thread },
            Err(_) => std::future::pending().await, // they are never closed
        }
    }

    /// Does the work on it. Once begun, the work is completed, even if no caller waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        let job = shared_runtime::entered(move || {
            let _ = tell.send(std::panic::catch_unwind(AssertUnwindSafe(work))); // fails if no caller waits for it
            self
        });
        if let Err(job) = BACKGROUND.run(Box::new(job)) {
            shared_runtime::spawn_blocking(job);
        }
        match told.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await, // the process is stopping
        }
    }
}

static BACKGROUND: BackgroundThreads<ThreadApart> = BackgroundThreads::none();

/// The threads that heavy work may use besides the workers.
#[derive(Debug)]
struct Threads {
    taken: AtomicUsize,
    most: usize,
}

/// One of these threads, in use until this is dropped.
struct Thread<'a>(&'a Threads);

impl Threads {
    /// Each thread costs memory of the allocator. Besides views, two sessions of the hub or of polls may have a thread.
    fn new() -> Self {
        Self { taken: AtomicUsize::new(0), most: views_at_work() + 2 }
    }

    fn beside_others<T>(&self, names: usize, work: impl FnOnce() -> T) -> T {
        let has_workers = || {
            let is_worker = |it: Handle| it.runtime_flavor() == RuntimeFlavor::MultiThread;
            Handle::try_current().is_ok_and(is_worker) && !shared_runtime::is_elsewhere()
        };
        let is_heavy = names >= HEAVY && has_workers();
        let Some(_thread) = is_heavy.then(|| self.take()).flatten() else { return work() };
        tokio::task::block_in_place(work)
    }

    /// Returns `None` if all threads are in use. The work then keeps its worker.
    fn take(&self) -> Option<Thread<'_>> {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Thread(self))
    }
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The threads of the process.
static THREADS: LazyLock<Threads> = LazyLock::new(Threads::new);
/// The threads for requests, for replies, and for both if they have very many names. Each costs memory of the allocator, and takes time from views.
static APART: LazyLock<[Semaphore; 3]> = LazyLock::new(|| [(); 3].map(|()| Semaphore::new(threads_apart())));

fn threads(kind: HeavyKind, names: usize) -> &'static Semaphore {
    match kind {
        _ if names >= HUGE => &APART[0],
        HeavyKind::Request => &APART[1],
        HeavyKind::Reply => &APART[2],
    }
}

fn threads_apart() -> usize {
    (workers() / 2).max(1)
}

fn views_at_work() -> usize {
    (workers() / 2).max(2)
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// With fewer names, the work takes only a few milliseconds, and handing the worker over is not worth it.
pub(crate) const HEAVY: usize = 1024;
/// With fewer names, the work takes some ten milliseconds.
const HUGE: usize = 16 << 10;

/// Takes all threads of the process, once other tests have none.
#[cfg(test)]
pub(crate) async fn all_threads(kind: HeavyKind, names: usize) -> SemaphorePermit<'static> {
    let all = u32::try_from(threads_apart()).expect("a few");
    threads(kind, names).acquire_many(all).await.expect("never closed")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn apart<T: Send + 'static>(names: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        ThreadApart::free(HeavyKind::Request, names).await.run(work).await
    }

    /// With a single worker, a task that keeps it and waits for another task waits for ever.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn heavy_work_does_not_keep_its_worker_and_light_work_does() {
        let threads = Arc::new(Threads::new()); // other tests have work beside others too
        for (names, others_run) in [(HEAVY, true), (HEAVY - 1, false)] {
            let threads = threads.clone();
            let heavy = tokio::spawn(async move {
                let (to, from) = mpsc::channel();
                tokio::spawn(async move { to.send(()) });
                let patience = if others_run { PATIENCE } else { Duration::from_millis(100) };
                threads.beside_others(names, || from.recv_timeout(patience)).is_ok()
            });
            assert_eq!(heavy.await.unwrap(), others_run, "{names}");
        }
        assert_eq!(threads.taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn views_that_have_much_to_do_leave_threads_to_others_and_keep_no_other_view_waiting() {
        let views = HeavyTurns::of_views();
        let mut at_work = Vec::new();
        for _ in 0..views_at_work() {
            at_work.push(views.turn(HEAVY).await);
        }
        assert!(at_work.iter().all(Option::is_some) && at_work.len() < Threads::new().most);
        assert!(tokio::time::timeout(Duration::from_millis(20), views.turn(HEAVY)).await.is_err());
        assert!(views.turn(HEAVY - 1).await.is_none(), "it has nothing to wait for");
        drop(at_work);
        assert!(views.turn(HEAVY).await.is_some());
    }

    #[tokio::test]
    async fn work_with_many_names_does_not_wait_for_work_with_very_many() {
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = mpsc::channel::<()>();
        let huge = tokio::spawn(apart(HUGE, move || {
            let _ = begun.send(());
            ends.recv_timeout(PATIENCE).is_ok()
        }));
        begins.await.unwrap();
        let heavy = tokio::time::timeout(PATIENCE, apart(HUGE - 1, || 7));
        assert_eq!(heavy.await, Ok(7));
        end.send(()).unwrap();
        assert!(huge.await.unwrap());
    }

    #[tokio::test]
    async fn where_there_is_one_thread_alone_the_work_is_done_in_place() {
        assert_eq!(beside_others(HEAVY, || 7), 7);
    }

    /// The other task has the only thread of its runtime.
    #[tokio::test]
    async fn a_thread_with_a_runtime_of_its_own_runs_others_during_heavy_work() {
        let shared = Handle::current();
        let (tell, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            shared_runtime::set_beside_this_thread(shared, runtime.handle().clone());
            let done = runtime.block_on(async {
                let (to, from) = mpsc::channel();
                tokio::spawn(async move { to.send(()) });
                apart(HEAVY, move || from.recv_timeout(PATIENCE).is_ok()).await
            });
            let _ = tell.send(done);
        });
        assert_eq!(told.await, Ok(true));
    }

    #[tokio::test]
    async fn a_panic_of_work_that_is_done_apart_is_one_of_who_waits_for_it() {
        let waits = tokio::spawn(apart::<()>(HEAVY, || panic!("on purpose")));
        assert!(waits.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn a_thread_is_taken_until_its_work_is_over_although_nobody_waits_for_it() {
        let (end, ended) = mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let waits = tokio::spawn(apart(HUGE, move || {
            let _ = begun.send(());
            let _ = ended.recv_timeout(PATIENCE);
        }));
        begins.await.unwrap();
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        let all = all_threads(HeavyKind::Request, HUGE);
        assert!(tokio::time::timeout(Duration::from_millis(20), all).await.is_err());
        drop(end);
        drop(all_threads(HeavyKind::Request, HUGE).await);
    }

    #[tokio::test]
    async fn replies_do_not_wait_for_requests() {
        let _requests = all_threads(HeavyKind::Request, HEAVY).await;
        let reply = ThreadApart::free(HeavyKind::Reply, HEAVY);
        assert!(tokio::time::timeout(PATIENCE, reply).await.is_ok());
    }

    #[tokio::test]
    async fn a_large_request_waits_for_another_one_and_a_small_one_does_not() {
        let turns = HeavyTurns::of(1);
        let first = turns.turn(HEAVY).await;
        assert!(first.is_some() && turns.turn(HEAVY - 1).await.is_none());
        assert!(tokio::time::timeout(Duration::from_millis(20), turns.turn(HEAVY)).await.is_err());
        drop(first);
        assert!(turns.turn(HEAVY).await.is_some());
    }
}

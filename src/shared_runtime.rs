//! The runtime that all share. Connections of clients may live on threads with runtimes of their own; what outlives a connection there, or serves
//! others too, runs on the shared one: views, what goes upstream, and work that blocks its thread.

use std::cell::OnceCell;
use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};

thread_local! {
    /// On a thread that has a runtime of its own: the shared one, and its own.
    static BESIDE: OnceCell<(Handle, OwnRuntime)> = const { OnceCell::new() };
}

/// The runtime of a thread that has one of its own.
#[derive(Debug, Clone)]
pub(crate) struct OwnRuntime(Arc<Handle>);

/// Declares that this thread has a runtime of its own, and which one is shared.
pub(crate) fn set_beside_this_thread(shared: Handle, own: Handle) {
    BESIDE.with(|beside| {
        let _ = beside.set((shared, OwnRuntime(Arc::new(own)))); // once for each thread
    });
}

/// Returns the runtime of this thread, if it has one of its own.
pub(crate) fn own() -> Option<OwnRuntime> {
    beside_this_thread().map(|(_, own)| own)
}

/// Spawns a task on the shared runtime.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    shared().spawn(task)
}

/// Runs a task on the shared runtime, until this is dropped. `None`: it has panicked, or the runtime is ending.
pub(crate) async fn run<F>(task: F) -> Option<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut running = JoinSet::new();
    running.spawn_on(task, &shared());
    running.join_next().await?.ok()
}

/// Runs work that blocks its thread, on a thread that the shared runtime has for such work.
pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    shared().spawn_blocking(work)
}

/// Returns work for a thread without a runtime. Its tasks and timers go to the shared one.
pub(crate) fn entered<T>(work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T + Send + 'static {
    let shared = shared();
    move || {
        let _entered = shared.enter();
        work()
    }
}

/// Runs code on this thread whose tasks and timers go to the shared runtime. It must not call `block_in_place`.
pub(crate) fn within<T>(work: impl FnOnce() -> T) -> T {
    let Some((shared, _)) = beside_this_thread() else { return work() };
    let _entered = shared.enter();
    work()
}

/// Whether this thread has a runtime of its own, and not the shared one.
pub(crate) fn is_elsewhere() -> bool {
    beside_this_thread().is_some()
}

fn shared() -> Handle {
    beside_this_thread().map_or_else(Handle::current, |(shared, _)| shared)
}

fn beside_this_thread() -> Option<(Handle, OwnRuntime)> {
    BESIDE.try_with(|beside| beside.get().cloned()).ok().flatten() // a thread that ends has none
}

impl OwnRuntime {
    /// Returns a runtime that a test runs by itself.
    #[cfg(test)]
    pub(crate) fn of(runtime: Handle) -> Self {
        Self(Arc::new(runtime))
    }

    /// Whether both are of the same thread.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Spawns a task on it. If it has ended, the task is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use futures_util::FutureExt;
    use tokio::runtime::Builder;

    use super::*;

    async fn panics() {
        panic!("on purpose")
    }

    async fn thread_of(task: JoinHandle<ThreadId>) -> ThreadId {
        task.await.unwrap()
    }

    #[tokio::test]
    async fn without_another_runtime_the_current_one_is_shared() {
        assert!(!is_elsewhere());
        let own = thread::current().id();
        assert_eq!(thread_of(spawn(async { thread::current().id() })).await, own);
        assert_eq!(thread_of(within(|| tokio::spawn(async { thread::current().id() }))).await, own);
    }

    #[tokio::test]
    async fn what_runs_on_the_shared_runtime_ends_with_who_waits_for_it() {
        let (held, ended) = tokio::sync::oneshot::channel::<()>();
        let mut running = Box::pin(run(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        assert!(running.as_mut().now_or_never().is_none());
        drop(running);
        assert!(ended.await.is_err());
    }

    #[tokio::test]
    async fn from_a_thread_with_another_runtime_tasks_and_blocking_work_go_to_the_shared_one() {
        let (shared, own) = (Handle::current(), thread::current().id());
        let (tell, told) = tokio::sync::oneshot::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            set_beside_this_thread(shared, runtime.handle().clone());
            let threads = runtime.block_on(async {
                assert!(is_elsewhere());
                let here = thread::current().id();
                let by_itself = thread_of(tokio::spawn(async { thread::current().id() })).await;
                assert_eq!(by_itself, here);
                let spawned = thread_of(spawn(async { thread::current().id() })).await;
                assert_eq!(run(async { thread::current().id() }).await, Some(spawned));
                assert_eq!(run(panics()).await, None);
                let entered = thread_of(within(|| tokio::spawn(async { thread::current().id() }))).await;
                // True if this thread's own runtime, and not the shared one, had made the thread for blocking work.
                let is_shard = spawn_blocking(is_elsewhere).await.unwrap();
                (spawned, entered, is_shard)
            });
            let _ = tell.send(threads);
        });
        assert_eq!(told.await.unwrap(), (own, own, false));
    }
}

//! The runtime that all share. Connections of clients may live on threads with runtimes of their own; what outlives a connection there, or serves
//! others too, runs on the shared one: views, what goes upstream, and work that blocks its thread.

use std::cell::OnceCell;
use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

thread_local! {
    /// The shared runtime, on a thread that has another one.
    static BESIDE: OnceCell<Handle> = const { OnceCell::new() };
}

/// Says that the runtime of this thread is for connections alone, and which one is shared.
pub(crate) fn set_beside_this_thread(shared: Handle) {
    BESIDE.with(|beside| {
        let _ = beside.set(shared); // once for each thread
    });
}

/// Spawns a task on it.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    shared().spawn(task)
}

/// Runs work that blocks its thread on one of its threads for that.
pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    shared().spawn_blocking(work)
}

/// Runs something here whose tasks and timers are to be on it. It must not call for a thread in place of its own.
pub(crate) fn within<T>(work: impl FnOnce() -> T) -> T {
    let Some(shared) = beside_this_thread() else { return work() };
    let _entered = shared.enter();
    work()
}

/// Whether the runtime of this thread is another one.
pub(crate) fn is_elsewhere() -> bool {
    beside_this_thread().is_some()
}

fn shared() -> Handle {
    beside_this_thread().unwrap_or_else(Handle::current)
}

fn beside_this_thread() -> Option<Handle> {
    BESIDE.try_with(|beside| beside.get().cloned()).ok().flatten() // a thread that ends has none
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use tokio::runtime::Builder;

    use super::*;

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
    async fn from_a_thread_with_another_runtime_tasks_and_blocking_work_go_to_the_shared_one() {
        let (shared, own) = (Handle::current(), thread::current().id());
        let (tell, told) = tokio::sync::oneshot::channel();
        thread::spawn(move || {
            set_beside_this_thread(shared);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let threads = runtime.block_on(async {
                assert!(is_elsewhere());
                let here = thread::current().id();
                let by_itself = thread_of(tokio::spawn(async { thread::current().id() })).await;
                assert_eq!(by_itself, here);
                let spawned = thread_of(spawn(async { thread::current().id() })).await;
                let entered = thread_of(within(|| tokio::spawn(async { thread::current().id() }))).await;
                // It would be a shard if this runtime had made the thread.
                let is_shard = spawn_blocking(is_elsewhere).await.unwrap();
                (spawned, entered, is_shard)
            });
            let _ = tell.send(threads);
        });
        assert_eq!(told.await.unwrap(), (own, own, false));
    }
}

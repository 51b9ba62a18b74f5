//! A runtime with one thread, for clients that must not wait for the others of a benchmark.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// The runtime ends when this is dropped.
pub struct OwnThread {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl OwnThread {
    pub fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(task)
    }

    /// Calls `start`; the tasks that it spawns run on the thread.
    pub fn enter<T>(&self, start: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        start()
    }
}

impl Drop for OwnThread {
    /// A runtime that is simply dropped blocks, which a task must not.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

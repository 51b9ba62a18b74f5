//! Threads for long work for which only its own client waits. Where the kernel can do it, they have little weight: a view on the same core,
//! for which all its clients wait, gets nine tenths of the time.

use std::sync::mpsc::{self, SendError, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Work for one of these threads. Its result is dropped once the thread is free for other work.
pub(super) type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// Threads that wait for work. A thread stays for the next work, so there are as many as had work at the same time.
#[derive(Debug)]
pub(super) struct BackgroundThreads<T: 'static> {
    idle: Mutex<Vec<SyncSender<Job<T>>>>,
}

impl<T: Send + 'static> BackgroundThreads<T> {
    pub(super) const fn none() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    /// Begins the work on a thread that is idle, or on a new one. Gives the work back if no thread can be made.
    pub(super) fn run(&'static self, job: Job<T>) -> Result<(), Job<T>> {
        match self.take_idle() {
            Some(thread) => thread.send(job).or_else(|SendError(job)| self.run_on_new(job)),
            None => self.run_on_new(job),
        }
    }

    fn run_on_new(&'static self, job: Job<T>) -> Result<(), Job<T>> {
        let (to, jobs) = mpsc::sync_channel::<Job<T>>(1); // an idle thread has taken what it was given
        let again = to.clone();
        let work = move || {
            have_little_weight();
            for job in jobs {
                let done = job();
                self.put_idle(again.clone());
                drop(done);
            }
        };
        match thread::Builder::new().name(NAME.into()).spawn(work) {
            Ok(_) => to.send(job).map_err(|SendError(job)| job),
            Err(_) => Err(job),
        }
    }

    fn take_idle(&self) -> Option<SyncSender<Job<T>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put_idle(&self, thread: SyncSender<Job<T>>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
}

/// Lets the threads of views and connections go first on the core of this thread. On other systems a nice value is of the whole process.
#[cfg(target_os = "linux")]
pub(crate) fn have_little_weight() {
    let _ = rustix::process::nice(NICE); // a system that does not allow it gives equal time
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn have_little_weight() {}

#[cfg(target_os = "linux")]
const NICE: i32 = 10;
const NAME: &str = "weir-background";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::Sender;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Returns the name of the thread that does the work, and its nice value.
    fn thread_of(threads: &'static BackgroundThreads<Sender<()>>) -> (thread::ThreadId, i32) {
        let (tell, told) = mpsc::channel();
        let (free, freed) = mpsc::channel();
        let job = move || {
            #[cfg(target_os = "linux")]
            let nice = rustix::process::getpriority_process(None).unwrap();
            #[cfg(not(target_os = "linux"))]
            let nice = 0;
            let _ = tell.send((thread::current().id(), nice));
            free
        };
        assert!(threads.run(Box::new(job)).is_ok());
        let of = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(freed.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "the thread is idle");
        of
    }

    #[test]
    fn a_thread_stays_for_the_next_work_and_has_little_weight_and_this_one_keeps_its_own() {
        static THREADS: BackgroundThreads<Sender<()>> = BackgroundThreads::none();
        let [one, other] = [thread_of(&THREADS), thread_of(&THREADS)];
        assert_eq!(one, other);
        #[cfg(target_os = "linux")]
        {
            let own = rustix::process::getpriority_process(None).unwrap();
            assert_eq!(one.1, (own + NICE).min(19));
        }
    }

    #[test]
    fn work_that_comes_at_the_same_time_has_a_thread_each() {
        static THREADS: BackgroundThreads<()> = BackgroundThreads::none();
        let both = Arc::new(std::sync::Barrier::new(3));
        for _ in 0..2 {
            let both = both.clone();
            assert!(THREADS.run(Box::new(move || _ = both.wait())).is_ok());
        }
        both.wait(); // one thread would wait for itself
    }
}

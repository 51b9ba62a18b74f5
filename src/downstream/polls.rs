//! How long one poll of a connection or of a task of its streams keeps the thread of a shard. Some polls are measured, by the processor time of
//! the thread: what others do on the machine is not in it. Elsewhere nothing is measured.

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use nix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use crate::relay::deliveries::{Bounds, Histogram, HistogramCounts, Writers};

/// The measured polls of one shard.
#[derive(Debug, Default, Clone)]
pub(super) struct Polls(Arc<OwnLines>);

/// Written by the thread of the shard alone.
#[derive(Debug)]
#[repr(align(128))] // nothing else on its cache lines, nor on those that are fetched together with them
struct OwnLines(Histogram);

/// Measures the polls of a task if it is on the thread of a shard.
pub(super) struct Timed<F>(Pin<Box<F>>);

/// Spawns the tasks of streams for the HTTP library, on the runtime of their connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spawner;

/// The polls of the thread of a shard, and how many are left until the next one that is measured.
struct OfThread {
    polls: Polls,
    left: Cell<u32>,
}

/// A poll that is measured.
struct Measured {
    polls: Polls,
    begun: Duration,
}

thread_local! {
    static OF_THREAD: OnceCell<OfThread> = const { OnceCell::new() };
}

/// Declares that this thread is that of a shard.
pub(super) fn measure_on_this_thread(polls: Polls) {
    OF_THREAD.with(|of| {
        let _ = of.set(OfThread { polls, left: Cell::new(ONE_OF) }); // once for each thread
    });
}

/// Spawns a task on the runtime of this thread. On a shard, its polls are measured.
pub(super) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match OF_THREAD.with(|of| of.get().is_some()) {
        true => tokio::spawn(timed(task)),
        false => tokio::spawn(task),
    }
}

/// Returns a task whose polls are measured if it is on the thread of a shard.
pub(super) fn timed<F: Future>(task: F) -> Timed<F> {
    Timed(Box::pin(task))
}

/// Returns how much processor time this thread has had.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default() // each system that Weir runs on has it
}

impl Polls {
    pub(super) fn counts(&self) -> HistogramCounts {
        self.0.0.counts()
    }
}

impl Default for OwnLines {
    fn default() -> Self {
        Self(Histogram::with_bounds(&BOUNDS))
    }
}

impl OfThread {
    /// Whether the next poll is measured.
    fn is_due(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(if left == 0 { ONE_OF } else { left });
        left == 0
    }
}

impl Measured {
    /// Begins to measure a poll of this thread, if it is one that is measured.
    fn begin() -> Option<Self> {
        let polls = OF_THREAD.with(|of| of.get().filter(|of| of.is_due()).map(|of| of.polls.clone()))?;
        Some(Self { polls, begun: processor_time() })
    }

    fn end(self) {
        self.polls.0.0.observe(processor_time().saturating_sub(self.begun), Writers::One);
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let measured = Measured::begin();
        let polled = self.0.as_mut().poll(cx);
        measured.into_iter().for_each(Measured::end);
        polled
    }
}

impl<F> Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        spawn(task);
    }
}

/// One of so many polls is measured: the clock takes a system call.
const ONE_OF: u32 = 64;

/// In microseconds.
const BOUNDS: Bounds = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    const LONG: Duration = Duration::from_millis(3);

    /// Runs a task that is polled so often, and does `work` in each poll. Returns what was measured.
    fn measured(is_shard: bool, times: u32, work: impl Fn(u32) + Send + 'static) -> HistogramCounts {
        let polls = Polls::default();
        let of_thread = polls.clone();
        let thread = thread::spawn(move || {
            if is_shard {
                measure_on_this_thread(of_thread);
            }
            Builder::new_current_thread().build().unwrap().block_on(async {
                let mut number = 0;
                let task = spawn(std::future::poll_fn(move |cx| {
                    number += 1;
                    work(number);
                    cx.waker().wake_by_ref();
                    if number < times { Poll::Pending } else { Poll::Ready(()) }
                }));
                task.await.unwrap();
            });
        });
        thread.join().unwrap();
        polls.counts()
    }

    fn keep_the_processor() {
        let until = processor_time() + LONG;
        while processor_time() < until {}
    }

    #[test]
    fn one_of_64_polls_is_measured_by_the_processor_time_of_its_thread() {
        let counts = measured(true, 3 * ONE_OF - 1, |number| match number {
            ONE_OF => keep_the_processor(),
            127 => keep_the_processor(), // not measured
            128 => thread::sleep(100 * LONG),
            _ => {}
        });
        let long = counts.buckets().filter(|(bound, _)| bound.is_none_or(|bound| bound >= LONG.as_secs_f64()));
        assert_eq!((counts.count(), long.map(|(_, count)| count).sum::<u64>()), (2, 1), "{counts:?}");
        assert!((0.003..0.3).contains(&counts.sum()), "{counts:?}");
    }

    #[test]
    fn on_other_threads_nothing_is_measured() {
        assert_eq!(measured(false, 3 * ONE_OF, |_| ()).count(), 0);
    }
}

//! Expositions of the metrics. Requests that come at about the same time share one: only one is made at a time, and at most four in a second.
//!
//! Always: an exposition has everything that happened before it was requested. So a request waits for the next one while one is being made.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::format::MetricsFormat;

/// The source of expositions. Clones share the expositions that are made.
#[derive(Clone)]
pub(crate) struct Exposition(Arc<Inner>);

struct Inner {
    make: Make,
    /// Where expositions are made, whichever thread requests them.
    runtime: Handle,
    /// How many expositions were begun.
    begun: AtomicU64,
    /// Locked while the next exposition is made; other requests wait for the lock.
    last: Mutex<Last>,
}

/// Makes one exposition, in OpenMetrics.
type Make = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// The last exposition, and when the last ones were begun.
#[derive(Debug, Default)]
struct Last {
    number: u64,
    open_metrics: Bytes,
    /// The text format, converted when it is first requested.
    text: Option<Bytes>,
    times: VecDeque<Instant>,
}

impl Exposition {
    /// Expositions are made on the current runtime.
    pub(crate) fn new<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = String> + Send + 'static,
    {
        let make: Make = Arc::new(move || Box::pin(make()));
        let (begun, last) = Default::default();
        Self(Arc::new(Inner { make, runtime: Handle::current(), begun, last }))
    }

    /// Returns the page; `None` if it was not made in time, or the relay is ending.
    pub(crate) async fn page(&self, format: MetricsFormat) -> Option<Bytes> {
        timeout(PATIENCE, self.next(format)).await.ok().flatten()
    }

    /// Returns the page of an exposition that begins after this call.
    async fn next(&self, format: MetricsFormat) -> Option<Bytes> {
        let before = self.0.begun.load(Ordering::SeqCst);
        let mut last = self.0.last.lock().await;
        if last.number <= before {
            if let Some(next) = last.next() {
                sleep_until(next).await;
            }
            last.begin();
            let number = self.0.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let (make, mut making) = (self.0.make.clone(), JoinSet::new()); // dropping this future ends the task
            making.spawn_on(async move { make().await }, &self.0.runtime);
            let made = making.join_next().await?.ok()?;
            (last.number, last.open_metrics, last.text) = (number, made.into(), None);
        }
        Some(last.page(format))
    }
}

impl Last {
    /// Returns when another exposition may begin; `None`: now.
    fn next(&self) -> Option<Instant> {
        (self.times.len() == AT_MOST).then(|| self.times[0] + IN)
    }

    fn begin(&mut self) {
        if self.times.len() == AT_MOST {
            self.times.pop_front();
        }
        self.times.push_back(Instant::now());
    }

    fn page(&mut self, format: MetricsFormat) -> Bytes {
        match format {
            MetricsFormat::OpenMetrics => self.open_metrics.clone(),
            MetricsFormat::Text => {
                let of_open_metrics =
                    || format.of_open_metrics(std::str::from_utf8(&self.open_metrics).unwrap_or_default());
                self.text.get_or_insert_with(|| of_open_metrics().into()).clone()
            }
        }
    }
}

/// At most this many are begun in this time.
const AT_MOST: usize = 4;
const IN: Duration = Duration::from_secs(1);
/// How long a request waits. An exposition takes much less, unless the worker threads hang; in tests, other tests may keep them busy.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 10 });

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    /// A count of events, and expositions of it, each of which ends when the test permits it.
    struct Bench {
        events: Arc<AtomicU64>,
        made: Arc<AtomicU64>,
        may_end: Arc<Semaphore>,
        exposition: Exposition,
    }

    impl Bench {
        fn new(may_end: usize) -> Self {
            let (events, made, may_end) =
                (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::new(Semaphore::new(may_end)));
            let of = (events.clone(), made.clone(), may_end.clone());
            let exposition = Exposition::new(move || {
                let (events, made, may_end) = of.clone();
                async move {
                    let seen = events.load(Ordering::SeqCst);
                    made.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.unwrap().forget();
                    format!("# TYPE events counter\nevents_total {seen}\n# EOF\n")
                }
            });
            Self { events, made, may_end, exposition }
        }

        /// Requests a page after an event. Returns whether the page has the event.
        fn ask(&self, format: MetricsFormat) -> impl Future<Output = bool> + use<> {
            let happened = self.events.fetch_add(1, Ordering::SeqCst) + 1;
            let exposition = self.exposition.clone();
            async move {
                let page = exposition.page(format).await.expect("it is made");
                let page = std::str::from_utf8(&page).unwrap();
                assert_eq!(page.ends_with("# EOF\n"), format == MetricsFormat::OpenMetrics);
                let seen = page.lines().find_map(|line| line.strip_prefix("events_total ")).unwrap();
                seen.parse::<u64>().unwrap() >= happened
            }
        }

        fn made(&self) -> u64 {
            self.made.load(Ordering::SeqCst)
        }

        async fn has_made(&self, count: u64) {
            let begins = async {
                while self.made() < count {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, begins).await.expect("it begins");
        }
    }

    #[tokio::test]
    async fn those_who_ask_while_one_is_made_share_the_next_which_has_what_they_have_done() {
        let bench = Bench::new(0);
        let first = tokio::spawn(bench.ask(MetricsFormat::Text));
        bench.has_made(1).await;
        let formats = [MetricsFormat::Text, MetricsFormat::OpenMetrics].into_iter().cycle();
        let others: Vec<_> = formats.take(50).map(|format| tokio::spawn(bench.ask(format))).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.made(), 1, "one at a time");
        bench.may_end.add_permits(2);
        assert!(first.await.unwrap());
        assert!(join_all(others).await.into_iter().all(Result::unwrap), "all see what happened before they asked");
        assert_eq!(bench.made(), 2);
    }

    #[tokio::test]
    async fn four_are_begun_in_a_second_however_many_ask_and_one_that_is_not_waited_for_ends() {
        let bench = Bench::new(1_000);
        let began = Instant::now();
        for _ in 0..9 {
            assert!(timeout(PATIENCE, bench.ask(MetricsFormat::Text)).await.expect("it is made"));
        }
        assert!(bench.made() == 9 && began.elapsed() >= 2 * IN, "{} in {:?}", bench.made(), began.elapsed());

        let bench = Bench::new(0);
        let gone = tokio::spawn(bench.ask(MetricsFormat::Text));
        bench.has_made(1).await;
        gone.abort();
        let next = tokio::spawn(bench.ask(MetricsFormat::Text));
        bench.has_made(2).await;
        bench.may_end.add_permits(1);
        assert!(next.await.unwrap(), "it did not wait for the first one");
    }
}

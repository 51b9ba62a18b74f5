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

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::shared_runtime;

/// All shards. When this is dropped, their threads end, and so do the connections that are left there.
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// The shard that the next connection goes to if all have the same load.
    next: Mutex<usize>,
}

struct Shard {
    runtime: Handle,
    load: Arc<Load>,
    /// Closed once the thread has ended.
    until_dropped: oneshot::Sender<()>,
}

/// The connections and streams of a shard.
#[derive(Debug, Default)]
struct Load(AtomicUsize);

/// A connection or a stream of a shard, until this is dropped.
#[derive(Debug)]
pub(super) struct OnShard(Arc<Load>);

/// A connection that a shard serves. It ends when this is dropped.
pub(super) struct Served(JoinHandle<()>);

impl Shards {
    /// Starts this many shards beside the current runtime. `None` for 0: connections live on the current runtime.
    pub(super) fn start(count: usize) -> io::Result<Option<Arc<Self>>> {
        if count == 0 {
            return Ok(None);
        }
        let shared = Handle::current();
        let shards = (0..count).map(|number| Shard::start(number, shared.clone())).collect::<io::Result<Box<[_]>>>();
        let fails = |error: io::Error| io::Error::new(error.kind(), format!("cannot start {count} shards: {error}"));
        Ok(Some(Arc::new(Self { shards: shards.map_err(fails)?, next: Mutex::new(0) })))
    }

    /// Serves a connection on the shard with the least load. `serving` gets what counts the connection there.
    pub(super) fn serve<F>(&self, serving: impl FnOnce(OnShard) -> F) -> Served
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (shard, place) = self.enter();
        Served(shard.runtime.spawn(serving(place)))
    }

    /// Chooses the shard of a connection, and counts it there. One at a time: otherwise connections that come together would go to the same shard.
    /// A shard whose thread has ended gets none while another is left.
    fn enter(&self) -> (&Shard, OnShard) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let loads: Vec<_> = self.shards.iter().map(Shard::load).collect();
        let chosen = least_loaded(&loads, *next);
        *next = (chosen + 1) % loads.len();
        let shard = &self.shards[chosen];
        (shard, OnShard::of(&shard.load))
    }
}

/// Returns the index of the least load: of equal ones, the first from `from` on, in a circle.
fn least_loaded(loads: &[usize], from: usize) -> usize {
    let in_turn = (0..loads.len()).map(|step| (from + step) % loads.len());
    in_turn.min_by_key(|shard| loads[*shard]).unwrap_or_default() // there is one
}

impl Shard {
    fn start(number: usize, shared: Handle) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (handle, (until_dropped, dropped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let run = move || {
            shared_runtime::set_beside_this_thread(shared, runtime.handle().clone());
            let _ = runtime.block_on(dropped); // it is never sent to
            runtime.shutdown_background();
        };
        thread::Builder::new().name(format!("weir-shard-{number}")).spawn(run)?;
        Ok(Self { runtime: handle, load: Arc::default(), until_dropped })
    }

    /// Returns the number of its connections and streams, or the maximum if its thread has ended.
    fn load(&self) -> usize {
        if self.until_dropped.is_closed() { usize::MAX } else { self.load.0.load(Ordering::Relaxed) }
    }
}

impl OnShard {
    fn of(load: &Arc<Load>) -> Self {
        load.0.fetch_add(1, Ordering::Relaxed);
        Self(load.clone())
    }

    /// Counts a stream of the same connection.
    pub(super) fn stream(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for OnShard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn started(count: usize) -> Arc<Shards> {
        Shards::start(count).unwrap().unwrap()
    }

    fn loads(shards: &Shards) -> Vec<usize> {
        shards.shards.iter().map(|shard| shard.load.0.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_shard_with_least_is_chosen_and_those_with_as_much_take_turns() {
        assert_eq!(least_loaded(&[3, 1, 2], 0), 1);
        assert_eq!(least_loaded(&[3, 1, 2], 2), 1);
        assert_eq!([0, 1, 2, 3].map(|from| least_loaded(&[1, 1, 4, 1], from)), [0, 1, 3, 3]);
        assert_eq!(least_loaded(&[7], 0), 0);
    }

    #[tokio::test]
    async fn connections_and_their_streams_are_spread_evenly_and_count_until_they_end() {
        let shards = started(3);
        let burst: Vec<_> = (0..1000).map(|_| shards.enter().1).collect();
        let of_burst = loads(&shards);
        assert!(of_burst.iter().max().unwrap() - of_burst.iter().min().unwrap() <= 1, "{of_burst:?}");
        drop(burst);
        assert_eq!(loads(&shards), [0; 3]);
        // Each opens its streams before the next one comes.
        let mut kept = Vec::new();
        for number in 0..1000 {
            let connection = shards.enter().1;
            kept.extend((0..1 + number * 37 % 50).map(|_| connection.stream()));
            kept.push(connection);
        }
        let (of_all, mean) = (loads(&shards), kept.len() / 3);
        assert!(of_all.iter().all(|load| load.abs_diff(mean) * 5 <= mean), "{of_all:?}");
        drop(kept);
        assert_eq!(loads(&shards), [0; 3]);
    }

    #[tokio::test]
    async fn a_shard_whose_thread_has_ended_gets_no_connection() {
        let mut shards = started(2);
        let (ended, _) = oneshot::channel();
        Arc::get_mut(&mut shards).unwrap().shards[0].until_dropped = ended;
        let _kept: Vec<_> = (0..10).map(|_| shards.enter().1).collect();
        assert_eq!(loads(&shards), [0, 10]);
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
}

//! Waking many sessions: all of one shard by one task there, except for a single one.
//!
//! Waking a task of a shard from another thread takes a system call each time, and the shard may be done with the first session before the next one
//! is woken. Then each stream of a connection is written separately. Sessions that are woken on the shard all have their turn before their connection.

use std::task::Waker;

use tokio::task::yield_now;

use crate::shared_runtime::OwnRuntime;

/// The tasks to be woken, by their shards. They are woken when this is dropped.
#[derive(Default)]
pub(super) struct Wakes(Vec<(OwnRuntime, Vec<Waker>)>);

impl Wakes {
    /// Adds a task of a shard. One of the shared runtime is woken at once.
    pub(super) fn add(&mut self, shard: Option<&OwnRuntime>, task: Waker) {
        let Some(shard) = shard else { return task.wake() };
        match self.0.iter_mut().find(|(known, _)| known.is(shard)) {
            Some((_, tasks)) => tasks.push(task),
            None => self.0.push((shard.clone(), vec![task])),
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        for (shard, tasks) in self.0.drain(..) {
            match tasks.len() {
                1 => tasks.into_iter().for_each(Waker::wake), // the same system call, without a task
                _ => shard.spawn(wake(tasks)),
            }
        }
    }
}

/// Wakes tasks of this thread, and lets others in between.
async fn wake(tasks: Vec<Waker>) {
    let mut tasks = tasks.into_iter();
    loop {
        tasks.by_ref().take(AT_A_TIME).for_each(Waker::wake);
        if tasks.as_slice().is_empty() {
            return;
        }
        yield_now().await;
    }
}

/// How many are woken before others have a turn.
const AT_A_TIME: usize = 128;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Wake;
    use std::thread::{self, ThreadId};

    use tokio::runtime::{Builder, Handle};
    use tokio::sync::oneshot;

    use super::*;
    use crate::shared_runtime;

    /// Writes down its number, and the thread that wakes it.
    struct Woken(usize, Arc<Mutex<Vec<(usize, ThreadId)>>>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push((self.0, thread::current().id()));
        }
    }

    #[tokio::test]
    async fn others_have_a_turn_after_so_many() {
        let woken = Arc::<Mutex<Vec<_>>>::default();
        let tasks = (0..3 * AT_A_TIME + 1).map(|number| Waker::from(Arc::new(Woken(number, woken.clone()))));
        let mut others = Vec::new();
        tokio::select! {
            biased;
            () = wake(tasks.collect()) => {}
            () = async {
                for _ in 0..9 {
                    others.push(woken.lock().unwrap().len());
                    yield_now().await;
                }
            } => {}
        }
        assert_eq!(others, [AT_A_TIME, 2 * AT_A_TIME, 3 * AT_A_TIME]);
        let numbers: Vec<_> = woken.lock().unwrap().iter().map(|(number, _)| *number).collect();
        assert!(numbers.iter().copied().eq(0..3 * AT_A_TIME + 1), "each once, in order: {numbers:?}");
    }

    #[test]
    fn the_only_one_of_a_shard_is_woken_without_its_shard_and_of_several_none_is() {
        let woken = Arc::<Mutex<Vec<_>>>::default();
        let task = |number| Waker::from(Arc::new(Woken(number, woken.clone())));
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().build().unwrap());
        let [first, second] = [0, 1].map(|at| OwnRuntime::of(runtimes[at].handle().clone()));
        let mut wakes = Wakes::default();
        for (number, shard) in [&first, &second, &second].into_iter().enumerate() {
            wakes.add(Some(shard), task(number));
        }
        assert!(woken.lock().unwrap().is_empty(), "they may have to be woken together");
        drop(wakes);
        let numbers = || woken.lock().unwrap().iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(), [0]);
        runtimes[1].block_on(yield_now());
        assert_eq!(numbers(), [0, 1, 2]);
    }

    #[tokio::test]
    async fn each_is_woken_on_its_own_shard_and_those_without_one_at_once() {
        let woken = Arc::<Mutex<Vec<_>>>::default();
        let task = |number| Waker::from(Arc::new(Woken(number, woken.clone())));
        let shards: Vec<_> = (0..2)
            .map(|_| {
                let ((tell, told), (end, ends)) = (std::sync::mpsc::sync_channel(1), oneshot::channel::<()>());
                let shared = Handle::current();
                let thread = thread::spawn(move || {
                    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                    shared_runtime::set_beside_this_thread(shared, runtime.handle().clone());
                    tell.send(shared_runtime::own().unwrap()).unwrap();
                    runtime.block_on(async { drop(ends.await) });
                });
                (told.recv().unwrap(), end, thread)
            })
            .collect();
        assert!(shared_runtime::own().is_none());
        let mut wakes = Wakes::default();
        for number in 0..6 {
            wakes.add(shards.get(number % 3).map(|(shard, ..)| shard), task(number));
        }
        let here = thread::current().id();
        assert_eq!(*woken.lock().unwrap(), [(2, here), (5, here)]);
        drop(wakes);
        while woken.lock().unwrap().len() < 6 {
            yield_now().await;
        }
        let mut woken = woken.lock().unwrap().clone();
        woken.sort_by_key(|(number, _)| *number);
        for (number, thread) in woken {
            assert_eq!(thread, shards.get(number % 3).map_or(here, |(.., shard)| shard.thread().id()), "{number}");
        }
        for (_, end, thread) in shards {
            drop(end);
            thread.join().unwrap();
        }
    }
}

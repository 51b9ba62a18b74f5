//! The periodic work of the memory account, in a thread of its own: reading what is counted elsewhere, comparing charges with the allocator,
//! reading the limit of the container again, and ending streams while others have no room.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{LiveBytes, Memory};

/// Returns bytes that are counted elsewhere.
type Sampled = Box<dyn Fn() -> usize + Send>;

/// Keeps the thread running until it is dropped.
pub(crate) struct MemoryWatch {
    _alive: mpsc::Sender<()>,
}

struct Watched {
    memory: Arc<Memory>,
    sampled: Sampled,
}

impl MemoryWatch {
    /// Starts the thread.
    pub(crate) fn start(memory: Arc<Memory>, sampled: Sampled, live: Option<LiveBytes>) -> io::Result<Self> {
        #[allow(clippy::disallowed_methods, reason = "nothing is sent")]
        let (alive, ended) = mpsc::channel();
        if let Some(live) = live {
            let _ = memory.allocator.set(live); // unless it is known
        }
        let watched = Watched { memory, sampled };
        thread::Builder::new().name("weir-memory".into()).spawn(move || watched.run(&ended))?;
        Ok(Self { _alive: alive })
    }
}

impl Watched {
    fn run(self, ended: &mpsc::Receiver<()>) {
        let (mut looked, mut compared, mut read) = (None, None, Some(Instant::now()));
        let mut compare_after = COMPARE;
        loop {
            let now = Instant::now();
            let is_due = |last: &mut Option<Instant>, after| {
                let is_due = last.is_none_or(|last: Instant| now - last >= after);
                is_due.then(|| *last = Some(now)).is_some()
            };
            if is_due(&mut looked, SAMPLE) {
                self.memory.note_sampled((self.sampled)());
            }
            if is_due(&mut compared, compare_after) {
                self.memory.compare();
                compare_after = rest_after(COMPARE, now.elapsed());
            }
            if is_due(&mut read, READ) {
                self.memory.read_limit();
            }
            self.memory.give_way(AT_A_TIME);
            if ended.recv_timeout(LOOK) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

/// Returns the pause before the next run of work that `took` so long. No other thread can allocate while it runs: looking through the heap of glibc
/// takes 0.2 s for 1 GiB of small blocks. So others lose at most a hundredth of their time.
fn rest_after(usual: Duration, took: Duration) -> Duration {
    usual.max(took.saturating_mul(100))
}

const LOOK: Duration = Duration::from_millis(100);
/// Streams that are ended each time: at most fifty a second.
const AT_A_TIME: usize = 5;
const SAMPLE: Duration = Duration::from_secs(1);
const COMPARE: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_others_waiting_takes_a_hundredth_of_their_time_at_most() {
        for (took, rests) in [(0, 10_000), (100, 10_000), (200, 20_000), (1500, 150_000)] {
            assert_eq!(rest_after(COMPARE, Duration::from_millis(took)), Duration::from_millis(rests), "{took}");
        }
        assert!(rest_after(COMPARE, Duration::MAX) >= COMPARE);
    }
}

//! What is done now and then, by a thread of its own: asking for what is counted elsewhere, comparing the book with the allocator, reading
//! the limit of the container again, and ending streams while others have no room.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{LiveBytes, Memory};

/// Returns bytes that are counted elsewhere.
type Sampled = Box<dyn Fn() -> usize + Send>;

/// Lets the thread run until it is dropped.
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
        loop {
            let now = Instant::now();
            let is_due = |last: &mut Option<Instant>, after| {
                let is_due = last.is_none_or(|last: Instant| now - last >= after);
                is_due.then(|| *last = Some(now)).is_some()
            };
            if is_due(&mut looked, SAMPLE) {
                self.memory.note_sampled((self.sampled)());
            }
            if is_due(&mut compared, COMPARE) {
                self.memory.compare();
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

const LOOK: Duration = Duration::from_millis(100);
/// Streams that end each time: fifty a second.
const AT_A_TIME: usize = 5;
const SAMPLE: Duration = Duration::from_secs(1);
const COMPARE: Duration = Duration::from_secs(10);
const READ: Duration = Duration::from_secs(60);

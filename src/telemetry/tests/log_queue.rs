use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use super::*;
use crate::tests::WrittenLines;

const PATIENCE: Duration = Duration::from_secs(20);

/// A writer whose calls each wait for a result from `told`. Once that channel is closed, all calls succeed.
struct Told {
    told: Receiver<io::Result<usize>>,
    begun: Sender<()>,
    lines: WrittenLines,
}

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        let most = self.told.recv().map_or(Ok(usize::MAX), |told| told)?;
        self.lines.write(&bytes[..most.min(bytes.len())])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue whose writer waits for results from `tell`.
struct Bench {
    queue: LogQueue,
    tell: Sender<io::Result<usize>>,
    begun: Receiver<()>,
    lines: WrittenLines,
}

impl Bench {
    fn new() -> Self {
        let ((tell, told), (begins, begun)) = (channel(), channel());
        let lines = WrittenLines::default();
        let out = Told { told, begun: begins, lines: lines.clone() };
        Self { queue: LogQueue::start(LogFormat::Text, out).unwrap(), tell, begun, lines }
    }

    /// Returns a bench whose writer has begun with a line and hangs.
    fn stuck() -> Self {
        let bench = Self::new();
        bench.queue.put(b"first\n");
        bench.begun.recv_timeout(PATIENCE).unwrap();
        bench
    }

    /// Lets the writer continue, and returns everything that is written.
    fn written(self) -> String {
        drop(self.tell);
        assert!(self.queue.flush(PATIENCE));
        self.lines.text()
    }
}

#[test]
fn i10_lines_that_nobody_reads_take_a_bounded_number_of_bytes_and_who_reads_them_is_told_of_the_others() {
    let bench = Bench::stuck();
    let line = format!("{:>99}\n", "line");
    let room = (LOG_QUEUE - cost(b"first\n")) / cost(line.as_bytes());
    for _ in 0..room + 1000 {
        bench.queue.put(line.as_bytes());
    }
    assert_eq!(bench.queue.dropped(), 1000);
    assert!(bench.queue.lock().bytes <= LOG_QUEUE);
    let tiny = Bench::stuck();
    (0..1 << 20).for_each(|_| tiny.queue.put(b"\n")); // the entries count too
    assert!(tiny.queue.dropped() > 900_000, "{}", tiny.queue.dropped());

    let queue = bench.queue.clone();
    let text = bench.written();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("first", room + 2));
    assert!(lines[1].contains(DROPPED) && lines[1].ends_with(" lines=1000"), "in front of the next line: {}", lines[1]);
    assert_eq!(queue.lock().bytes, 0);
    queue.put(b"last\n");
    assert!(queue.flush(PATIENCE));
    assert_eq!(queue.dropped(), 1000, "there is room again, and it is said once");
}

#[test]
fn dropped_lines_are_mentioned_also_if_no_other_line_follows() {
    let (bench, line) = (Bench::stuck(), [b"x".repeat(LONGEST - 1), vec![b'\n']].concat());
    (0..LOG_QUEUE / cost(&line) - 1).for_each(|_| bench.queue.put(&line));
    let left = LOG_QUEUE - bench.queue.lock().bytes;
    bench.queue.put(&line[..left - ENTRY]);
    bench.tell.send(Ok(usize::MAX)).unwrap();
    bench.begun.recv_timeout(PATIENCE).unwrap(); // the thread has taken all lines that waited, and has written none of them
    assert_eq!(bench.queue.dropped(), 0);
    bench.queue.put(&line);
    assert!(bench.written().ends_with(&format!("{DROPPED} lines=1\n")));
}

#[test]
fn a_line_that_is_too_long_is_cut_and_says_so() {
    let bench = Bench::new();
    bench.queue.put(format!("{}\n", "x".repeat(100_000)).as_bytes());
    bench.queue.put(format!("{}\n", "y".repeat(LONGEST - 1)).as_bytes());
    let text = bench.written();
    let [cut, whole] = text.lines().collect::<Vec<_>>()[..] else { panic!("{} lines", text.lines().count()) };
    assert!(cut.ends_with("xxx (cut; 100001 bytes)") && cut.len() < LONGEST, "{}", cut.len());
    assert_eq!(whole, "y".repeat(LONGEST - 1));
}

#[test]
fn i10_a_flush_ends_in_time_though_the_writer_never_returns_and_waits_for_one_that_does() {
    let bench = Bench::stuck();
    let begun = Instant::now();
    assert!(!bench.queue.flush(Duration::from_millis(50)));
    assert!(begun.elapsed() >= Duration::from_millis(50) && begun.elapsed() < PATIENCE / 2);
    bench.queue.put(b"second\n"); // a thread that logs does not wait either
    let (queue, (done, flushed)) = (bench.queue.clone(), channel());
    thread::spawn(move || done.send(queue.flush(PATIENCE)));
    bench.tell.send(Ok(usize::MAX)).unwrap();
    bench.begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(flushed.try_recv().ok(), None, "one line is left");
    bench.tell.send(Ok(usize::MAX)).unwrap();
    assert!(flushed.recv_timeout(PATIENCE).unwrap());
    assert_eq!(bench.lines.text(), "first\nsecond\n");
}

#[test]
fn lines_are_written_whole_in_order_and_those_that_fail_count_as_dropped() {
    let bench = Bench::stuck();
    ["second\n", "third\n", "fourth\n"].iter().for_each(|line| bench.queue.put(line.as_bytes()));
    let fails = |kind: ErrorKind| bench.tell.send(Err(kind.into())).unwrap();
    let writes = |bytes| bench.tell.send(Ok(bytes)).unwrap();
    writes(2);
    fails(ErrorKind::Interrupted);
    fails(ErrorKind::WouldBlock);
    writes(usize::MAX); // the rest of the first line
    writes(3);
    fails(ErrorKind::StorageFull); // the second line is lost, and the part of it that was written becomes a line of its own
    fails(ErrorKind::StorageFull); // the third line fails before its first byte
    let queue = bench.queue.clone();
    let text = bench.written();
    assert!(text.starts_with("first\nsec\nfourth\n"), "{text}");
    assert!(text.ends_with(&format!("{DROPPED} lines=2\n")), "{text}");
    assert_eq!(queue.dropped(), 2);
}

#[test]
fn a_log_that_cannot_be_written_at_all_costs_nothing() {
    let (tell, told) = channel();
    (0..2).for_each(|_| tell.send(Err(ErrorKind::BrokenPipe.into())).unwrap());
    let (begins, begun) = channel();
    let queue = LogQueue::start(LogFormat::Text, Told { told, begun: begins, lines: WrittenLines::default() }).unwrap();
    queue.put(b"first\n");
    assert!(queue.flush(PATIENCE));
    assert_eq!((queue.dropped(), begun.try_iter().count()), (1, 1), "it does not try again and again");
}

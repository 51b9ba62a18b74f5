//! What clients are sent and how they answer, by type, over the life of the process.
//!
//! Each thread that counts is the only writer of its own shard. The shards are added up when the metrics are read. Threads beyond the number of
//! shards share the last one.

mod histogram;
mod thread_counter;
mod waits;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{AnswerEffect, Reply, ReplyLag};
use weir_core::xds::{Type, TypeTable};

pub(crate) use self::histogram::{Bounds, Histogram, HistogramCounts, Writers};
pub(crate) use self::thread_counter::ThreadCounter;
use self::waits::Waits;
use super::clock::Clock;

#[derive(Debug)]
pub(crate) struct Deliveries {
    /// The types with counts of their own. The place after the last is for all other types, since clients can invent them.
    types: Box<[Type]>,
    shards: Box<[CounterShard]>,
    clock: Clock,
}

/// Where the counts of a type are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypePlace(usize);

/// Counters by type. A type takes memory once it is counted.
#[derive(Debug)]
#[repr(align(128))] // no two shards on one cache line, nor on two that are fetched together
struct CounterShard(Box<[OnceLock<Box<TypeCounters>>]>);

#[derive(Debug, Default)]
struct TypeCounters {
    replies: AtomicU64,
    bytes: AtomicU64,
    acks: AtomicU64,
    sent: Lags,
    acknowledged: Lags,
    waits: Waits,
}

#[derive(Debug, Default)]
struct Lags {
    change: Histogram,
    request: Histogram,
}

/// The counts of one type.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TypeDeliveries {
    pub(crate) type_name: String,
    pub(crate) replies: u64,
    pub(crate) bytes: u64,
    pub(crate) acks: u64,
    /// From the receipt of the oldest change in a reply, or of the request that it answers, until the reply was sent.
    pub(crate) sent: LagCounts,
    /// The same until the client acknowledged it.
    pub(crate) acknowledged: LagCounts,
    /// Streams that have left a reply unanswered for longer than each of [`UNANSWERED_FOR`].
    pub(crate) unanswered: [usize; UNANSWERED_FOR.len()],
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LagCounts {
    pub(crate) change: HistogramCounts,
    pub(crate) request: HistogramCounts,
}

/// For how many seconds a stream must have been without an answer to be counted.
pub(crate) const UNANSWERED_FOR: [u64; 2] = [10, 60];

impl Deliveries {
    pub(crate) fn new(table: &TypeTable, clock: Clock) -> Self {
        let mut types: Box<[Type]> = table.names().map(|name| table.resolve(name)).collect();
        types.sort_by_key(Type::is_v2); // those in use are found first
        let shard = || CounterShard((0..=types.len()).map(|_| OnceLock::new()).collect());
        Self { shards: (0..thread_places()).map(|_| shard()).collect(), types, clock }
    }

    /// Returns where the counts of a type are.
    pub(crate) fn place(&self, kind: &Type) -> TypePlace {
        TypePlace(self.types.iter().position(|known| known == kind).unwrap_or(self.types.len()))
    }

    /// Counts a reply when it is handed to the transport.
    pub(crate) fn sent(&self, place: TypePlace, bytes: usize, lag: ReplyLag) {
        let (of, writers) = self.of(place);
        writers.add(&of.replies, 1);
        writers.add(&of.bytes, bytes as u64);
        of.sent.observe(lag, writers);
    }

    /// Counts a reply that is made, if the stream has answered all before it: from then on it has one to answer, and its end counts that, sent or not.
    pub(crate) fn made(&self, reply: &Reply) {
        if let Some(at) = reply.begins_wait {
            let (of, writers) = self.of(self.place(&reply.kind));
            of.waits.begun(at, writers);
        }
    }

    /// Counts an answer of a client.
    pub(crate) fn answered(&self, answered: &AnswerEffect) {
        let (of, writers) = self.of(self.place(&answered.kind));
        if answered.is_ack {
            writers.add(&of.acks, 1);
            of.acknowledged.observe(answered.lag, writers);
        }
        answered.waited_since.iter().for_each(|begun| of.waits.ended(*begun, writers));
        answered.waits_since.iter().for_each(|begun| of.waits.begun(*begun, writers));
    }

    /// Ends the wait of a stream that ends without having answered a reply.
    pub(crate) fn given_up(&self, kind: &Type, begun: Moment) {
        let (of, writers) = self.of(self.place(kind));
        of.waits.ended(begun, writers);
    }

    /// Returns the counts of all types.
    pub(crate) fn counts(&self) -> Vec<TypeDeliveries> {
        let now = self.clock.now();
        (0..=self.types.len()).map(|place| self.counts_of(place, now)).collect()
    }

    /// Returns how many streams have left a reply of each type unanswered for longer than the first of [`UNANSWERED_FOR`].
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (&str, usize)> {
        let now = self.clock.now();
        (0..=self.types.len()).filter_map(move |place| {
            let shards = self.shards.iter().filter_map(|shard| shard.0[place].get());
            let count: i64 = shards.map(|of| of.waits.older_than(Duration::from_secs(UNANSWERED_FOR[0]), now)).sum();
            let count = usize::try_from(count).unwrap_or_default(); // the shards are not read at one moment
            (count > 0).then(|| (self.types.get(place).map_or(OTHER, Type::name), count))
        })
    }

    fn counts_of(&self, place: usize, now: Moment) -> TypeDeliveries {
        let type_name = self.types.get(place).map_or(OTHER, Type::name).to_owned();
        let mut sum = TypeDeliveries { type_name, ..TypeDeliveries::default() };
        let mut unanswered = [0; UNANSWERED_FOR.len()];
        for of in self.shards.iter().filter_map(|shard| shard.0[place].get()) {
            sum.replies += of.replies.load(Ordering::Relaxed);
            sum.bytes += of.bytes.load(Ordering::Relaxed);
            sum.acks += of.acks.load(Ordering::Relaxed);
            sum.sent.add(&of.sent);
            sum.acknowledged.add(&of.acknowledged);
            for (count, seconds) in unanswered.iter_mut().zip(UNANSWERED_FOR) {
                *count += of.waits.older_than(Duration::from_secs(seconds), now);
            }
        }
        // The shards are not read at one moment.
        sum.unanswered = unanswered.map(|count| usize::try_from(count).unwrap_or_default());
        sum
    }

    fn of(&self, place: TypePlace) -> (&TypeCounters, Writers) {
        let (shard, writers) = own_place(self.shards.len());
        (self.shards[shard].0[place.0].get_or_init(Box::default), writers)
    }
}

impl Lags {
    fn observe(&self, lag: ReplyLag, writers: Writers) {
        lag.change.iter().for_each(|time| self.change.observe(*time, writers));
        lag.request.iter().for_each(|time| self.request.observe(*time, writers));
    }
}

impl LagCounts {
    fn add(&mut self, other: &Lags) {
        self.change.add(&other.change);
        self.request.add(&other.request);
    }
}

/// Returns how many places there are for what threads count, each on its own, except for the last.
fn thread_places() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS) + OTHERS
}

/// Returns which of so many places this thread has, and who writes there: threads beyond their number share the last one.
fn own_place(places: usize) -> (usize, Writers) {
    let (thread, last) = (this_thread(), places - 1);
    (thread.min(last), if thread < last { Writers::One } else { Writers::Many })
}

/// Returns the number of this thread among those that count. It is the least number that is free, since threads come and go.
pub(super) fn this_thread() -> usize {
    thread_local!(static NUMBER: ThreadNumber = ThreadNumber::take());
    NUMBER.try_with(|number| number.0).unwrap_or(usize::MAX) // it is ending
}

/// The number of a thread, until it ends.
struct ThreadNumber(usize);

/// The numbers that were given back, and the first number that was never taken.
static NUMBERS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

impl ThreadNumber {
    fn take() -> Self {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        Self(numbers.0.pop_first().unwrap_or_else(|| {
            numbers.1 += 1;
            numbers.1 - 1
        }))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).0.insert(self.0);
    }
}

const MAX_WORKERS: usize = 64;
/// The shards beside those of the workers: some for threads that replace workers during heavy work, and one for all other threads.
const OTHERS: usize = 5;
const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;

    const CDS: &str = "envoy.config.cluster.v3.Cluster";

    fn lag(milliseconds: u64) -> ReplyLag {
        ReplyLag { change: Some(Duration::from_millis(milliseconds)), request: None }
    }

    fn of<'a>(counts: &'a [TypeDeliveries], name: &str) -> &'a TypeDeliveries {
        counts.iter().find(|of| of.type_name == name).unwrap()
    }

    #[test]
    fn a_thread_has_the_number_of_one_that_has_ended() {
        let number = || std::thread::spawn(this_thread).join().unwrap();
        let numbers: BTreeSet<_> = (0..500).map(|_| number()).collect();
        assert!(numbers.len() < 100, "{} numbers for one thread at a time, beside those of other tests", numbers.len());
    }

    #[test]
    fn what_threads_count_is_added_up_and_invented_types_are_one() {
        let table = TypeTable::new();
        let deliveries = Deliveries::new(&table, Clock::starting_now());
        let kinds = [CDS, "made.Up", "also.made.Up"].map(|name| table.resolve(name));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for kind in &kinds {
                        let begins_wait = Some(Moment::START);
                        deliveries.made(&Reply { begins_wait, ..Reply::sample(kind.clone(), Vec::new()) });
                        deliveries.sent(deliveries.place(kind), 10, lag(3));
                    }
                    let waited_since = Some(Moment::START);
                    let kind = kinds[0].clone();
                    deliveries.answered(&AnswerEffect {
                        kind,
                        is_ack: true,
                        lag: lag(7),
                        waited_since,
                        waits_since: None,
                    });
                    deliveries.given_up(&kinds[1], Moment::START);
                });
            }
        });
        let counts = deliveries.counts();
        let (clusters, other) = (of(&counts, CDS), of(&counts, "other"));
        assert_eq!((clusters.replies, clusters.bytes, clusters.acks), (8, 80, 8));
        assert_eq!((clusters.sent.change.count(), clusters.sent.request.count()), (8, 0));
        assert_eq!(clusters.acknowledged.change.sum(), 0.056);
        assert_eq!((other.replies, other.acks), (16, 0));
        assert_eq!(counts.len(), table.names().count() + 1);
    }

    /// Two threads that add to one counter without locked instructions would lose additions.
    #[test]
    fn each_thread_counts_in_a_place_of_its_own() {
        let own = this_thread();
        let other = std::thread::spawn(|| [this_thread(), this_thread()]).join().unwrap();
        assert_eq!((own, other[0]), (this_thread(), other[1]));
        assert_ne!(own, other[0]);
    }

    /// The cost of counting a delivery and its ACK, beside `bench fanout` (docs/metrics.md). All threads have the same amount to do, as in a change
    /// for all clients.
    #[test]
    #[ignore = "means something only in a release build, and alone"]
    fn figures_of_counting() {
        const ROUNDS: usize = 7;
        let table = TypeTable::new();
        let deliveries = Deliveries::new(&table, Clock::starting_now());
        let kind = table.resolve(CDS);
        let both = std::sync::Barrier::new(2);
        let mut times = std::thread::scope(|scope| {
            let [first, second] = [true, false].map(|is_first| {
                let (deliveries, kind, both) = (&deliveries, &kind, &both);
                scope.spawn(move || {
                    let alone: Vec<_> = (0..ROUNDS).filter(|_| is_first).map(|_| round(deliveries, kind)).collect();
                    let together = (0..ROUNDS).map(|_| {
                        both.wait();
                        round(deliveries, kind)
                    });
                    let together: Vec<_> = together.collect();
                    (alone, together)
                })
            });
            let ((alone, mut together), (_, more)) = (first.join().unwrap(), second.join().unwrap());
            together.extend(more);
            [("one thread", alone), ("two threads", together)]
        });
        for (threads, times) in &mut times {
            times.sort_by(f64::total_cmp);
            let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
            println!("{threads}: {median:.1} ns for a delivery ({least:.1} to {most:.1})");
        }
    }

    /// Returns the nanoseconds that a delivery took.
    fn round(deliveries: &Deliveries, kind: &Type) -> f64 {
        const DELIVERIES: u32 = 2_000_000;
        // A session has a reference to the type in any case.
        let (kind, mut reply) = (kind.clone(), Reply::sample(kind.clone(), Vec::new()));
        let mut answered =
            AnswerEffect { kind, is_ack: true, lag: ReplyLag::default(), waited_since: None, waits_since: None };
        let begun = std::time::Instant::now();
        for number in 0..DELIVERIES {
            let lag = ReplyLag { change: Some(Duration::from_micros(u64::from(number % 50_000))), request: None };
            let at = Some(Moment::START + Duration::from_micros(u64::from(number)));
            (answered.lag, answered.waited_since, reply.begins_wait) = (lag, at, at);
            let (answered, reply) = (std::hint::black_box(&answered), std::hint::black_box(&reply));
            deliveries.made(reply);
            deliveries.sent(deliveries.place(&answered.kind), 1024, lag);
            deliveries.answered(answered);
        }
        begun.elapsed().as_nanos() as f64 / f64::from(DELIVERIES)
    }
}

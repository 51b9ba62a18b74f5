//! The addresses of names. A name is looked up once at a time, in a thread of its own, since name servers may hang.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, ready};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::DialError;
use super::presence::Presence;
use crate::random::random;

/// How a name is looked up. It may take any time.
pub(in crate::upstream) trait Lookup: Send + Sync {
    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Begins a look-up without waiting for it.
    fn start(&self, looking: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().name("weir-names".into()).spawn(looking).map(drop)
    }
}

/// The addresses of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) addresses: Vec<SocketAddr>,
    /// A later look-up has failed, so these addresses may be stale.
    pub(super) is_old: bool,
}

/// The requested names, each with its last answer.
pub(super) struct Names {
    lookup: Box<dyn Lookup>,
    /// How long an answer is new, varied by 15 %.
    interval: Duration,
    known: Mutex<HashMap<Name, Known>>,
}

type Name = (Arc<str>, u16);

#[derive(Default)]
struct Known {
    /// The last answer with an address.
    good: Vec<SocketAddr>,
    /// Which addresses the answers have had; empty answers do not count.
    presence: Presence,
    /// When the last answer of any kind came.
    answered: Option<Instant>,
    /// When the name is looked up again.
    due: Option<Instant>,
    /// The latest look-up without an answer, and when it began.
    under_way: Option<(PendingLookup, Instant)>,
    /// Look-ups that have not returned.
    threads: usize,
}

type LookupResult = Result<Vec<SocketAddr>, Arc<io::Error>>;
type PendingLookup = Shared<BoxFuture<'static, LookupResult>>;

/// Asks the system, so that its hosts file and its search rules apply.
struct System;

impl Lookup for System {
    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

impl Names {
    pub(super) fn new(lookup: Box<dyn Lookup>, interval: Duration) -> Arc<Self> {
        Arc::new(Self { lookup, interval, known: Mutex::default() })
    }

    pub(super) fn of_system() -> Arc<Self> {
        Self::new(Box::new(System), INTERVAL)
    }

    /// Returns the addresses of a name: those of the last answer while it is new, or else of another look-up with this time limit. If that look-up
    /// is late, fails or is empty, returns the last good addresses, marked as old.
    pub(super) async fn addresses(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Found, DialError> {
        let found = |addresses, is_old| Ok(Found { addresses, is_old });
        if let Ok(address) = host.parse::<IpAddr>() {
            return found(vec![(address, port).into()], false);
        }
        let name: Name = (host.into(), port);
        let (good, answering) = match self.ask(&name) {
            Asked::Known(good) => return found(good, false),
            Asked::UnderWay { good, answering } => (good, answering),
        };
        let limit = if good.is_empty() { limit } else { limit.min(PATIENCE) };
        let failed = |source: Arc<io::Error>| DialError::Resolve { host: host.into(), source };
        match timeout(limit, answering).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => found(addresses, false),
            _ if !good.is_empty() => found(good, true),
            Ok(Ok(_)) => Err(DialError::NoAddress { host: host.into() }),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                let limit = humantime::format_duration(limit);
                Err(failed(Arc::new(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit}")))))
            }
        }
    }

    /// Makes the next connection look the name up again, because an address of it has failed.
    pub(super) fn doubt(&self, host: &str, port: u16) {
        if let Some(known) = self.lock().get_mut(&(host.into(), port)) {
            known.due = known.answered.map(|answered| answered + LEAST_INTERVAL);
        }
    }

    /// Looks a name up again if its last answer is old. Does not wait.
    pub(super) fn refresh(self: &Arc<Self>, host: &str, port: u16) {
        let _ = self.ask(&(host.into(), port));
    }

    /// Whether an address has disappeared from the answers for a name.
    pub(super) fn has_left(&self, host: &str, port: u16, address: SocketAddr, drain: Duration) -> bool {
        let all = self.lock();
        all.get(&(host.into(), port)).is_some_and(|known| known.presence.has_left(address, drain))
    }

    fn ask(self: &Arc<Self>, name: &Name) -> Asked {
        let now = Instant::now();
        let mut all = self.lock();
        all.retain(|known_name, known| known_name == name || known.is_kept(now));
        let known = all.entry(name.clone()).or_default();
        if !known.good.is_empty() && known.due.is_some_and(|due| due > now) {
            return Asked::Known(known.good.clone());
        }
        // A look-up may hang for ever, although the name server is back by now.
        let is_lost = |begun: Instant, threads| threads < MAX_AT_A_TIME && now - begun >= RENEWED;
        let latest = known.under_way.take().filter(|(_, begun)| !is_lost(*begun, known.threads));
        let good = known.good.clone();
        let (answering, begun) = match latest {
            Some(latest) => latest,
            None => match self.look_up(name.clone()) {
                Ok(answering) => {
                    known.threads += 1;
                    (answering, now)
                }
                Err(error) => {
                    let answer = Err(Arc::new(error));
                    known.has_answer(&answer, now, self.interval);
                    return Asked::UnderWay { answering: ready(answer).boxed().shared(), good };
                }
            },
        };
        known.under_way = Some((answering.clone(), begun));
        Asked::UnderWay { answering, good }
    }

    /// Begins a look-up, in a thread that ends with it.
    fn look_up(self: &Arc<Self>, name: Name) -> io::Result<PendingLookup> {
        let (sender, answer) = oneshot::channel();
        let names = self.clone();
        self.lookup.start(Box::new(move || {
            // Made in the thread: if the thread cannot start, the caller has noted that.
            let found = Looking { names, name, answer: None }.run();
            let _ = sender.send(found); // fails if no caller waits any more
        }))?;
        let answering = async move {
            // A look-up that panics gives no answer.
            answer.await.unwrap_or_else(|_| Err(Arc::new(io::Error::other(NO_ANSWER))))
        };
        Ok(answering.boxed().shared())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look-up in its thread. However it ends, the name can be looked up again afterwards.
struct Looking {
    names: Arc<Names>,
    name: Name,
    answer: Option<LookupResult>,
}

impl Looking {
    fn run(mut self) -> LookupResult {
        let found = self.names.lookup.addresses(&self.name.0, self.name.1).map_err(Arc::new);
        self.answer = Some(found.clone());
        found
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let lost = || Err(Arc::new(io::Error::other(NO_ANSWER)));
        let (answer, now) = (self.answer.take().unwrap_or_else(lost), Instant::now());
        if let Some(known) = self.names.lock().get_mut(&self.name) {
            known.threads = known.threads.saturating_sub(1);
            known.has_answer(&answer, now, self.names.interval);
        }
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

/// The state of a name when its addresses are requested.
enum Asked {
    Known(Vec<SocketAddr>),
    UnderWay { answering: PendingLookup, good: Vec<SocketAddr> },
}

impl Known {
    /// Records the end of the latest look-up.
    fn has_answer(&mut self, found: &LookupResult, now: Instant, interval: Duration) {
        self.under_way = None;
        self.answered = Some(now);
        self.due = Some(now + LEAST_INTERVAL);
        if let Ok(found) = found
            && !found.is_empty()
        {
            self.good.clone_from(found);
            self.presence.answered(found, now);
            self.due = Some(now + interval.mul_f64(0.85 + 0.3 * random()));
        }
    }

    fn is_kept(&self, now: Instant) -> bool {
        self.under_way.is_some() || self.answered.is_some_and(|answered| answered + KEPT > now)
    }
}

const NO_ANSWER: &str = "the look-up has ended without an answer";
const INTERVAL: Duration = Duration::from_secs(30);
/// The shortest time between two look-ups of a name.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// When another look-up begins although an earlier one has not returned, and how many may hang.
const RENEWED: Duration = Duration::from_secs(60);
const MAX_AT_A_TIME: usize = 3;
/// How long a look-up is waited for if there is an earlier answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a name is kept after its last answer.
const KEPT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Gives the answer that the test sets, and waits until there is one.
    #[derive(Default)]
    struct Scripted {
        state: Mutex<(usize, Option<io::Result<Vec<SocketAddr>>>)>,
        is_set: Condvar,
    }

    impl Lookup for Arc<Scripted> {
        fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            loop {
                if let Some(answer) = state.1.take() {
                    return answer;
                }
                state = self.is_set.wait(state).unwrap();
            }
        }
    }

    impl Scripted {
        fn set(&self, answer: io::Result<Vec<SocketAddr>>) {
            self.state.lock().unwrap().1 = Some(answer);
            self.is_set.notify_all();
        }

        fn asked(&self) -> usize {
            self.state.lock().unwrap().0
        }
    }

    fn names() -> (Arc<Names>, Arc<Scripted>) {
        let scripted = Arc::<Scripted>::default();
        (Names::new(Box::new(scripted.clone()), INTERVAL), scripted)
    }

    fn at(number: u8) -> SocketAddr {
        ([127, 0, 0, number], 1).into()
    }

    impl Names {
        async fn get(self: &Arc<Self>) -> Result<Vec<SocketAddr>, String> {
            let found = self.addresses("name", 1, LONG).await;
            found.map(|found| found.addresses).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
        }

        fn lookup_is_over(&self) -> bool {
            self.lock().values().all(|known| known.under_way.is_none() && known.threads == 0)
        }

        /// The last answer is no longer new.
        fn age(&self) {
            self.lock().values_mut().for_each(|known| known.due = Some(Instant::now()));
        }
    }

    #[tokio::test]
    async fn all_who_ask_share_one_look_up_and_its_answer_as_long_as_it_is_new() {
        let (names, server) = names();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let names = names.clone();
                tokio::spawn(async move { names.get().await })
            })
            .collect();
        server.set(Ok(vec![at(1)]));
        for one in waiting {
            assert_eq!(one.await.unwrap(), Ok(vec![at(1)]));
        }
        assert_eq!((names.get().await, server.asked()), (Ok(vec![at(1)]), 1));
        // Who asks waits for the answer, for a second. If it takes longer on a busy machine, another look-up is made.
        for number in 2_u8.. {
            assert!(number < 6, "who asks does not wait for the look-up");
            names.age();
            server.set(Ok(vec![at(number)]));
            let waited = names.get().await;
            until(|| names.lookup_is_over()).await;
            assert_eq!((names.get().await, server.asked()), (Ok(vec![at(number)]), usize::from(number)));
            if waited == Ok(vec![at(number)]) {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_failed_empty_or_late_answer_changes_nothing() {
        let (names, server) = names();
        server.set(Err(io::Error::other("no such name")));
        assert_eq!(names.get().await, Err("cannot find an address of name: no such name".into()));
        server.set(Ok(Vec::new()));
        assert_eq!(names.get().await, Err("name has no address".into()));
        server.set(Ok(vec![at(1)]));
        assert_eq!(names.get().await, Ok(vec![at(1)]));
        for answer in [Ok(Vec::new()), Err(io::Error::other("no such name"))] {
            names.age();
            server.set(answer);
            let found = names.addresses("name", 1, LONG).await.unwrap();
            assert_eq!(found, Found { addresses: vec![at(1)], is_old: true });
            until(|| names.lookup_is_over()).await;
        }
        names.age();
        for _ in 0..2 {
            assert_eq!(names.get().await, Ok(vec![at(1)]), "the name server hangs");
            assert!(names.lock().values().all(|known| known.threads == 1), "one at a time");
        }
        server.set(Ok(vec![at(3)]));
        until(|| names.lookup_is_over()).await;
        assert_eq!(names.get().await, Ok(vec![at(3)]), "the answer comes after all");
    }

    #[tokio::test]
    async fn a_look_up_that_hangs_for_long_is_begun_anew_a_few_times() {
        let (names, server) = names();
        let ask = || names.addresses("name", 1, Duration::from_millis(20));
        for threads in [1, 2, 3, 3] {
            assert!(ask().await.is_err());
            until(|| server.asked() == threads).await;
            names.lock().values_mut().for_each(|known| {
                known.under_way.iter_mut().for_each(|(_, begun)| *begun -= RENEWED);
            });
        }
        for _ in 0..3 {
            server.set(Ok(vec![at(1)]));
            until(|| server.state.lock().unwrap().1.is_none()).await; // one of them has it
        }
        until(|| names.lock().values().all(|known| known.threads == 0)).await;
        assert_eq!((names.get().await, server.asked()), (Ok(vec![at(1)]), 3));
    }

    async fn until(holds: impl Fn() -> bool) {
        let looks = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(3 * LONG, looks).await.expect("it never holds");
    }

    #[tokio::test]
    async fn a_name_server_that_hangs_fails_the_attempt_in_time() {
        let (names, server) = names();
        let found = names.addresses("name", 1, Duration::from_millis(20)).await;
        let reason = format!("{:#}", anyhow::Error::from(found.unwrap_err()));
        assert_eq!(reason, "cannot find an address of name: no answer within 20ms");
        server.set(Ok(Vec::new())); // the thread ends
    }

    #[tokio::test]
    async fn after_a_failure_the_name_is_asked_for_again_but_not_at_once() {
        let (names, server) = names();
        server.set(Ok(vec![at(1)]));
        assert_eq!(names.get().await, Ok(vec![at(1)]));
        let answered = Instant::now() + LONG; // no delay of this test is longer
        names.lock().values_mut().for_each(|known| known.answered = Some(answered));
        names.doubt("name", 1);
        assert_eq!(names.lock().values().next().unwrap().due, Some(answered + LEAST_INTERVAL));
        assert_eq!((names.get().await, server.asked()), (Ok(vec![at(1)]), 1), "within a second");
    }

    #[tokio::test]
    async fn an_address_that_answers_lack_has_left_and_those_that_fail_or_are_empty_do_not_count() {
        const DRAIN: Duration = Duration::from_millis(100);
        let (names, server) = names();
        let answers = async |answer| {
            names.age();
            server.set(answer);
            names.refresh("name", 1);
            until(|| names.lock().values().all(|known| known.threads == 0)).await;
            tokio::time::sleep(DRAIN / 10).await;
        };
        answers(Ok(vec![at(1), at(2)])).await;
        answers(Ok(vec![at(2)])).await;
        for _ in 0..10 {
            answers(Err(io::Error::other("no such name"))).await;
            answers(Ok(Vec::new())).await;
        }
        assert!(!names.has_left("name", 1, at(1), Duration::ZERO), "one answer lacks it");
        let (begun, mut count) = (Instant::now(), 1);
        while !names.has_left("name", 1, at(1), DRAIN) {
            answers(Ok(vec![at(2)])).await;
            count += 1;
            assert!(begun.elapsed() < LONG);
        }
        assert!(count >= 5, "{count} answers");
        assert!(!names.has_left("name", 1, at(2), DRAIN) && !names.has_left("other", 1, at(1), DRAIN));
        names.refresh("name", 1);
        assert!(names.lookup_is_over(), "the last answer is new");
    }

    /// What becomes of each look-up, the last one first.
    struct Failing(Mutex<Vec<Fails>>);

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fails {
        Start,
        Panics,
        Answers,
    }

    impl Lookup for Failing {
        fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            let fails = self.0.lock().unwrap().pop().unwrap();
            assert_eq!(fails, Fails::Answers, "as a look-up that panics");
            Ok(vec![at(1)])
        }

        fn start(&self, looking: Box<dyn FnOnce() + Send>) -> io::Result<()> {
            let mut all = self.0.lock().unwrap();
            if all.last() == Some(&Fails::Start) {
                all.pop();
                return Err(io::Error::other("no thread"));
            }
            thread::spawn(looking);
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_look_up_that_cannot_start_or_ends_without_an_answer_is_followed_by_another() {
        let fails = vec![Fails::Answers, Fails::Start, Fails::Answers, Fails::Panics, Fails::Start];
        let names = Names::new(Box::new(Failing(Mutex::new(fails))), INTERVAL);
        names.refresh("name", 1); // who refreshes waits for nothing
        assert!(names.lookup_is_over());
        let lost = names.get().await;
        assert_eq!(lost, Err(format!("cannot find an address of name: {NO_ANSWER}")));
        assert!(names.lookup_is_over());
        assert_eq!(names.get().await, Ok(vec![at(1)]));
        names.age();
        names.refresh("name", 1);
        names.age();
        names.refresh("name", 1);
        until(|| names.lookup_is_over()).await;
        assert_eq!(names.get().await, Ok(vec![at(1)]), "the last good answer stays");
    }

    #[tokio::test]
    async fn an_address_is_no_name() {
        let (names, server) = names();
        for (host, address) in [("127.0.0.1", at(1)), ("::1", ([0, 0, 0, 0, 0, 0, 0, 1], 1).into())] {
            let found = names.addresses(host, 1, LONG).await.unwrap();
            assert_eq!(found, Found { addresses: vec![address], is_old: false });
        }
        assert_eq!(server.asked(), 0);
    }
}

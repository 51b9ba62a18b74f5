//! Attempts at several addresses, until one succeeds.
//!
//! The next attempt begins when one has failed, and beside one that is late. Late is relative to a head start: a short one for TCP (RFC 8305), and
//! a longer one for the layers above, since a kernel accepts connections for a program that hangs. At most three attempts are under way; the oldest
//! gives way.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::address_book::{AddressBook, TriedAddress, Untried};
use super::attempt::{AttemptError, Connected};

pub(super) struct Race<T> {
    attempts: JoinSet<Result<T, AttemptError>>,
    /// The oldest first.
    running: VecDeque<Running>,
    failures: Vec<AttemptError>,
    failed: Vec<Arc<TriedAddress>>,
}

struct Running {
    task: Id,
    handle: AbortHandle,
    tried: Arc<TriedAddress>,
    connected: Connected,
    /// When this attempt is late, so that the next one begins beside it.
    late_at: Instant,
    is_late: bool,
}

impl<T: Send + 'static> Race<T> {
    /// Returns the result of the first attempt that succeeds, or why each has failed.
    pub(super) async fn run<F>(
        book: &Arc<AddressBook>,
        addresses: Vec<SocketAddr>,
        attempt: impl Fn(Arc<TriedAddress>, Connected) -> F,
    ) -> Result<T, Vec<AttemptError>>
    where
        F: Future<Output = Result<T, AttemptError>> + Send + 'static,
    {
        let mut untried = Untried::new(addresses);
        let mut race =
            Self { attempts: JoinSet::new(), running: VecDeque::new(), failures: Vec::new(), failed: Vec::new() };
        let mut is_next_due = true;
        loop {
            if std::mem::take(&mut is_next_due)
                && race.has_room()
                && let Some(tried) = book.take_next(&mut untried)
            {
                race.begin(tried, &attempt);
            }
            tokio::select! {
                ended = race.attempts.join_next_with_id() => match ended {
                    Some(Ok((task, Ok(made)))) => {
                        race.forget(task);
                        return Ok(made);
                    }
                    Some(Ok((task, Err(failure)))) => {
                        let tried = race.forget(task).map(|running| running.tried);
                        race.failed(tried, failure);
                        is_next_due = true;
                    }
                    Some(Err(ended)) if ended.is_cancelled() => {} // it gave way
                    Some(Err(ended)) => {
                        race.forget(ended.id());
                        race.failures.push(AttemptError::Task(ended));
                        is_next_due = true;
                    }
                    None => return Err(std::mem::take(&mut race.failures)),
                },
                () = newest_is_late(&mut race.running) => is_next_due = true,
            }
        }
    }

    fn begin<F>(&mut self, tried: Arc<TriedAddress>, attempt: impl Fn(Arc<TriedAddress>, Connected) -> F)
    where
        F: Future<Output = Result<T, AttemptError>> + Send + 'static,
    {
        if self.running.len() == AT_A_TIME
            && let Some(oldest) = self.running.pop_front()
        {
            oldest.handle.abort();
            let address = oldest.tried.address();
            self.failed(Some(oldest.tried), AttemptError::GaveWay { address });
        }
        let connected = Connected::default();
        let handle = self.attempts.spawn(attempt(tried.clone(), connected.clone()));
        let late_at = Instant::now() + HEAD_START;
        self.running.push_back(Running { task: handle.id(), handle, tried, connected, late_at, is_late: false });
    }

    /// Whether another attempt may begin. The oldest one may give way for it.
    fn has_room(&self) -> bool {
        self.running.len() < AT_A_TIME || self.failures.len() < PASSED_OVER
    }

    fn failed(&mut self, tried: Option<Arc<TriedAddress>>, failure: AttemptError) {
        self.failures.push(failure);
        self.failed.extend(tried.inspect(|tried| tried.failed()));
    }

    fn forget(&mut self, task: Id) -> Option<Running> {
        let index = self.running.iter().position(|running| running.task == task)?;
        self.running.remove(index)
    }
}

/// An attempt that was late when the race ended counts as failed. Nothing is known of the others. Dropping the tasks closes their sockets.
impl<T> Drop for Race<T> {
    fn drop(&mut self) {
        self.running.iter().filter(|running| running.is_late).for_each(|running| running.tried.failed());
        self.failed.iter().for_each(|tried| tried.has_failed()); // the time begins at the end
    }
}

/// Waits until the newest attempt is late. Once TCP is connected it has more time.
async fn newest_is_late(running: &mut VecDeque<Running>) {
    let Some(newest) = running.back_mut().filter(|newest| !newest.is_late) else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            () = newest.connected.reported() => newest.late_at = Instant::now() + HEAD_START_ABOVE,
            () = sleep_until(newest.late_at) => {
                newest.is_late = true;
                return;
            }
        }
    }
}

const HEAD_START: Duration = Duration::from_millis(250);
/// The head start for TLS and the first bytes of HTTP/2.
const HEAD_START_ABOVE: Duration = Duration::from_secs(1);
const AT_A_TIME: usize = 3;
/// Once so many attempts have failed or given way, running attempts keep their full time: all addresses may be slow.
const PASSED_OVER: usize = 6;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;

    /// What the attempt at an address does.
    #[derive(Clone, Copy)]
    enum Does {
        Refuses,
        HangsBeforeTcp,
        HangsAbove,
        Works(Duration),
    }

    type Begun = Arc<Mutex<Vec<(SocketAddr, Instant)>>>;

    fn at(number: usize) -> SocketAddr {
        ([127, 0, 0, number as u8 + 1], 1).into()
    }

    async fn run(book: &Arc<AddressBook>, script: &[Does]) -> (Result<SocketAddr, usize>, Vec<Duration>) {
        let (start, begun) = (Instant::now(), Begun::default());
        let addresses = (0..script.len()).map(at).collect();
        let raced = Race::run(book, addresses, |tried, connected| {
            begun.lock().unwrap().push((tried.address(), Instant::now()));
            let does = script[(0..script.len()).find(|number| at(*number) == tried.address()).unwrap()];
            async move {
                match does {
                    Does::Refuses => return Err(AttemptError::GaveWay { address: tried.address() }),
                    Does::HangsBeforeTcp => sleep(LONG).await,
                    Does::HangsAbove => {
                        connected.report();
                        sleep(LONG).await;
                    }
                    Does::Works(after) => {
                        connected.report();
                        sleep(after).await;
                        tried.worked();
                        return Ok(tried.address());
                    }
                }
                Err(AttemptError::GaveWay { address: tried.address() })
            }
        });
        let raced = raced.await.map_err(|failures| failures.len());
        let begun = begun.lock().unwrap().iter().map(|(_, at)| *at - start).collect();
        (raced, begun)
    }

    const LONG: Duration = Duration::from_secs(60);
    const SOON: Does = Does::Works(Duration::from_millis(10));

    /// In any order of the addresses, the working one is found, and comes first the next time.
    #[tokio::test(start_paused = true)]
    async fn one_address_that_works_is_found_among_all_that_do_not_and_first_the_next_time() {
        for _ in 0..50 {
            let book = Arc::default();
            let script = [Does::Refuses, Does::HangsBeforeTcp, Does::HangsAbove, Does::HangsAbove, SOON];
            let start = Instant::now();
            assert_eq!(run(&book, &script).await.0, Ok(at(4)));
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
            let start = Instant::now();
            assert_eq!(run(&book, &script).await.0, Ok(at(4)));
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            advance(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_one_begins_after_a_failure_at_once_and_beside_one_that_is_late() {
        let millis = |begun: &[Duration]| begun.iter().map(|at| at.as_millis() as u64).collect::<Vec<_>>();
        let (raced, begun) = run(&Arc::default(), &[Does::Refuses; 3]).await;
        assert_eq!((raced, millis(&begun)), (Err(3), vec![0, 0, 0]));
        let (raced, begun) = run(&Arc::default(), &[Does::HangsBeforeTcp; 3]).await;
        assert_eq!((raced, millis(&begun)), (Err(3), vec![0, 250, 500]));
        let (raced, begun) = run(&Arc::default(), &[Does::HangsAbove; 3]).await;
        assert_eq!((raced, millis(&begun)), (Err(3), vec![0, 1000, 2000]));
    }

    /// On a slow network all attempts are late, and the last three have the full time.
    #[tokio::test(start_paused = true)]
    async fn of_many_slow_addresses_one_is_reached() {
        let slow = Does::Works(Duration::from_secs(4));
        let book = Arc::default();
        assert!(run(&book, &[slow; 2]).await.0.is_ok());
        for addresses in [8, 40] {
            let start = Instant::now();
            assert!(run(&book, &vec![slow; addresses]).await.0.is_ok());
            assert!(start.elapsed() < Duration::from_secs(15), "of {addresses}: {:?}", start.elapsed());
        }
    }

    /// An attempt that has given way ends: its connection does not stay open beside those after it.
    #[tokio::test(start_paused = true)]
    async fn no_more_attempts_are_under_way_than_may_be() {
        let (book, under_way, most) = (Arc::default(), Arc::new(()), Mutex::new(0));
        let addresses = (0..2 * PASSED_OVER).map(at).collect();
        let raced = Race::run(&book, addresses, |tried, _| {
            let lives = under_way.clone();
            let mut most = most.lock().unwrap();
            *most = most.max(Arc::strong_count(&lives) - 1);
            async move {
                let _lives = lives;
                sleep(LONG).await;
                Err::<(), _>(AttemptError::GaveWay { address: tried.address() })
            }
        });
        assert_eq!(raced.await.unwrap_err().len(), 2 * PASSED_OVER, "each is tried");
        let most = most.into_inner().unwrap();
        assert!(most <= AT_A_TIME + 1, "{most} with the one that was just ended");
    }

    #[tokio::test(start_paused = true)]
    async fn who_loses_is_avoided_if_it_was_late_and_not_otherwise() {
        let both = [Does::Works(Duration::from_millis(1200)), Does::HangsAbove];
        let mut orders = [0, 0];
        for _ in 0..40 {
            let book = Arc::default();
            let (raced, begun) = run(&book, &both).await;
            assert_eq!((raced, begun.len()), (Ok(at(0)), 2));
            // The one that hangs was begun first, and is late after a second; or it was begun then, and had 200 ms.
            let was_first = book.is_avoided(at(1));
            orders[usize::from(was_first)] += 1;
            assert!(!book.is_avoided(at(0)), "it has won");
        }
        assert!(orders[0] > 0 && orders[1] > 0, "{orders:?}");
    }

    /// Failures that are noticed together count once.
    #[tokio::test(start_paused = true)]
    async fn what_many_notice_at_a_time_is_one_failure() {
        let book = Arc::<AddressBook>::default();
        let tried = book.take_next(&mut Untried::new(vec![at(0)])).unwrap();
        (0..20).for_each(|_| tried.failed());
        advance(Duration::from_secs(1)).await;
        assert!(!book.is_avoided(at(0)));
        tried.failed();
        advance(Duration::from_secs(1)).await;
        assert!(book.is_avoided(at(0)), "two seconds after the second");
    }
}

//! Connected clients whose admission was judged. They are judged again when the grounds change, and are disconnected if they fail.
//!
//! Code that admits a client on some ground enters it here, with a function that tells whether the ground still holds. The client's streams and
//! its connection wait for [`JudgedClient::ends`].

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::slot::Status;
use crate::log_pace::LogPace;
use crate::random::random;

/// All clients that were judged.
pub(crate) struct JudgedClients {
    state: Mutex<ClientTable>,
    again: Notify,
    /// Clients that fail together are disconnected at random times within this time.
    spread: Duration,
    /// Limits log lines: clients whose certificates last for hours are due all the time.
    due_lines: LogPace,
}

#[derive(Default)]
struct ClientTable {
    /// The number of the next client.
    next: u64,
    clients: BTreeMap<u64, Arc<JudgedClient>>,
    /// The latest time at which each client has to be judged again.
    due: BTreeSet<(SystemTime, u64)>,
    due_of: BTreeMap<u64, SystemTime>,
}

/// One client.
pub(super) struct JudgedClient {
    judge: Judge,
    verdict: OnceLock<Verdict>,
    is_judged: Notify,
}

/// Tells whether a client may stay and the latest time for the next judgement, or the status with which the client ends. It is called often, and
/// must be quick if nothing has changed.
pub(super) type Judge = Box<dyn Fn() -> Result<Option<SystemTime>, Status> + Send + Sync>;

/// How and when a client has to end.
struct Verdict {
    at: Instant,
    status: Status,
}

/// A client that is judged until this is dropped.
pub(super) struct Entered {
    clients: Arc<JudgedClients>,
    number: u64,
    pub(super) client: Arc<JudgedClient>,
}

impl Default for JudgedClients {
    fn default() -> Self {
        Self { state: Mutex::default(), again: Notify::new(), spread: SPREAD, due_lines: LogPace::once_a_minute() }
    }
}

impl JudgedClients {
    /// Enters a client, and judges it at once: the grounds may have changed since it was admitted.
    pub(super) fn enter(self: &Arc<Self>, judge: Judge) -> Entered {
        let client = Arc::new(JudgedClient { judge, verdict: OnceLock::new(), is_judged: Notify::new() });
        let number = {
            let mut state = self.lock();
            state.next += 1;
            let number = state.next;
            state.clients.insert(number, client.clone());
            number
        };
        let entered = Entered { clients: self.clone(), number, client };
        self.judge(number, &entered.client, Duration::ZERO);
        entered
    }

    /// Requests that all clients are judged again.
    pub(crate) fn judge_again(&self) {
        self.again.notify_one();
    }

    /// Checks connected clients again, on request and when they are due. Runs until the future is dropped.
    pub(crate) async fn run(&self) {
        loop {
            tokio::select! {
                () = self.again.notified() => {
                    let all = self.lock().clients.clone();
                    let (judged, ended) = self.judge_each(all.into_iter(), self.spread).await;
                    if judged > 0 {
                        tracing::info!(judged, ended, "clients judged again");
                    }
                }
                () = sleep(LOOK) => {
                    let overdue = self.take_overdue();
                    let (judged, ended) = self.judge_each(overdue.into_iter(), Duration::ZERO).await;
                    // Judgements that keep a client are frequent and alike, so their lines are limited. A client that ends is always logged.
                    let line = (judged > 0).then(|| self.due_lines.line(std::time::Instant::now()));
                    if let Some(unlogged) = line.flatten().or((ended > 0).then_some(0)) {
                        tracing::info!(judged, ended, unlogged, "clients judged again; they were due");
                    }
                }
            }
        }
    }

    /// Returns how many clients were judged, and how many of them have to end.
    async fn judge_each(
        &self,
        clients: impl Iterator<Item = (u64, Arc<JudgedClient>)>,
        spread: Duration,
    ) -> (usize, usize) {
        let (mut judged, mut ended) = (0, 0);
        for (number, client) in clients {
            judged += 1;
            ended += usize::from(self.judge(number, &client, spread));
            tokio::task::yield_now().await; // checking signatures takes time
        }
        (judged, ended)
    }

    /// Judges a client. Returns whether it has to end: it ends at a random time within the spread, so that clients do not reconnect all at once.
    fn judge(&self, number: u64, client: &JudgedClient, spread: Duration) -> bool {
        match (client.judge)() {
            _ if client.verdict.get().is_some() => false,
            Ok(due) => {
                self.lock().set_due(number, due);
                false
            }
            Err(status) => {
                let at = Instant::now() + spread.mul_f64(random());
                let _ = client.verdict.set(Verdict { at, status });
                client.is_judged.notify_waiters();
                true
            }
        }
    }

    fn take_overdue(&self) -> Vec<(u64, Arc<JudgedClient>)> {
        let mut state = self.lock();
        let overdue: Vec<_> = state.due.range(..=(SystemTime::now(), u64::MAX)).map(|(_, number)| *number).collect();
        overdue.iter().for_each(|number| state.set_due(*number, None));
        overdue.into_iter().filter_map(|number| Some((number, state.clients.get(&number)?.clone()))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ClientTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientTable {
    fn set_due(&mut self, number: u64, due: Option<SystemTime>) {
        if let Some(before) = self.due_of.remove(&number) {
            self.due.remove(&(before, number));
        }
        if let Some(due) = due.filter(|_| self.clients.contains_key(&number)) {
            self.due_of.insert(number, due);
            self.due.insert((due, number));
        }
    }
}

impl JudgedClient {
    /// Waits until the client has to end, possibly for ever.
    pub(super) async fn ends(&self) -> Status {
        loop {
            let is_judged = self.is_judged.notified();
            if let Some(Verdict { at, status }) = self.verdict.get() {
                Box::pin(sleep_until(*at)).await; // boxed, since most clients never need it
                return status.clone();
            }
            is_judged.await;
        }
    }

    /// Returns the status if the client has to end now or soon. It is not served anything new.
    pub(super) fn verdict(&self) -> Option<&Status> {
        self.verdict.get().map(|verdict| &verdict.status)
    }
}

/// Waits until a client has to end. A client that was not judged never has to.
pub(super) async fn ends(client: Option<Arc<JudgedClient>>) -> Status {
    match client {
        Some(client) => client.ends().await,
        None => pending().await,
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.clients.lock();
        state.clients.remove(&self.number);
        state.set_due(self.number, None);
    }
}

const SPREAD: Duration = Duration::from_secs(10);
/// How often to check whether a client is due.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    /// A judge that accepts clients only among the first so many.
    struct Court {
        clients: Arc<JudgedClients>,
        admitted: Arc<AtomicUsize>,
        running: tokio::task::JoinHandle<()>,
    }

    impl Court {
        fn new(spread: Duration) -> Self {
            let clients = Arc::new(JudgedClients { spread, ..JudgedClients::default() });
            let running = tokio::spawn({
                let clients = clients.clone();
                async move { clients.run().await }
            });
            Self { clients, admitted: Arc::new(AtomicUsize::new(usize::MAX)), running }
        }

        fn enter(&self, number: usize) -> Entered {
            let admitted = self.admitted.clone();
            self.clients.enter(Box::new(move || match admitted.load(Ordering::SeqCst) {
                limit if number < limit => Ok(None),
                limit => Err(Status::unauthenticated(format!("above {limit}"))),
            }))
        }
    }

    impl Drop for Court {
        fn drop(&mut self) {
            self.running.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_fail_end_within_the_spread_and_not_all_at_once_and_the_others_stay() {
        let spread = Duration::from_secs(2);
        let court = Court::new(spread);
        // So many that chance puts not all of those who end into one half of the spread.
        let entered: Vec<_> = (0..120).map(|number| court.enter(number)).collect();
        court.clients.judge_again();
        assert!(timeout(SHORT, entered[119].client.ends()).await.is_err(), "nothing has changed");
        court.admitted.store(20, Ordering::SeqCst);
        court.clients.judge_again();
        let began = Instant::now();
        let mut ended = tokio::task::JoinSet::new();
        for entered in &entered[20..] {
            let client = entered.client.clone();
            ended.spawn(async move { (client.ends().await, began.elapsed()) });
        }
        let ended = timeout(LONG, ended.join_all()).await.expect("some stay");
        assert!(ended.iter().all(|(status, _)| *status == Status::unauthenticated("above 20")));
        let (first, last) = (ended.first().unwrap().1, ended.last().unwrap().1);
        assert!(first < spread / 2 && last > spread / 2 && last < spread + LONG / 4, "{first:?} to {last:?}");
        let stay = entered[..20].iter().all(|entered| entered.client.verdict().is_none());
        assert!(stay && timeout(SHORT, entered[0].client.ends()).await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_was_admitted_before_a_change_and_enters_after_it_ends_at_once_and_gets_nothing_new() {
        let court = Court::new(LONG);
        court.admitted.store(0, Ordering::SeqCst);
        let entered = court.enter(0);
        assert_eq!(entered.client.verdict(), Some(&Status::unauthenticated("above 0")));
        assert!(timeout(SHORT, entered.client.ends()).await.is_ok());
    }

    #[tokio::test]
    async fn a_client_is_told_at_once_that_it_gets_nothing_new_and_ends_later() {
        let court = Court::new(LONG * 1_000_000_000); // its end is a random part of this
        let entered = court.enter(0);
        court.admitted.store(0, Ordering::SeqCst);
        court.clients.judge_again();
        let told = async {
            while entered.client.verdict().is_none() {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        timeout(LONG, told).await.unwrap();
        assert!(timeout(SHORT, entered.client.ends()).await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_is_due_is_judged_without_being_asked_for_and_one_that_has_gone_is_not() {
        let court = Court::new(LONG);
        let judged = Arc::new(AtomicUsize::new(0));
        let judge = |judged: &Arc<AtomicUsize>| -> Judge {
            let (judged, due) = (judged.clone(), OnceLock::new());
            Box::new(move || {
                let due = *due.get_or_init(|| SystemTime::now() + SHORT);
                let is_first = judged.fetch_add(1, Ordering::SeqCst) == 0;
                if is_first || SystemTime::now() < due { Ok(Some(due)) } else { Err(Status::unauthenticated("due")) }
            })
        };
        let (gone, of_gone) = (court.clients.enter(judge(&judged)), judged.clone());
        let of_stays = Arc::new(AtomicUsize::new(0));
        let stays = court.clients.enter(judge(&of_stays));
        drop(gone);
        assert_eq!(timeout(LONG, stays.client.ends()).await, Ok(Status::unauthenticated("due")));
        assert_eq!((of_gone.load(Ordering::SeqCst), of_stays.load(Ordering::SeqCst)), (1, 2));
        drop(stays);
        let state = court.clients.lock();
        assert!(state.clients.is_empty() && state.due.is_empty() && state.due_of.is_empty());
    }
    #[tokio::test]
    async fn an_earlier_time_at_which_a_client_is_due_replaces_the_later_one() {
        let court = Court::new(LONG);
        let far = SystemTime::now() + 1_000 * LONG;
        let (due, judged) = (Arc::new(Mutex::new(far)), Arc::new(AtomicUsize::new(0)));
        let entered = court.clients.enter({
            let (due, judged) = (due.clone(), judged.clone());
            Box::new(move || {
                judged.fetch_add(1, Ordering::SeqCst);
                match *due.lock().unwrap() {
                    due if SystemTime::now() < due => Ok(Some(due)),
                    _ => Err(Status::unauthenticated("due")),
                }
            })
        });
        let near = SystemTime::now() + 3 * LOOK;
        *due.lock().unwrap() = near;
        court.clients.judge_again();
        let again = async {
            while judged.load(Ordering::SeqCst) < 2 {
                sleep(SHORT / 10).await;
            }
        };
        timeout(LONG, again).await.expect("it is not judged again");
        let known = court.clients.lock().due.clone();
        let is_replaced = known == BTreeSet::from([(near, entered.number)]);
        assert!(is_replaced || SystemTime::now() >= near, "it is due at the later time, or at both");
        assert_eq!(timeout(LONG, entered.client.ends()).await, Ok(Status::unauthenticated("due")));
    }
}

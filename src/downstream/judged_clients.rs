//! Clients that are connected and were judged: they are judged again when what they were judged by changes, and end if they fail.
//!
//! Whoever admits a client for a reason enters it here, with a function that tells whether the reason still holds. The client's streams and
//! its connection wait for [`JudgedClient::ends`].

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::slot::Status;

/// All clients that were judged.
#[derive(Default)]
pub(crate) struct JudgedClients {
    state: Mutex<State>,
    again: Notify,
}

#[derive(Default)]
struct State {
    /// The number of the next client.
    next: u64,
    clients: BTreeMap<u64, Arc<JudgedClient>>,
    /// When clients have to be judged again at the latest.
    due: BTreeSet<(SystemTime, u64)>,
    due_of: BTreeMap<u64, SystemTime>,
}

/// One client.
pub(super) struct JudgedClient {
    judge: Judge,
    verdict: OnceLock<Verdict>,
    is_judged: Notify,
}

/// Tells whether a client may stay, and when to judge it again at the latest; or the status by which it ends. It is called often, and is
/// quick where nothing has changed.
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

impl JudgedClients {
    /// Enters a client. It is judged at once: things may have changed since it was admitted.
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

    /// Has all clients judged again.
    pub(crate) fn judge_again(&self) {
        self.again.notify_one();
    }

    /// Judges clients when it is asked for, or due, until the future is dropped.
    pub(crate) async fn run(&self) {
        loop {
            tokio::select! {
                () = self.again.notified() => {
                    let all = self.lock().clients.clone();
                    self.judge_each(all.into_iter(), SPREAD).await;
                }
                () = sleep(LOOK) => {
                    let overdue = self.take_overdue();
                    self.judge_each(overdue.into_iter(), Duration::ZERO).await;
                }
            }
        }
    }

    async fn judge_each(&self, clients: impl Iterator<Item = (u64, Arc<JudgedClient>)>, spread: Duration) {
        let (mut judged, mut ended) = (0, 0);
        for (number, client) in clients {
            judged += 1;
            ended += usize::from(self.judge(number, &client, spread));
            tokio::task::yield_now().await; // signatures take time
        }
        if judged > 0 {
            tracing::info!(judged, ended, "clients judged again");
        }
    }

    /// Judges a client. Returns whether it has to end: at a random time within the spread, so that not all come back at once.
    fn judge(&self, number: u64, client: &JudgedClient, spread: Duration) -> bool {
        match (client.judge)() {
            _ if client.verdict.get().is_some() => false,
            Ok(due) => {
                self.lock().set_due(number, due);
                false
            }
            Err(status) => {
                let random = RandomState::new().hash_one(number) as f64 / u64::MAX as f64;
                let _ = client.verdict.set(Verdict { at: Instant::now() + spread.mul_f64(random), status });
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
    /// Waits until the client has to end. That may never be.
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

    /// Returns the status by which the client has to end, now or soon. It gets nothing new.
    pub(super) fn verdict(&self) -> Option<&Status> {
        self.verdict.get().map(|verdict| &verdict.status)
    }
}

/// Waits until a client has to end, if it was judged.
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

/// Clients that fail together end within this time.
const SPREAD: Duration = Duration::from_secs(10);
/// How often it is looked whether a client is due.
const LOOK: Duration = Duration::from_secs(1);

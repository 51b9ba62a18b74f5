//! The connections of one listener, of limited number. When the limit is reached, the connection that has been idle for longest is asked to give way.
//! A connection that never sent a request is idle too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    count: usize,
    /// How long a connection is not asked after it was accepted, a response was sent, or bytes were written: more may be on its way.
    spared: Duration,
    taken: Mutex<TakenPlaces>,
    /// Wakes those who wait when a place may be free, or a connection may be asked.
    changed: Notify,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    next: u64,
    /// Whether a connection has given way since a place was last taken.
    has_agreed: bool,
    by_number: BTreeMap<u64, TakenPlace>,
}

/// One connection.
#[derive(Debug)]
struct TakenPlace {
    /// When the connection was accepted, its last response ended, or bytes were last written.
    idle_since: Instant,
    /// Requests that are being answered, until the bodies of the responses are dropped.
    requests: usize,
    /// Whether the peer is authenticated. Such a connection never gives way: a new one is not authenticated yet.
    is_authenticated: bool,
    asked: Asked,
    asks: Arc<Notify>,
}

/// Whether a connection was asked to give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// It was asked, and has to give way if it has been idle since this time.
    SinceThen(Instant),
    /// It gives way. Requests that still arrive on it are not begun.
    Agreed,
}

/// The place of a connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct AdminPlace {
    places: Arc<Places>,
    number: u64,
    asks: Arc<Notify>,
}

/// A request that is being answered. Until it is dropped, its connection does not give way.
#[derive(Debug)]
pub(super) struct Answering {
    place: Arc<AdminPlace>,
}

impl Places {
    pub(crate) fn new(count: usize, spared: Duration) -> Arc<Self> {
        Arc::new(Self { count, spared, taken: Mutex::default(), changed: Notify::new() })
    }

    /// Returns a place, and whether another connection gave way for it. Waits while all others answer requests or are authenticated.
    pub(crate) async fn take(self: &Arc<Self>) -> (Arc<AdminPlace>, bool) {
        let patient_until = Instant::now() + PATIENCE_BY_SPARED * self.spared;
        loop {
            let changed = self.changed.notified();
            let next = match self.try_take(patient_until) {
                Ok(taken) => return taken,
                Err(next) => next,
            };
            match next {
                Some(next) => {
                    let _ = timeout_at(next, changed).await; // both are a reason to try again
                }
                None => changed.await,
            }
        }
    }

    /// Takes a place, or asks a connection to give way. If none may be asked yet, returns the time from which one may be.
    fn try_take(self: &Arc<Self>, patient_until: Instant) -> Result<(Arc<AdminPlace>, bool), Option<Instant>> {
        let mut taken = self.taken();
        if taken.by_number.len() >= self.count {
            if taken.by_number.values().any(|place| place.asked != Asked::No) {
                return Err(None);
            }
            let idle = taken.by_number.values_mut().filter(|place| place.is_idle() && !place.is_authenticated);
            let Some(longest) = idle.min_by_key(|place| place.idle_since) else { return Err(None) };
            let (now, spared) = (Instant::now(), longest.idle_since + self.spared);
            if now < spared.min(patient_until) {
                return Err(Some(spared.min(patient_until)));
            }
            longest.asked = Asked::SinceThen(longest.idle_since);
            longest.asks.notify_one();
            return Err(None);
        }
        let (number, asks) = (taken.next, Arc::<Notify>::default());
        taken.next += 1;
        let (idle_since, requests, is_authenticated) = (Instant::now(), 0, false);
        let place = TakenPlace { idle_since, requests, is_authenticated, asked: Asked::No, asks: asks.clone() };
        taken.by_number.insert(number, place);
        let gave_way = std::mem::take(&mut taken.has_agreed);
        Ok((Arc::new(AdminPlace { places: self.clone(), number, asks }), gave_way))
    }

    fn taken(&self) -> MutexGuard<'_, TakenPlaces> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenPlace {
    fn is_idle(&self) -> bool {
        self.requests == 0
    }
}

impl AdminPlace {
    /// Waits until the connection has to give way. After this, no request is begun on it.
    pub(crate) async fn gives_way(&self) {
        loop {
            self.asks.notified().await;
            tokio::task::yield_now().await; // what has arrived is delivered first
            if self.agrees() {
                return;
            }
            self.places.changed.notify_one(); // another connection is asked
        }
    }

    /// Decides whether the connection gives way: it must have been idle ever since it was asked.
    fn agrees(&self) -> bool {
        let mut taken = self.places.taken();
        let Some(place) = taken.by_number.get_mut(&self.number) else { return false };
        let agrees = matches!(place.asked, Asked::SinceThen(then) if place.is_idle() && place.idle_since == then);
        let agrees = agrees && !place.is_authenticated;
        place.asked = if agrees { Asked::Agreed } else { Asked::No };
        taken.has_agreed |= agrees;
        agrees
    }

    /// Records that the peer has authenticated itself.
    pub(crate) fn authenticated(&self) {
        self.change(|place| place.is_authenticated = true);
    }

    /// Records that the peer reads what is written.
    pub(crate) fn wrote(&self) {
        self.change(|place| place.idle_since = Instant::now());
    }

    /// Records the beginning of a request. Returns `None` if the connection has already agreed to give way: it then ends.
    pub(crate) fn answering(self: &Arc<Self>) -> Option<Answering> {
        let is_begun = self.change(|place| {
            let may_begin = place.asked != Asked::Agreed;
            place.requests += usize::from(may_begin);
            may_begin
        });
        (is_begun == Some(true)).then(|| Answering { place: self.clone() })
    }

    fn change<T>(&self, change: impl FnOnce(&mut TakenPlace) -> T) -> Option<T> {
        self.places.taken().by_number.get_mut(&self.number).map(change)
    }
}

impl Drop for AdminPlace {
    fn drop(&mut self) {
        self.places.taken().by_number.remove(&self.number);
        self.places.changed.notify_one();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.place.change(|place| {
            place.requests -= 1;
            place.idle_since = Instant::now();
        });
        self.place.places.changed.notify_one();
    }
}

/// The wait, as a multiple of `spared`, after which connections are asked that are never idle for as long as `spared`.
const PATIENCE_BY_SPARED: u32 = 5;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SPARED: Duration = Duration::from_millis(50);

    async fn place(places: &Arc<Places>) -> Arc<AdminPlace> {
        let (place, gave_way) = timeout(PATIENCE, places.take()).await.expect("a place is free");
        assert!(!gave_way);
        place
    }

    /// Takes a place, for which one of these connections has to give way. Returns the index of that connection, and the new place.
    async fn take_from(places: &Arc<Places>, others: &[&Arc<AdminPlace>]) -> (usize, Arc<AdminPlace>) {
        let taking = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        let asked = others.iter().map(|other| Box::pin(other.gives_way()));
        let (_, which, _) = timeout(PATIENCE, futures_util::future::select_all(asked)).await.expect("one is asked");
        assert!(others[which].answering().is_none(), "nothing is begun on it any more");
        let last = others[which]; // what follows happens when a connection ends
        last.places.taken().by_number.remove(&last.number);
        last.places.changed.notify_one();
        let (place, gave_way) = timeout(PATIENCE, taking).await.expect("it has a place").unwrap();
        assert!(gave_way);
        (which, place)
    }

    #[tokio::test]
    async fn the_connection_that_is_idle_longest_gives_way_and_none_that_is_answered() {
        let places = Places::new(3, SPARED);
        let (busy, asked, silent) = (place(&places).await, place(&places).await, place(&places).await);
        let answering = busy.answering().unwrap();
        drop(asked.answering()); // it has been idle only since then
        let (which, fourth) = take_from(&places, &[&busy, &asked, &silent]).await;
        assert_eq!(which, 2, "the one that never asked");
        asked.wrote();
        let (which, fifth) = take_from(&places, &[&busy, &asked, &fourth]).await;
        assert_eq!(which, 2, "the other one has taken something since");
        let others = [asked.answering(), fifth.answering()];
        assert!(places.take().now_or_never().is_none(), "all are answered");
        drop(answering);
        assert_eq!(take_from(&places, &[&busy, &asked, &fifth]).await.0, 0);
        drop(others);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_gets_a_request_when_it_is_asked_stays() {
        let places = Places::new(1, SPARED);
        let only = place(&places).await;
        let taking = tokio::spawn({
            let places = places.clone();
            async move { places.take().await.1 }
        });
        assert!(timeout(SPARED / 2, only.asks.notified()).await.is_err(), "it has just come");
        timeout(PATIENCE, only.asks.notified()).await.expect("it is asked");
        drop(only.answering());
        assert!(!only.agrees(), "it has been answered since");
        only.places.changed.notify_one();
        timeout(PATIENCE, only.asks.notified()).await.expect("it is asked again");
        let answering = only.answering().unwrap();
        assert!(!only.agrees(), "it has a request");
        drop(answering);
        timeout(PATIENCE, only.gives_way()).await.expect("it is asked again");
        drop(only);
        assert!(timeout(PATIENCE, taking).await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_connection_that_has_proved_who_it_is_does_not_give_way_and_who_waits_gets_its_place_when_it_ends() {
        let places = Places::new(1, SPARED);
        let known = place(&places).await;
        known.authenticated();
        let mut taking = Box::pin(places.take());
        assert!(timeout(2 * SPARED, &mut taking).await.is_err());
        assert!(known.gives_way().now_or_never().is_none(), "it is not asked");
        drop(known);
        assert!(!timeout(PATIENCE, taking).await.expect("the place is free").1, "nobody gave way");
    }

    #[tokio::test]
    async fn a_connection_that_is_never_idle_for_long_gives_way_after_a_while() {
        let places = Places::new(1, SPARED);
        let only = place(&places).await;
        let taking = tokio::spawn({
            let places = places.clone();
            async move { places.take().await.1 }
        });
        let often = async {
            loop {
                tokio::time::sleep(SPARED / 5).await;
                only.wrote();
            }
        };
        tokio::select! {
            () = only.gives_way() => {}
            _ = timeout(PATIENCE, often) => panic!("it is not asked, or never agrees"),
        }
        drop(only);
        assert!(timeout(PATIENCE, taking).await.unwrap().unwrap());
    }
}

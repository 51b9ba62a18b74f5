//! How many TLS handshakes are worked on at a time, and how long one may take.
//!
//! A handshake takes its client's time and the relay's work. Only the work is limited: a handshake that waits for its client has no turn, and
//! one that waits for a turn is not late. So neither slow clients nor a fleet that connects at once keep others from being served.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::connections::Places;
use crate::limit::{Limit, LimitCounters};
use crate::relay::Newest;

/// The limits of handshakes, by their keys in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandshakeLimits {
    /// `handshakes`.
    pub(crate) at_a_time: usize,
    /// `handshake_timeout`.
    pub(crate) timeout: Duration,
    /// `handshakes_per_address`; 0: no limit.
    pub(crate) per_address: usize,
}

/// The handshakes of all listeners.
pub(crate) struct Handshakes {
    limits: Newest<HandshakeLimits>,
    turns: Places,
    addresses: Mutex<HashMap<IpAddr, usize>>,
    counters: Arc<LimitCounters>,
}

/// Counts a handshake of an address for as long as it exists.
pub(crate) struct OfAddress<'a>(Option<(&'a Handshakes, IpAddr)>);

impl Handshakes {
    pub(crate) fn new(limits: HandshakeLimits, counters: Arc<LimitCounters>) -> Self {
        let turns = Places::new(limits.at_a_time);
        Self { limits: Newest::new(Arc::new(limits)), turns, addresses: Mutex::default(), counters }
    }

    /// Puts other limits in force.
    pub(crate) fn set_limits(&self, limits: HandshakeLimits) {
        self.turns.resize(limits.at_a_time);
        self.limits.replace(Arc::new(limits));
    }

    /// Returns how long a handshake may wait for its client.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.get().timeout
    }

    /// Counts a handshake. `Err`: the limit, which the address has reached.
    pub(crate) fn enter(&self, address: Option<IpAddr>) -> Result<OfAddress<'_>, usize> {
        let limit = self.limits.get().per_address;
        let Some(address) = address else { return Ok(OfAddress(None)) };
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = addresses.entry(address).or_default();
        if limit != 0 && *count >= limit {
            self.counters.reached(Limit::HandshakesPerAddress);
            return Err(limit);
        }
        *count += 1;
        Ok(OfAddress(Some((self, address))))
    }

    /// Does a handshake, a step at each turn. None if its client took too long.
    pub(crate) async fn run<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let mut handshake = pin!(handshake);
        let (mut left, mut has_waited) = (self.limits.get().timeout, false);
        loop {
            let turn = match self.turns.try_take() {
                Some(turn) => turn,
                None => {
                    if !std::mem::replace(&mut has_waited, true) {
                        self.counters.reached(Limit::Handshakes);
                    }
                    self.turns.take().await
                }
            };
            let step = poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx))).await;
            drop(turn);
            if let Poll::Ready(done) = step {
                return Some(done);
            }
            let began = Instant::now();
            let _ = timeout(left, woken()).await; // its timer wakes the task too
            left = left.saturating_sub(began.elapsed());
            if left.is_zero() {
                self.counters.reached(Limit::HandshakeTimeout);
                return None;
            }
        }
    }
}

impl Drop for OfAddress<'_> {
    fn drop(&mut self) {
        let Some((handshakes, address)) = self.0 else { return };
        let mut addresses = handshakes.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = addresses.get_mut(&address) else { return };
        *count -= 1;
        if *count == 0 {
            addresses.remove(&address);
        }
    }
}

/// Waits until the task is woken, by whatever it waits for.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;
    use tokio::task::JoinSet;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn handshakes(at_a_time: usize, timeout: Duration, per_address: usize) -> (Arc<Handshakes>, Arc<LimitCounters>) {
        let counters = Arc::<LimitCounters>::default();
        let limits = HandshakeLimits { at_a_time, timeout, per_address };
        (Arc::new(Handshakes::new(limits, counters.clone())), counters)
    }

    fn count(counters: &LimitCounters, limit: Limit) -> u64 {
        counters.counts().find(|(key, _)| *key == limit.key()).unwrap().1
    }

    #[tokio::test]
    async fn a_handshake_that_waits_for_its_client_has_no_turn() {
        let (handshakes, counters) = handshakes(1, LONG, 0);
        let (answer, slow) = oneshot::channel::<()>();
        let waiting = tokio::spawn({
            let handshakes = handshakes.clone();
            async move { handshakes.run(slow).await }
        });
        for _ in 0..100 {
            assert_eq!(handshakes.run(async { tokio::task::yield_now().await }).await, Some(()));
        }
        assert!(!waiting.is_finished());
        answer.send(()).unwrap();
        assert_eq!(waiting.await.unwrap(), Some(Ok(())));
        assert_eq!(count(&counters, Limit::HandshakeTimeout), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_are_worked_on_at_a_time_and_the_time_before_a_turn_does_not_count() {
        let (handshakes, counters) = handshakes(2, Duration::from_millis(500), 0);
        let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = JoinSet::new();
        for _ in 0..200 {
            let (handshakes, busy, most) = (handshakes.clone(), busy.clone(), most.clone());
            let counters = counters.clone();
            all.spawn(async move {
                let work = poll_fn(move |_| {
                    most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let begun = Instant::now();
                    while count(&counters, Limit::Handshakes) <= 100 && begun.elapsed() < LONG {
                        std::thread::sleep(Duration::from_millis(1)); // the other threads begin all of them meanwhile
                    }
                    std::thread::sleep(Duration::from_millis(8)); // 800 ms in all
                    busy.fetch_sub(1, Ordering::SeqCst);
                    Poll::Ready(())
                });
                handshakes.run(work).await
            });
        }
        assert!(all.join_all().await.into_iter().all(|done| done.is_some()));
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert!(count(&counters, Limit::Handshakes) > 100);
    }

    #[tokio::test]
    async fn a_client_that_sends_bit_by_bit_is_given_no_more_time() {
        let (handshakes, counters) = handshakes(1, Duration::from_millis(200), 0);
        let bits = async {
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert_eq!(timeout(LONG, handshakes.run::<()>(bits)).await.expect("it goes on"), None);
        assert_eq!(count(&counters, Limit::HandshakeTimeout), 1);
    }

    #[tokio::test]
    async fn an_address_has_no_more_than_its_share() {
        let (handshakes, counters) = handshakes(1, LONG, 2);
        let (one, other) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        let first = handshakes.enter(one).ok().unwrap();
        let second = handshakes.enter(one).ok().unwrap();
        assert_eq!(handshakes.enter(one).err(), Some(2));
        let others = (handshakes.enter(other).ok().unwrap(), handshakes.enter(None).ok().unwrap());
        drop(first);
        let third = handshakes.enter(one).ok().unwrap();
        drop((second, third, others));
        assert!(handshakes.addresses.lock().unwrap().is_empty());
        assert_eq!(count(&counters, Limit::HandshakesPerAddress), 1);
    }
}

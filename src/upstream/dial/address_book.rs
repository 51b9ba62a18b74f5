//! The addresses that connections were made to: how many connections each has, and which addresses have failed.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The addresses of all servers. Each process has an order of its own, which does not change when a name server answers in another order.
#[derive(Debug, Default)]
pub(super) struct AddressBook {
    known: Mutex<HashMap<SocketAddr, Known>>,
    order: RandomState,
}

#[derive(Debug, Default)]
struct Known {
    /// Connections that are made or being made.
    connections: usize,
    /// How often the address has failed since it last worked.
    failures: u32,
    /// Until then the address is tried after all others.
    avoided_until: Option<Instant>,
}

/// One connection, or the attempt at one, for as long as it exists.
#[derive(Debug)]
pub(in crate::upstream) struct TriedAddress {
    book: Arc<AddressBook>,
    address: SocketAddr,
    /// Whether it counts among the connections of the address.
    counts: AtomicBool,
}

/// The addresses of one name that are still to be tried.
#[derive(Debug)]
pub(super) struct Untried {
    left: Vec<SocketAddr>,
    /// Whether the next address should be IPv6. The families take turns (RFC 8305), and the family of the first address begins.
    is_turn_of_v6: bool,
}

impl AddressBook {
    /// Takes the next address. Addresses that have not failed lately come first, those with the fewest connections before others; then the failed
    /// ones, in the order in which they stop being avoided.
    pub(super) fn take_next(self: &Arc<Self>, untried: &mut Untried) -> Option<Arc<TriedAddress>> {
        let now = Instant::now();
        let mut all = self.lock();
        let rank = |address: &SocketAddr| {
            let known = all.get(address);
            let avoided = known.and_then(|known| known.avoided_until).filter(|until| *until > now);
            let connections = known.map_or(0, |known| known.connections);
            let is_out_of_turn = address.is_ipv6() != untried.is_turn_of_v6;
            (avoided, connections, is_out_of_turn, self.order.hash_one(address))
        };
        let next = (0..untried.left.len()).min_by_key(|index| rank(&untried.left[*index]))?;
        let address = untried.left.swap_remove(next);
        untried.is_turn_of_v6 = !address.is_ipv6();
        all.entry(address).or_default().connections += 1;
        drop(all);
        Some(Arc::new(TriedAddress { book: self.clone(), address, counts: true.into() }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn avoid(&mut self) {
        let doublings = self.failures.saturating_sub(1).min(DOUBLINGS);
        self.avoided_until = Some(Instant::now() + AVOIDED.saturating_mul(1 << doublings).min(AVOIDED_MOST));
    }
}

impl Untried {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        let is_turn_of_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
        Self { left: addresses, is_turn_of_v6 }
    }
}

impl TriedAddress {
    pub(in crate::upstream) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops counting this connection, because its streams move away. Its replacement may then use the same address.
    pub(in crate::upstream) fn leaves(&self) {
        self.count(false);
    }

    /// Counts this connection again, because its streams stay after all.
    pub(in crate::upstream) fn stays(&self) {
        self.count(true);
    }

    fn count(&self, counts: bool) {
        let mut all = self.book.lock();
        if self.counts.swap(counts, Ordering::Relaxed) == counts {
            return;
        }
        let known = all.entry(self.address).or_default();
        known.connections = if counts { known.connections + 1 } else { known.connections.saturating_sub(1) };
    }

    /// Notes that a server has answered at the address.
    pub(in crate::upstream) fn worked(&self) {
        if let Some(known) = self.book.lock().get_mut(&self.address) {
            (known.failures, known.avoided_until) = (0, None);
        }
    }

    /// Notes that there is no server at the address, or none that answers. Many streams or connections that notice it at the same time are one
    /// failure.
    pub(in crate::upstream) fn failed(&self) {
        let now = Instant::now();
        let is_news = |known: &&mut Known| known.avoided_until.is_none_or(|until| until <= now);
        if let Some(known) = self.book.lock().get_mut(&self.address).filter(is_news) {
            known.failures = known.failures.saturating_add(1);
            known.avoid();
        }
    }

    /// Avoids this address again if it has failed: called once attempts at other addresses are over.
    pub(super) fn has_failed(&self) {
        if let Some(known) = self.book.lock().get_mut(&self.address).filter(|known| known.failures > 0) {
            known.avoid();
        }
    }
}

/// Removes an address without connections and failures. If there are too many addresses, old failures are forgotten, too.
impl Drop for TriedAddress {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut all = self.book.lock();
        if let Some(known) = all.get_mut(&self.address) {
            known.connections = known.connections.saturating_sub(usize::from(*self.counts.get_mut()));
        }
        if all.len() > REMEMBERED {
            all.retain(|_, known| known.connections > 0 || known.avoided_until.is_some_and(|until| until > now));
        } else if all.get(&self.address).is_some_and(|known| known.connections + known.failures as usize == 0) {
            all.remove(&self.address);
        }
    }
}

/// How long an address comes last after its first failure; it doubles with each.
const AVOIDED: Duration = Duration::from_secs(1);
const AVOIDED_MOST: Duration = Duration::from_secs(120);
const DOUBLINGS: u32 = 7;
/// Above this number of addresses, only those with connections, or that are avoided now, are kept.
const REMEMBERED: usize = 1024;

#[cfg(test)]
impl AddressBook {
    pub(super) fn is_avoided(&self, address: SocketAddr) -> bool {
        let until = self.lock().get(&address).and_then(|known| known.avoided_until);
        until.is_some_and(|until| until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> SocketAddr {
        ([127, 0, 0, number], 1).into()
    }

    fn v6(number: u16) -> SocketAddr {
        ([0, 0, 0, 0, 0, 0, 0, number], 1).into()
    }

    fn order(book: &Arc<AddressBook>, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut untried = Untried::new(addresses.into());
        let tried: Vec<_> = std::iter::from_fn(|| book.take_next(&mut untried)).collect();
        tried.iter().map(|tried| tried.address()).collect()
    }

    #[test]
    fn each_process_has_an_order_of_its_own_that_a_new_answer_does_not_change() {
        let all: Vec<_> = (1..=8).map(at).collect();
        let book = Arc::default();
        let first = order(&book, &all);
        let reversed: Vec<_> = all.iter().rev().copied().collect();
        assert_eq!(order(&book, &reversed), first, "whatever order the answer has");
        let without: Vec<_> = all[..5].to_vec();
        let expected: Vec<_> = first.iter().copied().filter(|address| without.contains(address)).collect();
        assert_eq!(order(&book, &without), expected);
        let others = (0..20).map(|_| order(&Arc::default(), &all));
        assert!(others.into_iter().any(|other| other != first), "relays do not all begin at one");
    }

    #[test]
    fn families_take_turns_and_that_of_the_first_address_begins() {
        let both = [v6(1), v6(2), v6(3), at(1), at(2)];
        let turns = |addresses: &[SocketAddr]| -> Vec<bool> {
            order(&Arc::default(), addresses).iter().map(SocketAddr::is_ipv6).collect()
        };
        assert_eq!(turns(&both), [true, false, true, false, true]);
        assert_eq!(turns(&[both[4], both[0], both[1]]), [false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_comes_last_for_longer_each_time_until_it_works_and_is_never_left_out() {
        let (book, both) = (Arc::<AddressBook>::default(), [at(1), at(2)]);
        let mut untried = Untried::new(both.into());
        let (bad, good) = (book.take_next(&mut untried).unwrap(), book.take_next(&mut untried).unwrap());
        let first = |book: &Arc<AddressBook>| order(book, &both)[0];
        for wait in [1, 2, 4, 8, 16, 32, 64, 120, 120] {
            bad.failed();
            assert_eq!(first(&book), good.address());
            assert_eq!(order(&book, &both).len(), 2);
            tokio::time::advance(Duration::from_secs(wait) - Duration::from_millis(1)).await;
            assert_eq!(first(&book), good.address(), "within {wait} s");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(first(&book), bad.address(), "after {wait} s");
        }
        bad.failed();
        bad.worked();
        assert_eq!(first(&book), bad.address());
        bad.failed();
        tokio::time::advance(AVOIDED).await;
        assert_eq!(first(&book), bad.address(), "it begins anew");

        [&good, &bad].into_iter().for_each(|tried| tried.failed());
        assert_eq!(first(&book), good.address(), "of two that failed the one that is avoided for the shorter time");
    }

    #[test]
    fn the_address_with_the_fewest_connections_is_next() {
        let (book, all) = (Arc::<AddressBook>::default(), [at(1), at(2), at(3)]);
        let next = || book.take_next(&mut Untried::new(all.into())).unwrap();
        let mut connections: Vec<_> = (0..30).map(|_| next()).collect();
        let counts = |connections: &[Arc<TriedAddress>]| {
            all.map(|address| connections.iter().filter(|tried| tried.address() == address).count())
        };
        assert_eq!(counts(&connections), [10; 3]);
        connections.retain(|tried| tried.address() != at(2));
        connections.extend((0..10).map(|_| next()));
        assert_eq!(counts(&connections), [10; 3], "those that are gone do not count");
        drop(connections);
        assert!(book.lock().is_empty(), "nothing is kept of what worked");
    }

    #[test]
    fn a_connection_that_is_left_does_not_count_unless_it_stays_after_all() {
        let (book, all) = (Arc::<AddressBook>::default(), [at(1), at(2)]);
        let next = || book.take_next(&mut Untried::new(all.into())).unwrap();
        let connections: Vec<_> = (0..4).map(|_| next()).collect();
        let left = &connections[1]; // at the address that is taken last of those with as many
        (0..2).for_each(|_| left.leaves());
        assert_eq!(next().address(), left.address(), "where it is there is one fewer");
        (0..2).for_each(|_| left.stays());
        let more = [next(), next()];
        assert_ne!(more[0].address(), more[1].address(), "both have as many");
        left.leaves();
        drop((connections, more));
        assert!(book.lock().is_empty(), "nothing is counted twice");
    }

    #[tokio::test(start_paused = true)]
    async fn what_names_answered_long_ago_is_forgotten() {
        let book = Arc::<AddressBook>::default();
        let fail = |number: usize| {
            let address = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 1));
            book.take_next(&mut Untried::new(vec![address])).unwrap().failed();
        };
        (0..REMEMBERED).for_each(fail);
        assert_eq!(book.lock().len(), REMEMBERED);
        tokio::time::advance(AVOIDED).await;
        fail(REMEMBERED);
        assert_eq!(book.lock().len(), 1);
    }
}

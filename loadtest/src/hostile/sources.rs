//! The addresses from which hostile clients connect.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Addresses that are used in turn. Without any, the system selects one.
#[derive(Default)]
pub struct Sources {
    addresses: Vec<IpAddr>,
    used: AtomicUsize,
}

impl Sources {
    /// Returns loopback addresses, each in a /24 block of its own that no honest client uses.
    pub fn loopback(count: usize) -> Self {
        let address = |number: usize| Ipv4Addr::new(127, (number / BLOCKS) as u8, (FIRST + number % BLOCKS) as u8, 1);
        Self { addresses: (0..count).map(|number| address(number).into()).collect(), used: AtomicUsize::new(0) }
    }

    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    pub fn next(&self) -> Option<IpAddr> {
        let used = self.used.fetch_add(1, Ordering::Relaxed);
        self.addresses.get(used % self.addresses.len().max(1)).copied()
    }
}

/// The third byte of the first address, and how many values it takes before the second byte changes.
const FIRST: usize = 9;
const BLOCKS: usize = 240;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_address_has_a_block_of_its_own() {
        let sources = Sources::loopback(1000);
        let blocks: HashSet<_> = (0..1000).filter_map(|_| block(sources.next()?)).collect();
        assert!(blocks.len() == 1000 && !blocks.contains(&[127, 0, 0]));
        assert_eq!(sources.next(), Some(Ipv4Addr::new(127, 0, 9, 1).into()), "the first one again");
        assert_eq!(Sources::default().next(), None);
    }

    fn block(address: IpAddr) -> Option<[u8; 3]> {
        let IpAddr::V4(address) = address else { return None };
        let [first, second, third, _] = address.octets();
        address.is_loopback().then_some([first, second, third])
    }
}

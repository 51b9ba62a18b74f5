//! How many of the scarce places each connection has, and which connection makes room for another.
//!
//! Pure books. Invariants: `by_count` has each connection with places once, under their number; a connection without places is nowhere.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Places by connection, each with what its owner needs to vacate it.
#[derive(Debug)]
pub(super) struct Shares<T> {
    /// The places of each connection, by their increasing numbers.
    of_connections: HashMap<u64, BTreeMap<u64, T>>,
    /// Connections by how many places they have.
    by_count: BTreeSet<(usize, u64)>,
    next: u64,
    taken: usize,
}

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self { of_connections: HashMap::new(), by_count: BTreeSet::new(), next: 0, taken: 0 }
    }
}

impl<T> Shares<T> {
    /// Returns how many places are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns how many places a connection has.
    pub(super) fn count(&self, connection: u64) -> usize {
        self.of_connections.get(&connection).map_or(0, BTreeMap::len)
    }

    /// Gives a connection a place. Returns its number.
    pub(super) fn add(&mut self, connection: u64, place: T) -> u64 {
        self.next += 1;
        let places = self.of_connections.entry(connection).or_default();
        self.by_count.remove(&(places.len(), connection));
        places.insert(self.next, place);
        self.by_count.insert((places.len(), connection));
        self.taken += 1;
        self.next
    }

    /// Takes a place back. Returns `None` if the place has already made room for another connection.
    pub(super) fn remove(&mut self, connection: u64, number: u64) -> Option<T> {
        let places = self.of_connections.get_mut(&connection)?;
        let place = places.remove(&number)?;
        self.by_count.remove(&(places.len() + 1, connection));
        match places.len() {
            0 => drop(self.of_connections.remove(&connection)),
            left => drop(self.by_count.insert((left, connection))),
        }
        self.taken -= 1;
        Some(place)
    }

    /// Takes back the newest place of the connection with the most, if that has at least two more than this connection. With one more, the
    /// two would take it from each other for ever.
    pub(super) fn make_room_for(&mut self, connection: u64) -> Option<T> {
        let (most, holder) = *self.by_count.last()?;
        if most < self.count(connection) + 2 {
            return None;
        }
        let newest = *self.of_connections.get(&holder)?.keys().next_back()?;
        self.remove(holder, newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_place_of_the_connection_with_most_makes_room_for_one_that_has_two_fewer() {
        let mut shares = Shares::default();
        assert_eq!(shares.make_room_for(1), None, "there is none");
        let places = [(1, "a"), (2, "b"), (1, "c"), (1, "d")];
        let numbers = places.map(|(connection, place)| shares.add(connection, place));
        assert_eq!(shares.make_room_for(1), None);
        assert_eq!(shares.make_room_for(2), Some("d"));
        assert_eq!(shares.make_room_for(2), None, "one more is not enough");
        assert_eq!(shares.make_room_for(3), Some("c"));
        assert_eq!(shares.make_room_for(3), None);
        assert_eq!([1, 2, 3].map(|connection| shares.count(connection)), [1, 1, 0]);
        assert_eq!(shares.remove(1, numbers[2]), None, "it has made room");
        assert_eq!(shares.remove(1, numbers[0]), Some("a"));
        assert_eq!(shares.remove(2, numbers[1]), Some("b"));
        assert_eq!((shares.taken(), shares.of_connections.len(), shares.by_count.len()), (0, 0, 0));
    }
}

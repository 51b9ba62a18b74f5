//! A map by name of which no single change takes long.
//!
//! A hash map moves all its entries when it grows or shrinks. With millions of names that takes a good part of a second, in which the view
//! does nothing for its other clients, and while it grows it needs the memory twice. This map is many small ones: it grows by splitting one
//! of them, and shrinks by joining two (linear hashing).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::xds::Name;

#[derive(Debug)]
pub(super) struct NameMap<V> {
    /// At least one.
    parts: Vec<HashMap<Name, V>>,
    len: usize,
    /// Chooses the part. The parts have hashers of their own, because all names of one part have the same last bits in this one.
    hasher: RandomState,
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        Self { parts: vec![HashMap::new()], len: 0, hasher: RandomState::new() }
    }
}

impl<V> NameMap<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn contains(&self, name: &Name) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn get(&self, name: &Name) -> Option<&V> {
        self.parts[self.part_of(name)].get(name)
    }

    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut V> {
        let at = self.part_of(name);
        self.parts[at].get_mut(name)
    }

    /// Returns what is kept for a name. If that is nothing, it is made first.
    pub(super) fn get_or_insert_with(&mut self, name: &Name, make: impl FnOnce() -> V) -> &mut V {
        if self.len >= self.parts.len() * PER_PART {
            self.split();
        }
        let at = self.part_of(name);
        let Self { parts, len, .. } = self;
        parts[at].entry(name.clone()).or_insert_with(|| {
            *len += 1;
            make()
        })
    }

    pub(super) fn remove(&mut self, name: &Name) -> Option<V> {
        let at = self.part_of(name);
        let part = &mut self.parts[at];
        let removed = part.remove(name)?;
        self.len -= 1;
        if part.len() < part.capacity() / 4 {
            part.shrink_to(part.len() * 2); // what one client brought does not stay for ever
        }
        if self.parts.len() > 1 && self.len < self.parts.len() * PER_PART / 4 {
            self.join();
        }
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &V)> {
        self.parts.iter().flatten()
    }

    fn part_of(&self, name: &Name) -> usize {
        match self.parts.len() {
            1 => 0,
            count => {
                let round = count.next_power_of_two();
                let at = self.hasher.hash_one(name) as usize & (round - 1);
                if at < count { at } else { at - round / 2 } // its part is not split yet in this round
            }
        }
    }

    /// Moves half the entries of one part to a new one.
    fn split(&mut self) {
        let new = self.parts.len();
        self.parts.push(HashMap::new());
        let mut old = std::mem::take(&mut self.parts[split_into(new)]);
        let moved: HashMap<_, _> = old.extract_if(|name, _| self.part_of(name) == new).collect();
        old.shrink_to_fit();
        self.parts[split_into(new)] = old;
        self.parts[new] = moved;
    }

    /// Undoes the last [`Self::split`].
    fn join(&mut self) {
        if let Some(last) = self.parts.pop() {
            let into = split_into(self.parts.len());
            self.parts[into].extend(last);
        }
    }
}

/// Returns the part that is split when this one is made.
fn split_into(new: usize) -> usize {
    new - (1 << new.ilog2())
}

/// How many names a part has on average before another one is made. A part has at most about twice as many, for which a hash map has a capacity
/// of 14,336.
const PER_PART: usize = 6_500;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn name(number: usize) -> Name {
        format!("name-{number}").as_str().into()
    }

    fn filled(count: usize) -> NameMap<usize> {
        let mut map = NameMap::default();
        (0..count).for_each(|number| *map.get_or_insert_with(&name(number), || 0) = number);
        map
    }

    #[test]
    fn every_name_is_found_whatever_was_split_and_joined() {
        let count = 9 * PER_PART + 7;
        let mut map = filled(count);
        assert!(map.parts.len() > 8, "it is split");
        assert_eq!((map.len, map.iter().count()), (count, count));
        assert!((0..count).all(|number| map.get(&name(number)) == Some(&number)));
        assert!((0..count).filter(|number| number % 10 != 0).all(|number| map.remove(&name(number)) == Some(number)));
        assert!(map.parts.len() < 8, "it is joined");
        assert!((0..count).all(|number| map.contains(&name(number)) == (number % 10 == 0)));
        assert!((0..count).step_by(10).all(|number| map.remove(&name(number)) == Some(number)));
        assert_eq!((map.parts.len(), map.is_empty(), map.remove(&name(0))), (1, true, None));
        assert!(map.parts[0].capacity() < 100, "{}", map.parts[0].capacity());
    }

    #[test]
    fn no_part_becomes_large_so_no_step_moves_many_names() {
        let mut map = NameMap::default();
        let mut largest = 0;
        for number in 0..20 * PER_PART {
            map.get_or_insert_with(&name(number), || ());
            largest = largest.max(map.parts[map.part_of(&name(number))].capacity());
        }
        assert!(largest < 30_000, "{largest}");
        let capacity: usize = map.parts.iter().map(HashMap::capacity).sum();
        assert!(capacity < 5 * map.len / 2, "{capacity} for {}", map.len);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(32) })]

        #[test]
        fn it_has_what_an_ordered_map_has(steps in proptest::collection::vec((0..60_usize, 0..3_u8), 0..400)) {
            let (mut map, mut model) = (filled(0), BTreeMap::new());
            for (at, (number, what)) in steps.into_iter().enumerate() {
                let name = name(number);
                match what {
                    0 => prop_assert_eq!(map.remove(&name), model.remove(&name)),
                    _ => {
                        let (of_map, of_model) = (map.get_or_insert_with(&name, || at), model.entry(name.clone()).or_insert(at));
                        prop_assert_eq!(&of_map, &of_model);
                        (*of_map, *of_model) = (at, at);
                    }
                }
                if at % 3 == 0 { map.split() }
                if at % 7 == 0 && map.parts.len() > 1 { map.join() }
                prop_assert_eq!(map.iter().map(|(name, at)| (name.clone(), *at)).collect::<BTreeMap<_, _>>(), model.clone());
                prop_assert!(model.iter().all(|(name, at)| map.get(name) == Some(at)));
            }
        }
    }
}

//! Resource names and versions, stored once for all clients.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

pub type Name = Arc<str>;

/// The names that any client uses.
#[derive(Debug, Default)]
pub struct Names {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    names: HashSet<Name>,
    /// The number of names at which unused ones are dropped.
    limit: usize,
}

impl Names {
    pub fn intern(&self, name: &str) -> Name {
        let shard = self.hasher.hash_one(name) as usize % SHARDS;
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shard.names.get(name) {
            return known.clone();
        }
        if shard.names.len() >= shard.limit {
            shard.names.retain(|name| Arc::strong_count(name) > 1);
            shard.limit = 2 * shard.names.len() + SMALL;
        }
        let name = Name::from(name);
        shard.names.insert(name.clone());
        name
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().names.len()).sum()
    }
}

const SHARDS: usize = 16;
const SMALL: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_user_are_dropped_and_used_ones_stay_the_same() {
        let names = Names::default();
        let kept = names.intern("kept");
        for number in 0..200_000 {
            names.intern(&number.to_string());
        }
        assert!(names.count() <= SHARDS * (SMALL + 2), "{}", names.count());
        assert!(Arc::ptr_eq(&kept, &names.intern("kept")));
    }
}

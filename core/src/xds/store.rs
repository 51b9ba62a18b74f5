//! Stores each resource body once per process (I2), for all views and clients, until its last user drops it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::body::Body;
use super::types::Type;
use super::version::ContentHash;

/// Finds stored bodies. The store keeps none of them alive.
///
/// Views use it concurrently while they read responses. So a lock is held only for one look-up in one shard, and bodies are hashed and
/// copied without a lock.
#[derive(Debug, Default)]
pub struct BodyStore {
    shards: [Mutex<BodyShard>; SHARDS],
    bytes: Arc<AtomicUsize>,
}

/// The bodies of one shard.
#[derive(Debug, Default)]
struct BodyShard {
    bodies: HashMap<ContentHash, Vec<Weak<Body>>>,
    /// When this many entries are reached, the shard is swept. Then this is set to twice the entries left, so that the work per body is constant.
    sweep_at: usize,
}

impl BodyStore {
    /// Returns the stored copy of these bytes. Threads that store the same bytes at the same time get the same copy.
    pub fn intern(&self, kind: &Type, bytes: &[u8]) -> Arc<Body> {
        self.intern_as(kind, None, bytes)
    }

    /// Like [`Self::intern`], for a body with a URL of its own, which is part of its content.
    pub(super) fn intern_as(&self, kind: &Type, type_url: Option<&str>, bytes: &[u8]) -> Arc<Body> {
        let hash = match type_url {
            None => ContentHash::of_body(kind.name(), bytes),
            Some(url) => ContentHash::of_body(&format!("{}\n{url}", kind.name()), bytes),
        };
        if let Some(held) = self.shard(hash).find(hash, type_url, bytes) {
            return held;
        }
        let copied = Arc::new(Body::copied(hash, type_url, bytes, &self.bytes));
        self.shard(hash).find_or_insert(copied)
    }

    /// Returns the bytes of all bodies that are in use.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: ContentHash) -> MutexGuard<'_, BodyShard> {
        self.shards[hash.remainder(SHARDS)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyShard {
    /// Compares a hit byte for byte: a hash alone never decides what a client gets.
    fn find(&self, hash: ContentHash, type_url: Option<&str>, bytes: &[u8]) -> Option<Arc<Body>> {
        let is_same = |body: &Arc<Body>| body.bytes() == bytes && body.type_url() == type_url;
        self.bodies.get(&hash)?.iter().filter_map(Weak::upgrade).find(is_same)
    }

    /// Another thread may have stored the same body meanwhile.
    fn find_or_insert(&mut self, body: Arc<Body>) -> Arc<Body> {
        if let Some(held) = self.find(body.hash(), body.type_url(), body.bytes()) {
            return held;
        }
        self.sweep_if_grown();
        let same_hash = self.bodies.entry(body.hash()).or_insert_with(|| Vec::with_capacity(1)); // nearly always one
        same_hash.retain(|body| body.strong_count() > 0);
        same_hash.push(Arc::downgrade(&body));
        body
    }

    fn sweep_if_grown(&mut self) {
        if self.bodies.len() < self.sweep_at.max(SWEEP_FROM) {
            return;
        }
        self.bodies.retain(|_, bodies| {
            bodies.retain(|body| body.strong_count() > 0);
            !bodies.is_empty()
        });
        self.sweep_at = self.bodies.len() * 2;
        self.bodies.shrink_to(self.sweep_at);
    }
}

/// More shards than threads that intern at the same time, so that they seldom collide.
const SHARDS: usize = 32;
/// A shard with fewer entries is not swept.
const SWEEP_FROM: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::xds::TypeTable;

    fn entries(store: &BodyStore) -> usize {
        store
            .shards
            .iter()
            .flat_map(|shard| shard.lock().unwrap().bodies.values().map(Vec::len).collect::<Vec<_>>())
            .sum()
    }

    #[test]
    fn equal_bytes_of_a_type_are_held_once() {
        let (store, table) = (BodyStore::default(), TypeTable::new());
        let one = store.intern(&table.resolve("a.B"), b"body");
        assert!(Arc::ptr_eq(&one, &store.intern(&table.resolve("a.B"), b"body")));
        assert!(!Arc::ptr_eq(&one, &store.intern(&table.resolve("a.C"), b"body")));
    }

    #[test]
    fn i2_equal_bytes_are_held_once_whoever_brings_them_at_the_same_time() {
        const THREADS: usize = 8;
        const BODIES: usize = 500;
        let (store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        let start = Barrier::new(THREADS);
        let bring = || {
            (0..BODIES).map(|number| {
                start.wait(); // all threads store each body at the same time
                store.intern(&kind, &[number as u8; 4096][..=number])
            })
        };
        let brought: Vec<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| bring().collect())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for other in &brought {
            assert!(brought[0].iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other)));
        }
        assert_eq!(entries(&store), BODIES);
    }

    #[test]
    fn what_came_between_a_look_up_and_a_copy_is_found() {
        let (store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        let other = store.intern(&kind, b"body");
        let copied = Arc::new(Body::copied(other.hash(), None, b"body", &store.bytes));
        assert!(Arc::ptr_eq(&store.shard(other.hash()).find_or_insert(copied), &other));
    }

    #[test]
    fn a_content_that_comes_and_goes_leaves_nothing_behind() {
        let (store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        (0..1_000).for_each(|_| drop(store.intern(&kind, b"body")));
        assert_eq!(entries(&store), 1);
    }

    #[test]
    fn bytes_are_counted_once_and_until_nobody_holds_them() {
        let (store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        let bodies = [b"one".as_slice(), b"two", b"one"].map(|bytes| store.intern(&kind, bytes));
        assert_eq!(store.bytes(), 6);
        drop(bodies);
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn what_nobody_holds_any_more_is_swept() {
        let (store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        for n in 0..10_000u32 {
            store.intern(&kind, &n.to_le_bytes());
        }
        assert!(entries(&store) <= SHARDS * SWEEP_FROM, "{} entries", entries(&store));
    }
}

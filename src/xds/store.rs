//! Keeps every resource body once in the process (I2), across views and clients, for as long as something refers to it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::body::Body;
use super::types::Type;
use super::version::ContentHash;

/// Finds the body that already exists. It keeps nothing alive itself.
#[derive(Debug, Default)]
pub struct BodyStore {
    bodies: HashMap<ContentHash, Vec<Weak<Body>>>,
    /// Swept when this many entries are reached: each sweep sets it to twice what is alive, so the work per body is constant.
    sweep_at: usize,
}

impl BodyStore {
    /// Returns the one copy of these bytes. A hit is compared byte for byte: a hash alone never decides what a client gets.
    pub fn intern(&mut self, kind: &Type, bytes: &[u8]) -> Arc<Body> {
        self.sweep_if_grown();
        let hash = ContentHash::of_body(kind.name(), bytes);
        let same_hash = self.bodies.entry(hash).or_default();
        let held = same_hash.iter().filter_map(Weak::upgrade).find(|body| body.bytes() == bytes);
        if held.is_none() {
            same_hash.retain(|body| body.strong_count() > 0);
        }
        held.unwrap_or_else(|| {
            let body = Arc::new(Body::copied(hash, bytes));
            same_hash.push(Arc::downgrade(&body));
            body
        })
    }

    fn sweep_if_grown(&mut self) {
        if self.bodies.len() < self.sweep_at.max(64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    #[test]
    fn equal_bytes_of_a_type_are_held_once() {
        let (mut store, table) = (BodyStore::default(), TypeTable::new());
        let one = store.intern(&table.resolve("a.B"), b"body");
        assert!(Arc::ptr_eq(&one, &store.intern(&table.resolve("a.B"), b"body")));
        assert!(!Arc::ptr_eq(&one, &store.intern(&table.resolve("a.C"), b"body")));
    }

    #[test]
    fn a_content_that_comes_and_goes_leaves_nothing_behind() {
        let (mut store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        (0..1_000).for_each(|_| drop(store.intern(&kind, b"body")));
        assert_eq!(store.bodies.values().map(Vec::len).sum::<usize>(), 1);
    }

    #[test]
    fn what_nobody_holds_any_more_is_swept() {
        let (mut store, kind) = (BodyStore::default(), TypeTable::new().resolve("a.B"));
        for n in 0..10_000u32 {
            store.intern(&kind, &n.to_le_bytes());
        }
        assert!(store.bodies.len() <= 64, "{} entries", store.bodies.len());
    }
}

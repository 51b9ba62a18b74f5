//! Stores stated versions once for all clients that state the same, within a limit for all.

use std::fmt;
use std::hash::RandomState;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ledger::{HoldId, Holder, Ledger};
use super::{HeldVersions, Share, StatedEntries};

/// Finds stated versions that are equal, and counts their bytes. A lock is held for look-ups, not while entries are read or compared.
pub struct StatedVersionsStore {
    limit: usize,
    /// Random, so that no client can prepare different entries with equal sums.
    hashes: RandomState,
    ledger: Mutex<Ledger>,
}

impl StatedVersionsStore {
    /// Returns an empty store with a limit of about this many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, hashes: RandomState::new(), ledger: Mutex::default() })
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the bytes of all stated versions that are held.
    pub fn bytes(&self) -> usize {
        self.ledger().bytes()
    }

    /// Holds stated versions for a stream of a connection. Above the limit it refuses holds, the costliest first, and calls their `on_refusal`.
    /// Returns `None` if it refuses this one.
    pub fn hold(
        self: &Arc<Self>,
        entries: StatedEntries,
        connection: u64,
        on_refusal: impl Fn() + Send + Sync + 'static,
    ) -> Option<HeldVersions> {
        let sum = entries.sum(&self.hashes);
        let candidates = self.ledger().copies_with(sum);
        let equal = candidates.into_iter().find(|versions| entries.are(versions));
        let versions = equal.unwrap_or_else(|| Arc::new(entries.into_versions()));

        let refused = Arc::<AtomicBool>::default();
        let holder = Holder { connection, refused: refused.clone(), on_refusal: Box::new(on_refusal) };
        let (mut refusals, mut ledger) = (Vec::new(), self.ledger());
        let (id, versions) = ledger.hold(sum, versions, holder);
        while ledger.bytes() > self.limit {
            let Some(refusal) = ledger.refuse_costliest() else { break };
            refusals.push(refusal);
        }
        drop(ledger);
        refusals.iter().for_each(|refusal| refusal());
        let share = Share { store: Arc::downgrade(self), limit: self.limit, id, refused };
        Some(HeldVersions { versions, share: Some(share) }).filter(|held| held.refused_above().is_none())
    }

    pub(super) fn release(&self, id: HoldId) {
        self.ledger().release(id);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StatedVersionsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatedVersionsStore").field("limit", &self.limit).field("bytes", &self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prost::Message;

    use super::*;
    use crate::proto::discovery::DeltaDiscoveryRequest;
    use crate::xds::ContentHash;

    type Map = BTreeMap<String, String>;

    fn version(content: usize) -> String {
        ContentHash::of_body("a.B", &content.to_le_bytes()).to_string()
    }

    fn map(names: std::ops::Range<usize>, content: usize) -> Map {
        names.map(|name| (format!("name-{name}"), version(content))).collect()
    }

    fn entries(map: &Map) -> StatedEntries<'_> {
        StatedEntries::of(map.iter().map(|(name, version)| (name.as_str(), version.as_str())))
    }

    /// Returns the number of copies and of holds.
    fn counts(store: &StatedVersionsStore) -> (usize, usize) {
        store.ledger().counts()
    }

    /// Returns a store with room for this many copies of a hundred names.
    fn store(copies: usize) -> Arc<StatedVersionsStore> {
        let large = StatedVersionsStore::new(usize::MAX);
        let _held = large.hold(entries(&map(0..100, 1)), 1, || {});
        StatedVersionsStore::new(large.bytes() * copies + large.bytes() / 2)
    }

    /// Returns the bytes of a delta request with these entries in this order.
    fn encoded<'a>(order: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<u8> {
        let alone = |(name, version): (&String, &String)| DeltaDiscoveryRequest {
            initial_resource_versions: [(name.clone(), version.clone())].into(),
            ..Default::default()
        };
        order.flat_map(|entry| alone(entry).encode_to_vec()).collect()
    }

    #[test]
    fn a_store_may_be_filled_to_its_last_byte() {
        let map = map(0..100, 1);
        let large = StatedVersionsStore::new(usize::MAX);
        let _held = large.hold(entries(&map), 1, || {}).unwrap();
        let limited = StatedVersionsStore::new;
        assert!(limited(large.bytes()).hold(entries(&map), 1, || unreachable!()).is_some());
        assert!(limited(large.bytes() - 1).hold(entries(&map), 1, || {}).is_none());
    }

    #[test]
    fn clients_that_state_the_same_in_another_order_share_one_copy_until_the_last_is_dropped() {
        let (store, map) = (store(1), map(0..100, 1));
        let (forth, back) = (encoded(map.iter()), encoded(map.iter().rev()));
        assert_ne!(forth, back);
        let held = [&forth, &back, &forth].map(|request| {
            let (entries, others) = StatedEntries::split_off(request).unwrap();
            assert!(others.is_empty());
            store.hold(entries, 1, || unreachable!()).unwrap()
        });
        assert!(held.iter().all(|other| Arc::ptr_eq(&held[0].versions, &other.versions)));
        assert_eq!((counts(&store), held[0].len()), ((1, 3), 100));
        let [one, other, last] = held;
        drop((one, other));
        assert_eq!(counts(&store), (1, 1));
        drop(last);
        assert!(store.ledger().is_empty());
    }

    #[test]
    fn one_other_name_content_or_count_makes_another_copy() {
        let (store, same) = (store(9), map(0..100, 1));
        let (mut other_content, mut twice) = (same.clone(), same.clone());
        other_content.insert("name-7".into(), version(2));
        twice.remove("name-7");
        let mut repeated = encoded(twice.iter());
        repeated.extend(encoded(twice.iter().take(1))); // as many entries, and fewer names
        let all =
            [entries(&same), entries(&other_content), entries(&twice), StatedEntries::split_off(&repeated).unwrap().0];
        let held = all.map(|entries| store.hold(entries, 1, || {}).unwrap());
        assert_eq!(held.each_ref().map(|held| held.len()), [100, 100, 99, 99]);
        assert!(!Arc::ptr_eq(&held[0].versions, &held[1].versions));
        assert_eq!(counts(&store).0, 4);
    }

    #[test]
    fn equal_sums_alone_prove_nothing() {
        let mut ledger = Ledger::default();
        let holder = || Holder { connection: 1, refused: Arc::default(), on_refusal: Box::new(|| {}) };
        let one = Arc::new(entries(&map(0..2, 1)).into_versions());
        let other = Arc::new(entries(&map(0..2, 2)).into_versions());
        ledger.hold(7, one.clone(), holder());
        let (_, held) = ledger.hold(7, other.clone(), holder());
        assert!(Arc::ptr_eq(&held, &other));
        assert!(!entries(&map(0..2, 2)).are(&one) && entries(&map(0..2, 2)).are(&other));
    }

    #[test]
    fn versions_that_another_stream_has_stated_meanwhile_are_shared() {
        let mut ledger = Ledger::default();
        let [one, other] = [(); 2].map(|()| {
            let holder = Holder { connection: 1, refused: Arc::default(), on_refusal: Box::new(|| {}) };
            ledger.hold(7, Arc::new(entries(&map(0..2, 1)).into_versions()), holder)
        });
        assert!(Arc::ptr_eq(&one.1, &other.1));
        assert_eq!(ledger.counts(), (1, 2));
        [one.0, other.0].into_iter().for_each(|id| ledger.release(id));
        assert!(ledger.is_empty());
    }

    #[test]
    fn of_several_entries_with_one_name_the_last_counts_as_in_the_decoder() {
        let both = [("a".to_owned(), version(1)), ("a".to_owned(), version(2))];
        let request = encoded(both.iter().map(|(name, version)| (name, version)));
        let decoded = DeltaDiscoveryRequest::decode(&*request).unwrap().initial_resource_versions;
        let (wire, _) = StatedEntries::split_off(&request).unwrap();
        assert_eq!(wire.into_versions(), entries(&decoded).into_versions());
    }

    #[test]
    fn i8_the_copy_that_is_costliest_for_its_holders_goes_and_not_the_one_of_a_fleet() {
        let (store, fleet) = (store(3), map(0..200, 1));
        let refused = Arc::<AtomicUsize>::default();
        let hold = |map: &Map, from: u64| {
            let refused = refused.clone();
            store.hold(entries(map), from, move || {
                refused.fetch_add(from as usize, Ordering::Relaxed);
            })
        };
        let honest: Vec<_> = (1..=10).map(|from| hold(&fleet, from).unwrap()).collect();
        let greedy = hold(&map(0..95, 2), 1000).unwrap();
        let other = hold(&map(0..70, 3), 500).unwrap();
        assert_eq!(refused.load(Ordering::Relaxed), 1000, "the greedy one, although the copy of the fleet is larger");
        assert!(greedy.refused_above().is_some());
        assert!(honest.iter().chain([&other]).all(|held| held.refused_above().is_none()));
        let alone = hold(&map(0..300, 4), 1000);
        assert!(alone.is_none(), "the one that asks is no exception");
        drop((honest, greedy, other));
        assert!(store.ledger().is_empty());
    }

    #[test]
    fn i8_a_connection_pays_for_all_its_copies_together() {
        let store = store(3);
        let hold = |names: std::ops::Range<usize>, from| store.hold(entries(&map(names, 1)), from, || {});
        let honest = hold(0..100, 1).unwrap();
        let greedy: Vec<_> = (0..5).map(|part| hold(1000 * part..1000 * part + 45, 2).unwrap()).collect();
        let last = hold(0..60, 3).unwrap();
        assert!(honest.refused_above().is_none() && last.refused_above().is_none());
        assert_eq!(greedy.iter().filter(|held| held.refused_above().is_some()).count(), 2);
    }

    #[test]
    fn i8_of_the_copies_of_one_connection_the_costliest_goes() {
        let store = store(1);
        let hold = |names: std::ops::Range<usize>, from| store.hold(entries(&map(names, 1)), from, || {});
        let [small, large] = [hold(0..30, 2).unwrap(), hold(100..190, 2).unwrap()];
        let other = hold(200..260, 1).unwrap();
        assert!(large.refused_above().is_some());
        assert!(small.refused_above().is_none() && other.refused_above().is_none());
    }

    #[test]
    fn other_fields_stay_as_they_were_and_bytes_that_are_no_request_are_left_to_the_decoder() {
        let request = DeltaDiscoveryRequest {
            node: Some(b"\x0a\x01n".as_slice().into()),
            type_url: "type".into(),
            initial_resource_versions: map(0..2, 1),
            response_nonce: "7".into(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        let (entries, others) = StatedEntries::split_off(&bytes).unwrap();
        assert_eq!(entries.len(), 2);
        let without = DeltaDiscoveryRequest { initial_resource_versions: Map::new(), ..request };
        assert_eq!(DeltaDiscoveryRequest::decode(&*others), Ok(without.clone()));
        assert!(StatedEntries::split_off(&others).is_none());
        for broken in [&[0x2a, 3, 0x0a, 1, 0xff][..], &[0x2a, 2, 0x0a, 9], &[0x28, 1], &[0x2a, 2, 0x08, 1], &[0x2a, 9]]
        {
            assert!(StatedEntries::split_off(broken).is_none(), "{broken:?}");
            assert!(DeltaDiscoveryRequest::decode(broken).is_err(), "{broken:?}");
        }
    }
}

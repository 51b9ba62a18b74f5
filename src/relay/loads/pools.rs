//! The pools of keys with clients: how many there are, which client made each, and which pool makes room when there are too many.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use weir_core::protocol::loads::Reporter;
use weir_core::xds::SharingKey;

use super::LoadConnector;
use super::pool::{PARTING, Pool};
use super::shares::Shares;
use crate::limit::{Limit, LimitCounters};
use crate::memory::{Charge, costs};
use crate::relay::admission::AdmissionError;
use crate::relay::views::{MadeViews, ViewLimits, ViewQuota};

/// The pools of one configuration.
#[derive(Default)]
pub(super) struct Pools {
    /// Guards only the map. The lock of a pool may be taken after this one.
    map: Mutex<PoolMap>,
    /// Notified when a pool has ended.
    ended: Notify,
}

#[derive(Default)]
struct PoolMap {
    of_keys: HashMap<SharingKey, PoolEntry>,
    /// Pools whose clients all have the same connection.
    of_one: Shares<SharingKey>,
    /// Pools without clients that have something to report, in the order in which their last clients left.
    unused: BTreeMap<u64, SharingKey>,
    last_unused: u64,
    /// How many pools were taken out of the map and have not ended.
    leaving: usize,
}

/// A pool that clients can join.
struct PoolEntry {
    pool: Arc<Pool>,
    _made: MadePool,
    /// How many streams of each connection are members.
    members: HashMap<u64, usize>,
    /// In which other list of the map the pool is.
    listed: Listed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    Nowhere,
    /// In `of_one`: the connection, and the number of the place.
    OfOne(u64, u64),
    /// In `unused`, by this number.
    Unused(u64),
}

/// Counts a pool for the client that made it, as long as the pool is in the map.
struct MadePool {
    maker: Arc<ViewQuota>,
    key: SharingKey,
}

/// A connection that reports loads.
#[derive(Clone, Copy)]
pub(super) struct LoadClient<'a> {
    pub(super) connection: u64,
    pub(super) quota: &'a Arc<ViewQuota>,
}

/// A stream's place among the members of a pool. Dropping it leaves the pool.
pub(super) struct Membership {
    pools: Arc<Pools>,
    pub(super) pool: Arc<Pool>,
    pub(super) id: Reporter,
    connection: u64,
}

/// A pool with its task. Dropping it takes the pool out of the map.
pub(super) struct RunningPool {
    pools: Arc<Pools>,
    pool: Arc<Pool>,
    /// The pool's memory, charged to the client that made it until the pool has ended.
    _charge: Option<Charge>,
}

impl Pools {
    /// Adds a client to the pool of its key. If there is no pool and there is room, a new one is made, and the caller has to run its task.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &SharingKey,
        client: LoadClient,
        limits: &ViewLimits,
        counters: &LimitCounters,
        make: impl FnOnce() -> Pool,
    ) -> Result<(Membership, Option<RunningPool>), AdmissionError> {
        let membership = |(pool, id)| Membership { pools: self.clone(), pool, id, connection: client.connection };
        let mut map = self.lock();
        if let Some(joined) = map.join(key, client.connection) {
            return Ok((membership(joined), None));
        }
        let account = client.quota.account();
        // Checked before another pool is evicted for this one.
        account.map_or(Ok(()), |account| account.admit(costs::POOL)).map_err(AdmissionError::NoMemory)?;
        map.remove(key); // it is about to end, and another one takes its place
        map.find_room(key, limits, client, counters)?;
        let pool = Arc::new(make());
        map.insert(key.clone(), pool.clone(), client.quota);
        let joined = map.join(key, client.connection).ok_or(AdmissionError::Stopping)?;
        let charge = account.map(|account| account.charge(costs::POOL));
        Ok((membership(joined), Some(RunningPool { pools: self.clone(), pool, _charge: charge })))
    }

    /// Sends the last reports of clients, and returns when all pools have ended.
    pub(super) async fn finish(&self) {
        self.lock().of_keys.values().for_each(|entry| entry.pool.hasten());
        while !self.lock().is_empty() {
            self.ended.notified().await;
        }
        self.ended.notify_one(); // another one may wait too, and each end wakes one
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let map = self.lock();
        let is_listed = map.of_one.taken() > 0 || !map.unused.is_empty();
        assert!(!map.of_keys.is_empty() || !is_listed, "what is in no map is listed");
        map.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, PoolMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolMap {
    fn is_empty(&self) -> bool {
        self.of_keys.is_empty() && self.leaving == 0
    }

    /// Adds a stream of a connection to a pool, unless it is about to end.
    fn join(&mut self, key: &SharingKey, connection: u64) -> Option<(Arc<Pool>, Reporter)> {
        let entry = self.of_keys.get_mut(key)?;
        let joined = (entry.pool.clone(), entry.pool.join()?);
        *entry.members.entry(connection).or_default() += 1;
        self.list(key);
        Some(joined)
    }

    fn leave(&mut self, pool: &Arc<Pool>, connection: u64) {
        let Some(entry) = self.of_keys.get_mut(&pool.key).filter(|entry| Arc::ptr_eq(&entry.pool, pool)) else {
            return;
        };
        if let Some(streams) = entry.members.get_mut(&connection) {
            *streams -= 1;
            if *streams == 0 {
                entry.members.remove(&connection);
            }
        }
        self.list(&pool.key);
    }

    fn insert(&mut self, key: SharingKey, pool: Arc<Pool>, maker: &Arc<ViewQuota>) {
        let made = MadePool::new(maker, &key);
        let entry = PoolEntry { pool, _made: made, members: HashMap::new(), listed: Listed::Nowhere };
        self.of_keys.insert(key, entry);
    }

    /// Takes a pool out of the map. It counts as leaving until it has ended.
    fn remove(&mut self, key: &SharingKey) -> Option<Arc<Pool>> {
        let entry = self.of_keys.remove(key)?;
        self.strike(entry.listed);
        self.leaving += 1;
        Some(entry.pool)
    }

    /// Puts a pool into the list that its members call for.
    fn list(&mut self, key: &SharingKey) {
        let Some(entry) = self.of_keys.get(key) else { return };
        let only = entry.members.keys().next().filter(|_| entry.members.len() == 1).copied();
        let (before, is_unused) = (entry.listed, entry.members.is_empty());
        if let (Listed::OfOne(connection, _), Some(only)) = (before, only)
            && connection == only
        {
            return;
        }
        self.strike(before);
        let listed = match only {
            Some(only) => Listed::OfOne(only, self.of_one.add(only, key.clone())),
            None if is_unused => {
                self.last_unused += 1;
                self.unused.insert(self.last_unused, key.clone());
                Listed::Unused(self.last_unused)
            }
            None => Listed::Nowhere,
        };
        if let Some(entry) = self.of_keys.get_mut(key) {
            entry.listed = listed;
        }
    }

    fn strike(&mut self, listed: Listed) {
        match listed {
            Listed::OfOne(connection, number) => drop(self.of_one.remove(connection, number)),
            Listed::Unused(number) => drop(self.unused.remove(&number)),
            Listed::Nowhere => {}
        }
    }

    /// Finds room for another pool of a client. At the limit of the client or of all clients, another pool may be evicted.
    fn find_room(
        &mut self,
        key: &SharingKey,
        limits: &ViewLimits,
        client: LoadClient,
        counters: &LimitCounters,
    ) -> Result<(), AdmissionError> {
        limits.find_room(client.quota.pools(), |made, limit| {
            if made.are_full(limit, key, |other| self.of_keys.contains_key(other)) {
                self.evict(self.unused_of(made), limits.views);
            }
            if made.are_full(limit, key, |other| self.of_keys.contains_key(other)) { Err(None) } else { Ok(()) }
        })?;
        let limit = limits.views;
        if self.of_keys.len() < limit {
            return Ok(());
        }
        if let Some(unused) = self.unused.values().find(|key| self.can_make_room(key)).cloned() {
            self.evict(Some(unused), limit);
        } else if let Some(of_most) = self.of_one.make_room_for(client.connection) {
            counters.reached(Limit::Views);
            self.evict(Some(of_most), limit);
        }
        if self.of_keys.len() < limit { Ok(()) } else { Err(AdmissionError::TooManyViews { limit, split: None }) }
    }

    /// Returns the pool that has been without clients for longest, among those that one connection or identity made.
    fn unused_of(&self, made: &MadeViews) -> Option<SharingKey> {
        let since = |key: &SharingKey| match self.of_keys.get(key)?.listed {
            Listed::Unused(number) if self.can_make_room(key) => Some((number, key.clone())),
            _ => None,
        };
        made.look(|keys| keys.keys().filter_map(since).min_by_key(|(number, _)| *number)).map(|(_, key)| key)
    }

    /// Whether evicting a pool makes room: not if the pool is about to end anyway.
    fn can_make_room(&self, key: &SharingKey) -> bool {
        self.of_keys.get(key).is_some_and(|entry| !entry.pool.is_closed())
    }

    /// Ends a pool, which reports what it has if it can. Besides as many pools as the limit, a few that end may exist.
    fn evict(&mut self, key: Option<SharingKey>, limit: usize) {
        let parting = if self.leaving < MOST_LEAVING { PARTING } else { Duration::ZERO };
        let Some(pool) = key.and_then(|key| self.remove(&key)) else { return };
        tracing::debug!(view = %pool.key, "load reports of a view end to make room");
        pool.make_room(limit, parting);
    }
}

impl MadePool {
    fn new(maker: &Arc<ViewQuota>, key: &SharingKey) -> Self {
        maker.pools().add(key);
        Self { maker: maker.clone(), key: key.clone() }
    }
}

impl Drop for MadePool {
    fn drop(&mut self) {
        self.maker.pools().remove(&self.key);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut map = self.pools.lock();
        self.pool.leave(self.id);
        map.leave(&self.pool, self.connection);
    }
}

impl RunningPool {
    /// Runs the pool until it has ended.
    pub(super) async fn run(self, connector: Arc<dyn LoadConnector>) {
        self.pool.run(&*connector).await;
    }
}

impl Drop for RunningPool {
    fn drop(&mut self) {
        let mut map = self.pools.lock();
        if map.of_keys.get(&self.pool.key).is_some_and(|entry| Arc::ptr_eq(&entry.pool, &self.pool)) {
            map.remove(&self.pool.key);
        }
        map.leaving -= 1;
        drop(map);
        self.pools.ended.notify_one();
    }
}

/// How many evicted pools may report what they have. Those beyond it end at once.
const MOST_LEAVING: usize = 100;

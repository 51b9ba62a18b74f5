//! How much memory each group of connections holds. Groups form a tree.
//!
//! All connections are divided by their tenants, those of a tenant by identities, those of an identity by blocks of addresses. The groups
//! of one level have equal parts of what the group above has, by their shares. A group that is alone in its level has all of it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The groups that a connection is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupMembership {
    /// The tenant of its client, by the rules.
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) identity: Option<Arc<str>>,
    /// The client's address; none behind a balancer that does not state it.
    pub(crate) address: Option<IpAddr>,
    /// How many equal parts its tenant has of what all tenants have, and its identity of what the tenant has.
    pub(crate) share: usize,
}

/// Something that ends to make room for others.
pub(crate) trait GivesWay: Send + Sync {
    /// Returns whether this ends or frees anything.
    fn give_way(&self, why: &str) -> bool;
}

/// What is counted of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Bytes,
    /// Views that its connections made.
    Views,
}

/// What distinguishes the groups of one level.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    All,
    Tenant(Option<Arc<str>>),
    Identity(Option<Arc<str>>),
    /// The first 24 bits of an IPv4 address, or the first 64 of an IPv6 address.
    Block(Option<IpAddr>),
    Connection(u64),
}

pub(super) struct Group {
    key: Key,
    parent: Option<Arc<Group>>,
    /// Below zero for a moment, while one thread subtracts what another one is about to add.
    held: [AtomicIsize; 2],
    /// How many equal parts the group has.
    share: AtomicUsize,
    /// How many of these its rule gives it.
    stated: AtomicUsize,
    /// The sum of the equal parts of the groups in it.
    shares: AtomicUsize,
    groups: Mutex<HashMap<Key, Weak<Group>>>,
    /// The streams of a connection, from the oldest on.
    streams: Mutex<BTreeMap<u64, Weak<dyn GivesWay>>>,
}

/// How a group stands among the others of its level. If a group above it is further above its part, that group is meant instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What the group has, or would have, in thousandths of its part.
    pub(super) thousandths: usize,
    /// What it has, and its part, in units.
    pub(super) has: usize,
    pub(super) part: usize,
    /// What kind of group it is.
    pub(super) level: &'static str,
}

impl Standing {
    pub(super) fn is_above(&self) -> bool {
        self.thousandths > 1000
    }
}

impl Group {
    pub(super) fn root() -> Arc<Self> {
        Arc::new(Self::new(Key::All, None, 1))
    }

    fn new(key: Key, parent: Option<Arc<Self>>, share: usize) -> Self {
        let (held, shares, groups, streams) = Default::default();
        let (share, stated) = (AtomicUsize::new(share), AtomicUsize::new(share));
        Self { key, parent, held, share, stated, shares, groups, streams }
    }

    /// Returns the group of a new connection, and makes the groups above it that do not exist.
    pub(super) fn join(self: &Arc<Self>, of: GroupMembership, number: u64) -> Arc<Self> {
        let GroupMembership { tenant, identity, address, share } = of;
        let share = share.max(1);
        let of_tenant = self.within(Key::Tenant(tenant), share);
        let of_identity = of_tenant.within(Key::Identity(identity), share);
        let of_block = of_identity.within(Key::Block(address.map(block)), 1);
        of_block.within(Key::Connection(number), 1)
    }

    fn within(self: &Arc<Self>, key: Key, share: usize) -> Arc<Self> {
        let mut groups = self.groups();
        if let Some(group) = groups.get(&key).and_then(Weak::upgrade) {
            let before = group.stated.swap(share, Ordering::Relaxed);
            group.reweigh(before, share); // its rule may say otherwise now
            return group;
        }
        let group = Arc::new(Self::new(key.clone(), Some(self.clone()), share));
        self.shares.fetch_add(share, Ordering::Relaxed);
        groups.insert(key, Arc::downgrade(&group));
        group
    }

    pub(super) fn held(&self, quantity: Quantity) -> usize {
        usize::try_from(self.held[quantity as usize].load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Counts a change of a quantity, in this group and those above.
    pub(super) fn change(&self, quantity: Quantity, before: usize, now: usize) {
        let mut next = Some(self);
        while let Some(group) = next {
            group.held[quantity as usize].fetch_add(now as isize - before as isize, Ordering::Relaxed);
            next = group.parent.as_deref();
        }
    }

    /// Changes how many equal parts this group and those above have.
    pub(super) fn weigh(&self, before: usize, now: usize) {
        let mut next = Some(self);
        while let Some(group) = next {
            group.reweigh(before, now);
            next = group.parent.as_deref();
        }
    }

    fn reweigh(&self, before: usize, now: usize) {
        let change = |weight: &AtomicUsize| match now >= before {
            true => weight.fetch_add(now - before, Ordering::Relaxed),
            false => weight.fetch_sub(before - now, Ordering::Relaxed),
        };
        change(&self.share);
        if let Some(parent) = &self.parent {
            change(&parent.shares);
        }
    }

    /// Returns how the group would stand with so much `more`, if all groups together have `of`.
    pub(super) fn standing(&self, quantity: Quantity, more: usize, of: usize) -> Standing {
        self.part_and_standing(quantity, more, of).1
    }

    /// Returns the part of the group, and the standing of the group that is furthest above its part: this one, or one above it.
    fn part_and_standing(&self, quantity: Quantity, more: usize, of: usize) -> (usize, Standing) {
        let has = self.held(quantity).saturating_add(more);
        let Some(parent) = &self.parent else {
            return (of, Standing { thousandths: 0, has, part: of, level: self.level() });
        };
        let (of, above) = parent.part_and_standing(quantity, more, of);
        let own = self.in_part_of(parent, of, has);
        (own.part, if own.thousandths > above.thousandths { own } else { above })
    }

    fn in_part_of(&self, parent: &Self, of: usize, has: usize) -> Standing {
        let (share, all) = (self.share.load(Ordering::Relaxed), parent.shares.load(Ordering::Relaxed));
        let level = self.level();
        if share >= all {
            return Standing { thousandths: 0, has, part: of, level }; // it is the only one
        }
        let part = (of as u128 * share as u128 / all as u128) as usize;
        let thousandths = (has as u128 * 1000 / part.max(1) as u128).min(usize::MAX as u128) as usize;
        Standing { thousandths, has, part, level }
    }

    fn level(&self) -> &'static str {
        match &self.key {
            Key::All => "all clients",
            Key::Tenant(_) => "its tenant",
            Key::Identity(_) => "its identity",
            Key::Block(_) => "its addresses",
            Key::Connection(_) => "its connection",
        }
    }

    /// Ends the newest stream of the group that is furthest above its part, if that is more than `above` thousandths. Within the group it is a
    /// stream of the connection that is furthest above its part, has a stream, and has at least half of its part.
    pub(super) fn end_newest_of_furthest(&self, quantity: Quantity, of: usize, above: usize, why: &str) -> bool {
        let groups: Vec<_> = self.groups().values().filter_map(Weak::upgrade).collect();
        let standing = |group: &Arc<Self>| group.in_part_of(self, of, group.held(quantity));
        // Other threads change what the groups hold. It is read once, so that the order is consistent.
        let mut found: Vec<_> = groups.into_iter().map(|group| (standing(&group), group)).collect();
        found.sort_by_key(|(standing, _)| std::cmp::Reverse((standing.thousandths, standing.has)));
        found.iter().any(|(standing, group)| {
            let left = if standing.thousandths > above { 0 } else { above };
            if matches!(group.key, Key::Connection(_)) {
                let has_much = standing.has > 0 && standing.has >= standing.part / 2;
                return left == 0 && (has_much || found.len() == 1) && group.end_newest(why);
            }
            group.end_newest_of_furthest(quantity, standing.part, left, why)
        })
    }

    /// Streams that end stay in the list until they have gone: one that frees nothing now may do so later.
    fn end_newest(&self, why: &str) -> bool {
        let streams: Vec<_> = self.streams().values().rev().cloned().collect();
        streams.iter().filter_map(Weak::upgrade).any(|stream| stream.give_way(why))
    }

    pub(super) fn enter_stream(&self, number: u64, stream: Weak<dyn GivesWay>) {
        self.streams().insert(number, stream);
    }

    pub(super) fn leave_stream(&self, number: u64) {
        self.streams().remove(&number);
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<Key, Weak<Self>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<dyn GivesWay>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let nothing = [Quantity::Bytes, Quantity::Views].iter().all(|quantity| self.held(*quantity) == 0);
        nothing && self.shares.load(Ordering::Relaxed) == 0 && self.groups().is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(parent) = &self.parent else { return };
        parent.shares.fetch_sub(self.share.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut groups = parent.groups();
        // A connection that joined meanwhile may have made the group again.
        if groups.get(&self.key).is_some_and(|group| group.strong_count() == 0) {
            groups.remove(&self.key);
        }
    }
}

fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

//! A view: what is known, and who wants it, for one view and authority.
//!
//! Owns the numbers, the shelves, the counts of interest and the published state. Leaves the wire to
//! [`upstream`](super::upstream) and clients to [`session`](super::session).
//! Always: a number is given once and only to a real difference; what is published never changes; nothing is absent
//! without evidence.

mod claims;
mod class;
mod collections;
mod gate;
mod history;
mod interest;
mod leases;
mod missing;
mod named_error;
mod order;
mod ordering;
mod resource_table;
mod revision;
mod snapshot;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use claims::{Claim, Claimed};
pub use class::Class;
pub use gate::Gate;
pub use interest::{InterestChange, Selector, SessionId};
pub use leases::{Lease, Leases};
pub use named_error::NamedError;
pub use order::OrderLosses;
pub use resource_table::{AbsenceEvidence, Entry, Presence, ResourceTable};
pub use revision::Revision;
pub use snapshot::{Lookup, Snapshot};
pub use update::{Completeness, Evidence, Origin, Retain, Update};

use self::claims::Sought;
use self::interest::Interest;
use self::order::Order;
use self::resource_table::Applied;
use super::faults::Fault;
use super::limits::Limits;
use super::moment::{Moment, earliest};
use crate::xds::{Authority, Name, Resource, Role, Type, TypeTable};

/// A change to one name that a session asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChanged {
    pub kind: Type,
    pub name: Name,
    pub revision: Revision,
}

/// A new state, and exactly the sessions that it concerns. Sessions of `*` have no marks: they read the state.
#[derive(Debug, Default)]
pub struct Notifications(pub BTreeMap<SessionId, Vec<NameChanged>>);

#[derive(Debug)]
pub struct View {
    seq: Revision,
    tables: BTreeMap<(Type, Class), ResourceTable>,
    /// When the last `*` set was forgotten, of whichever type: of each there would be no end to remember, types may be made up.
    forgotten: Revision,
    interest: Interest,
    gate: Gate,
    published: Arc<Snapshot>,
    wakes: BTreeMap<SessionId, Vec<NameChanged>>,
    /// Types whose `*` shelf changed since the last publication.
    changed_wildcards: BTreeSet<Type>,
    dirty: bool,
    /// Who says what is being applied.
    origin: Origin,
    sought: Sought,
    order: Order,
    /// Upstream answers a name that is asked for once more (UP-17).
    repeats: bool,
    /// Authorities of which no server is in reach.
    down: Arc<BTreeSet<Authority>>,
    table: Arc<TypeTable>,
    /// The type of clusters.
    clusters: Type,
    limits: Arc<Limits>,
}

impl View {
    pub fn new(table: Arc<TypeTable>, limits: Arc<Limits>) -> Self {
        Self {
            seq: Revision::ZERO,
            tables: BTreeMap::new(),
            forgotten: Revision::ZERO,
            interest: Interest::new(limits.clone()),
            gate: Gate::default(),
            published: Arc::default(),
            wakes: BTreeMap::new(),
            changed_wildcards: BTreeSet::new(),
            dirty: false,
            origin: Origin::default(),
            sought: Sought::default(),
            order: Order::default(),
            repeats: false,
            down: Arc::default(),
            clusters: table.clusters(),
            table,
            limits,
        }
    }

    /// Applies one response whole.
    pub fn apply(&mut self, facts: Vec<Update>, now: Moment) {
        self.apply_from(Origin::default(), facts, now);
    }

    pub fn apply_from(&mut self, source: Origin, facts: Vec<Update>, now: Moment) {
        self.origin = source;
        for fact in self.gate.pass(facts) {
            self.apply_one(fact, now);
        }
    }

    /// Lets out what the gate held of a type.
    pub fn open_gate(&mut self, kind: &Type, now: Moment) {
        for fact in self.gate.open(kind) {
            self.apply_one(fact, now);
        }
    }

    pub fn shut_gate(&mut self, kind: &Type) {
        self.gate.shut(kind.clone());
    }

    /// What a session wants or wants no more. A name that is known already is marked for it, since the state that the
    /// session read before it was counted may have been an older one.
    pub fn change_interest(&mut self, session: SessionId, change: InterestChange, now: Moment) {
        let InterestChange { kind, selector: wanted, on } = change;
        if on {
            self.interest.subscribe(session, &kind, &wanted);
            let Selector::Name(name) = wanted else {
                self.wakes.entry(session).or_default();
                return;
            };
            if name.is_glob() {
                self.mark_members(session, &kind, &name);
            }
            let shelf = self.tables.get(&(kind.clone(), Class::Named));
            let Some(entry) = shelf.and_then(|shelf| shelf.get(&name)) else { return };
            if self.repeats && matches!(&entry.presence, Presence::Present(held) if held.do_not_cache()) {
                self.interest.ask_again(&kind, &Selector::Name(name)); // the answer is for those who wait now (XLAT-29)
                return;
            }
            let seq = entry.error.as_ref().map_or(entry.changed, |(seq, _)| entry.changed.max(*seq));
            self.wakes.entry(session).or_default().push(NameChanged { kind, name, revision: seq });
        } else {
            self.interest.unsubscribe(session, &kind, &wanted, now);
        }
    }

    /// What is here of a collection is new to whoever asks for it.
    fn mark_members(&mut self, session: SessionId, kind: &Type, glob: &Name) {
        let shelf = self.tables.entry((kind.clone(), Class::Named)).or_default();
        self.dirty |= shelf.collect(glob);
        let members = shelf.collection(glob).into_iter().flat_map(|of| of.members());
        let seq = |name: &Name| shelf.get(name).map(|entry| entry.changed);
        let mark = |name: &Name| Some(NameChanged { kind: kind.clone(), name: name.clone(), revision: seq(name)? });
        self.wakes.entry(session).or_default().extend(members.filter_map(mark));
    }

    /// Publishes what has been applied since the last time, once, and says whom it concerns.
    pub fn publish(&mut self) -> Notifications {
        for kind in std::mem::take(&mut self.changed_wildcards) {
            if let Some(shelf) = self.tables.get_mut(&(kind.clone(), Class::Wildcard)) {
                shelf.remember_version(&self.limits);
            }
            for session in self.interest.wildcard_sessions(&kind) {
                self.wakes.entry(session).or_default();
            }
        }
        if std::mem::take(&mut self.dirty) {
            if self.seq == self.published.revision {
                self.seq = self.seq.next(); // no entry changed, but what is known of them did: another state, another mark
            }
            self.published = Arc::new(Snapshot::new(self.seq, self.down.clone(), self.tables.clone(), self.forgotten));
        }
        Notifications(std::mem::take(&mut self.wakes))
    }

    /// Everything that is to be asked of a server that is opened now, with whether the answer is known from another (FB-4).
    pub fn wanted(&self) -> impl Iterator<Item = (&Type, Selector, bool)> {
        self.interest.all().map(|(kind, wanted)| {
            let cached = self.is_cached(kind, &wanted);
            (kind, wanted, cached)
        })
    }

    /// The members of a `*` set that is held.
    pub fn wildcard_names(&self, kind: &Type) -> impl Iterator<Item = &Name> {
        self.tables.get(&(kind.clone(), Class::Wildcard)).into_iter().flat_map(ResourceTable::present_names)
    }

    /// What is here of the collections that are wanted, each member with its glob.
    pub fn members(&self, kind: &Type) -> impl Iterator<Item = (&Name, &Name)> {
        let shelf = self.tables.get(&(kind.clone(), Class::Named));
        shelf.into_iter().flat_map(|shelf| shelf.collections.all_members())
    }

    /// Whether anybody wants anything, or did until lately.
    pub fn is_wanted(&self) -> bool {
        self.interest.is_any()
    }

    /// What the sources can do at the moment: for which authorities none is in reach, and whether a name is given twice.
    pub fn on_source(&mut self, down: BTreeSet<Authority>, repeats: bool) {
        self.repeats = repeats;
        if *self.down != down {
            self.down = down.into();
            self.dirty = true;
            for session in self.interest.everyone() {
                self.wakes.entry(session).or_default();
            }
        }
    }

    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.published
    }

    /// How many resources of a type are held, as `*` gave them or as names did.
    pub fn held(&self, kind: &Type, star: bool) -> usize {
        let class = if star { Class::Wildcard } else { Class::Named };
        self.tables.get(&(kind.clone(), class)).map_or(0, |shelf| shelf.present())
    }

    /// Returns how many cached resources came from each server, by its place in the plan.
    pub fn cached_by_server(&self) -> BTreeMap<u16, usize> {
        let mut sum = BTreeMap::new();
        for (server, count) in self.tables.values().flat_map(ResourceTable::by_server) {
            *sum.entry(*server).or_default() += count;
        }
        sum
    }

    /// Names of which something is remembered that names were given by, be it that there is nothing.
    pub fn known_names(&self, kind: &Type) -> usize {
        self.tables.get(&(kind.clone(), Class::Named)).map_or(0, ResourceTable::len)
    }

    /// What the source should be asked for, and asked for no more, since the last call.
    pub fn take_upstream_changes(&mut self) -> Vec<InterestChange> {
        self.interest.take_changes()
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let shelves = self.tables.values().filter_map(|shelf| shelf.next_deadline(&self.limits));
        earliest(shelves.min(), earliest(self.interest.next_deadline(), self.order.next_deadline()))
    }

    /// Lets time do its work: interest that lingered long enough ends, and old tombstones are dealt with.
    pub fn on_time(&mut self, now: Moment) {
        for (kind, wanted) in self.interest.expire(now) {
            self.forget(&kind, &wanted, now);
        }
        self.settle_order(now);
        let expired = |((kind, class), shelf): (&(Type, Class), &ResourceTable)| {
            let names = shelf.expired(now).into_iter();
            names.map(|name| (kind.clone(), *class, name)).collect::<Vec<_>>()
        };
        self.origin = Origin::default(); // time is of nobody's rank
        for (kind, class, name) in self.tables.iter().flat_map(expired).collect::<Vec<_>>() {
            self.expire(&kind, class, name, now);
        }
        for shelf in self.tables.values_mut() {
            self.dirty |= shelf.on_time(now, &self.limits);
        }
    }

    /// Takes over a fact, unless nobody wants it any more: it was on its way when its interest ended.
    fn apply_one(&mut self, fact: Update, now: Moment) {
        let wanted = match fact.subject() {
            (kind, Some((Class::Named, key))) => self.interest.covers(kind, key),
            (kind, _) => self.interest.has_wildcard(kind),
        };
        if !wanted {
            return;
        }
        match fact {
            Update::Upsert { kind, class, key, resource } => self.set(&kind, class, key, resource, now),
            Update::Absent { kind, class, key, evidence: word } => self.remove(&kind, class, &key, word, now),
            Update::FullSet { kind, resources, retain: kept } => self.replace(&kind, resources, &kept, now),
            Update::Refresh { kind, class, key, ttl } => {
                if class == Class::Wildcard {
                    self.confirm(&kind, &Selector::Wildcard);
                }
                self.order.spare(&(kind.clone(), class, key.clone()));
                let (seq, source) = (self.seq.next(), self.origin);
                let taken = self.resources(&kind, class).extend_ttl(&key, ttl, source, seq, now);
                self.record_applied(taken, &kind, class, key, seq);
            }
            Update::Error { kind, key, error } => {
                let seq = self.seq.next();
                if self.resources(&kind, Class::Named).set_error(key.clone(), error, seq, now) {
                    self.changed(&kind, Class::Named, key, seq);
                }
            }
            Update::Progress { kind, of, completeness: fill } => {
                self.confirm(&kind, &of);
                self.update_completeness(&kind, &of, |known| known.raised(fill));
                if let Selector::Name(glob) = of
                    && fill >= Completeness::Settled
                {
                    self.conclude_empty(&kind, &glob, now);
                }
            }
            Update::Interrupted { kind, of } => self.interrupt(&kind, &of),
            Update::Unreadable { kind, of, names } => {
                let shelf = self.resources(&kind, Class::Wildcard);
                names.iter().for_each(|name| shelf.interrupt_one(name));
                if of == Selector::Wildcard && shelf.set_unreadable(names) {
                    self.dirty = true;
                    self.changed_wildcards.insert(kind);
                }
            }
        }
    }

    fn set(&mut self, kind: &Type, class: Class, key: Name, resource: Arc<Resource>, now: Moment) {
        self.sought.found(kind, class, &key);
        let leaks =
            self.limits.faults.has(Fault::StarAnswersNames) && self.interest.sessions_of(kind, &key).next().is_some();
        if leaks && class == Class::Wildcard {
            self.set(kind, Class::Named, key.clone(), resource.clone(), now);
        }
        if !self.waits_for_clusters(kind, class, &key, &resource, now) {
            self.set_resource(kind, class, key, resource, now);
        }
    }

    fn set_resource(&mut self, kind: &Type, class: Class, key: Name, resource: Arc<Resource>, now: Moment) {
        self.prefetch_endpoints(kind, &resource, now);
        if class == Class::Named {
            self.revive_collection(kind, &key);
        }
        let (seq, source) = (self.seq.next(), self.origin);
        let old = self.on_shelf(kind, class, &key);
        let taken = self.resources(kind, class).set(class, key.clone(), resource, source, seq, now);
        if taken == Applied::Changed {
            self.note_change(kind, class, &key, old.as_ref(), now);
        } else {
            self.order.spare(&(kind.clone(), class, key.clone()));
        }
        self.record_applied(taken, kind, class, key, seq);
    }

    fn record_applied(&mut self, taken: Applied, kind: &Type, class: Class, key: Name, seq: Revision) {
        if taken != Applied::Unchanged {
            self.changed(kind, class, key, seq);
        }
    }

    /// A collection that was said to be empty, or in error, is not: whoever asks next is not told so.
    fn revive_collection(&mut self, kind: &Type, member: &Name) {
        if let Some(glob) = self.interest.collection(kind, member) {
            let shelf = self.resources(kind, Class::Named);
            if shelf.get(&glob).is_some() {
                shelf.forget(&glob);
                self.dirty = true;
            }
        }
    }

    fn remove(&mut self, kind: &Type, class: Class, key: &Name, word: Evidence, now: Moment) {
        if !self.stays_for_now(kind, class, key, word, now) {
            self.remove_resource(kind, class, key, word, now);
        }
    }

    fn remove_resource(&mut self, kind: &Type, class: Class, key: &Name, word: Evidence, now: Moment) {
        if class == Class::Named && key.is_glob() {
            self.empty_collection(kind, key, now);
            return;
        }
        self.remove_one(kind, class, key, word, now);
        // A collection of which all is known and whose last member upstream has taken away is empty by that.
        if class == Class::Named
            && let Some(glob) = self.interest.collection(kind, key)
        {
            let of = self.resources(kind, class).collection(&glob);
            if of.is_some_and(|of| of.is_empty() && of.completeness >= Completeness::Settled) {
                self.remove_one(kind, class, &glob, Evidence::Reported, now);
            }
        }
    }

    /// All that was said of a collection is known, and nothing is in it.
    fn conclude_empty(&mut self, kind: &Type, glob: &Name, now: Moment) {
        let of = self.resources(kind, Class::Named).collection(glob);
        if of.is_some_and(|of| of.is_empty() && !of.lapsed) {
            self.remove_one(kind, Class::Named, glob, Evidence::Reported, now);
        }
    }

    /// Whose word counts is another from here on, or begins anew: a set may have grown, and what it took away be there again.
    fn interrupt(&mut self, kind: &Type, of: &Selector) {
        self.update_completeness(kind, of, Completeness::interrupted);
        let seq = self.seq;
        self.dirty = true; // what is published says what is evident
        match of {
            Selector::Wildcard => {
                self.order.spare_all(kind); // whoever serves from here on is asked what it has of it
                let shelf = self.resources(kind, Class::Wildcard);
                shelf.interrupt(seq);
                shelf.set_unreadable(BTreeSet::new()); // it comes again, if it is there still
            }
            Selector::Name(name) => {
                self.order.spare(&(kind.clone(), Class::Named, name.clone()));
                self.resources(kind, Class::Named).interrupt_one(name);
            }
        }
    }

    /// Upstream says that there is nothing in a collection (COLL-15). What a server above it gave may stay all the same.
    fn empty_collection(&mut self, kind: &Type, glob: &Name, now: Moment) {
        let members = |shelf: &ResourceTable| -> Vec<Name> {
            shelf.collection(glob).into_iter().flat_map(|of| of.members().cloned()).collect()
        };
        for member in members(self.resources(kind, Class::Named)) {
            if !self.stays_for_now(kind, Class::Named, &member, Evidence::Reported, now) {
                self.remove_one(kind, Class::Named, &member, Evidence::Reported, now);
            }
        }
        if members(self.resources(kind, Class::Named)).is_empty() {
            self.remove_one(kind, Class::Named, glob, Evidence::Reported, now);
        }
        self.confirm(kind, &Selector::Name(glob.clone()));
        self.update_completeness(kind, &Selector::Name(glob.clone()), |_| Completeness::Complete);
    }

    fn remove_one(&mut self, kind: &Type, class: Class, key: &Name, word: Evidence, now: Moment) {
        let (seq, source) = (self.seq.next(), self.origin);
        let limits = self.limits.clone();
        let sought = word == Evidence::Reported && self.sought.found(kind, class, key);
        let old = self.on_shelf(kind, class, key);
        self.order.drop_waiting(&(kind.clone(), class, key.clone()));
        let member_only = class == Class::Named && !self.interest.has_name(kind, key);
        let shelf = self.resources(kind, class);
        // Of trouble and absence nobody is the owner: the word of a lower server does for those.
        let here = |entry: &Entry| matches!(entry.presence, Presence::Present(_));
        let higher = |entry: &Entry| source.holds_missing && here(entry) && entry.origin.rank < source.rank;
        if shelf.get(key).is_some_and(higher) {
            return;
        }
        if member_only && !sought {
            // Nobody asked for it by itself. Those who were told of it as a member know it, and need no tombstone.
            if shelf.get(key).is_some() {
                shelf.forget(key);
                self.note_change(kind, class, key, old.as_ref(), now);
                self.changed(kind, class, key.clone(), seq);
            }
            return;
        }
        // A `*` shelf has no use for the absence of what nobody holds; a name is remembered as absent (XLAT-18).
        let changed = match class {
            Class::Wildcard if !sought => shelf.remove(key, seq, now),
            Class::Wildcard | Class::Named => shelf.set_absent(key, word, seq, now),
        };
        if changed {
            shelf.trim(now, &limits, class);
            self.note_change(kind, class, key, old.as_ref(), now);
            self.changed(kind, class, key.clone(), seq);
        } else if class == Class::Named {
            self.note_absence(kind, key); // it was gone, and it may have been for its age alone
        }
    }

    /// A life is over (UP-40): clients are told that it is gone. That nobody has said. It may be alive upstream, and its word late
    /// (UP-17), or another server's to say (FB-4).
    fn expire(&mut self, kind: &Type, class: Class, name: Name, now: Moment) {
        let glob = self.interest.collection(kind, &name).filter(|_| class == Class::Named);
        self.remove_one(kind, class, &name, Evidence::Reported, now);
        self.resources(kind, class).record_expired(&name, glob.as_ref());
        let wanted = match class {
            Class::Wildcard => Some(Selector::Wildcard),
            Class::Named => {
                self.note_absence(kind, &name);
                self.interest.has_name(kind, &name).then_some(Selector::Name(name))
            }
        };
        for wanted in wanted.into_iter().chain(glob.map(Selector::Name)) {
            self.interest.ask_again(kind, &wanted);
        }
    }

    /// Upstream speaks of a set. What has outlived its time before, and it does not mention, it lets be gone.
    fn confirm(&mut self, kind: &Type, of: &Selector) {
        match of {
            Selector::Wildcard => self.resources(kind, Class::Wildcard).has_expired = false,
            Selector::Name(glob) => self.resources(kind, Class::Named).collections.set_expired(glob, false),
        }
    }

    fn replace(&mut self, kind: &Type, resources: Vec<Arc<Resource>>, kept: &Retain, now: Moment) {
        let sent: BTreeSet<Name> = resources.iter().map(|resource| resource.name.clone()).collect();
        let vanished: Vec<_> = match kept {
            Retain::These(names) => {
                let stays = |name: &Name| sent.contains(name) || names.contains(name);
                self.resources(kind, Class::Wildcard).present_names().filter(|name| !stays(name)).cloned().collect()
            }
            Retain::Everything => Vec::new(),
        };
        for resource in resources {
            self.set(kind, Class::Wildcard, resource.name.clone(), resource, now);
        }
        for name in vanished {
            self.remove(kind, Class::Wildcard, &name, Evidence::Reported, now);
        }
        self.confirm(kind, &Selector::Wildcard);
        self.update_completeness(kind, &Selector::Wildcard, |_| Completeness::Complete);
    }

    fn held_by_name(&self, kind: &Type, name: &Name) -> bool {
        let shelf = self.tables.get(&(kind.clone(), Class::Named));
        shelf.and_then(|shelf| shelf.get(name)).is_some_and(|entry| matches!(entry.presence, Presence::Present(_)))
    }

    /// More or less of a set is known now.
    fn update_completeness(&mut self, kind: &Type, of: &Selector, change: impl FnOnce(Completeness) -> Completeness) {
        match of {
            Selector::Wildcard => {
                let fill = &mut self.resources(kind, Class::Wildcard).completeness;
                let before = *fill;
                *fill = change(before);
                if *fill != before {
                    if *fill == Completeness::Complete {
                        self.sought.found_all(kind);
                    }
                    self.dirty = true;
                    self.changed_wildcards.insert(kind.clone());
                }
            }
            Selector::Name(glob) => {
                if self.resources(kind, Class::Named).collections.update_completeness(glob, change) {
                    self.dirty = true;
                    for session in self.interest.sessions_of(kind, glob) {
                        self.wakes.entry(session).or_default();
                    }
                }
            }
        }
    }

    fn changed(&mut self, kind: &Type, class: Class, name: Name, seq: Revision) {
        self.seq = seq;
        self.dirty = true;
        match class {
            Class::Wildcard => drop(self.changed_wildcards.insert(kind.clone())),
            Class::Named => {
                self.note_absence(kind, &name);
                for session in self.interest.sessions_of(kind, &name) {
                    let mark = NameChanged { kind: kind.clone(), name: name.clone(), revision: seq };
                    self.wakes.entry(session).or_default().push(mark);
                }
            }
        }
    }

    /// A client that is sent a new cluster asks for its endpoints next: they are asked for before it does.
    fn prefetch_endpoints(&mut self, kind: &Type, resource: &Resource, now: Moment) {
        let Some(name) = &resource.refers_to else { return };
        let Some(referred) = self.table.referred_by(kind).filter(|kind| kind.is(Role::Endpoints)) else { return };
        if self.interest.any_name(&referred) {
            self.interest.prefetch(&referred, name, now);
        }
    }

    fn forget(&mut self, kind: &Type, wanted: &Selector, now: Moment) {
        if self.limits.faults.has(Fault::ServeForgottenNames) {
            return;
        }
        self.dirty = true;
        self.gate.forget(kind, wanted);
        self.sought.forget(kind, wanted);
        match wanted {
            Selector::Name(name) => {
                let ended = self.resources(kind, Class::Named).collections.end(name);
                let gone = ended.iter().flat_map(|_| self.absent_names_under(kind, name));
                let here = ended.iter().flat_map(|of| of.members());
                let members = here.chain(gone).filter(|name| !self.interest.has_name(kind, name));
                let is_member = self.interest.collection(kind, name).is_some() && self.held_by_name(kind, name);
                let alone = Some(name).filter(|_| !is_member);
                let forgotten: Vec<_> = members.chain(alone).cloned().collect();
                for name in &forgotten {
                    let old = self.on_shelf(kind, Class::Named, name);
                    self.resources(kind, Class::Named).forget(name);
                    self.forget_order(kind, Class::Named, name, old.as_ref(), now);
                }
                if self.resources(kind, Class::Named).is_empty() {
                    self.tables.remove(&(kind.clone(), Class::Named));
                }
            }
            Selector::Wildcard => {
                // A session that still reads this shelf, or just did, would miss removals from here on: the horizon tells it so.
                let dropped = self.tables.remove(&(kind.clone(), Class::Wildcard)).unwrap_or_default();
                for name in dropped.present_names() {
                    let old = dropped.get(name).and_then(Entry::resource);
                    self.forget_order(kind, Class::Wildcard, name, old, now);
                }
                self.seq = self.seq.next();
                self.forgotten = self.seq;
            }
        }
    }

    /// What is known to be gone of a collection, since somebody held it.
    fn absent_names_under<'a>(&'a self, kind: &Type, glob: &'a Name) -> impl Iterator<Item = &'a Name> {
        let shelf = self.tables.get(&(kind.clone(), Class::Named));
        let gone = shelf.into_iter().flat_map(|shelf| shelf.removals(Revision::ZERO)).map(|(name, _)| name);
        gone.filter(move |name| name.collection().as_ref() == Some(glob))
    }

    fn resources(&mut self, kind: &Type, class: Class) -> &mut ResourceTable {
        let new = || match class {
            Class::Wildcard => ResourceTable::empty_after(self.forgotten),
            Class::Named => ResourceTable::default(),
        };
        self.tables.entry((kind.clone(), class)).or_insert_with(new)
    }
}

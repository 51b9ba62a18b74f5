//! A view: the cached resources of one sharing key, and which sessions subscribe to them.
//!
//! Owns the revisions, the tables, the counts of interest and the published snapshot. Leaves the wire to
//! [`upstream`](super::upstream) and clients to [`session`](super::session).
//! Invariants: a revision is given once, and only to a real difference; a published snapshot never changes; nothing is absent
//! without evidence.

mod apply;
mod brake;
mod claims;
mod collections;
mod differences;
mod gate;
mod holds;
mod interest;
mod keys;
mod leases;
mod missing;
mod name_room;
mod options;
mod order;
mod receipts;
mod removal_history;
mod resource_table;
mod row;
mod saved;
mod snapshot;
mod sought_names;
mod stage;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use brake::{
    BrakeEvent, BrakeReport, BrakeRules, BrakeState, Generations, HeldRemoval, NotReleased, ReleaseReason, SetState,
};
pub use claims::{Claim, Claimed};
pub use holds::Holds;
pub(crate) use holds::NameHolds;
pub use interest::InterestChange;
pub use keys::{Class, Revision, Selector, SessionId};
pub(crate) use leases::Lease;
pub use leases::{LeaseAccess, LeaseProgress, Leases};
pub use options::ViewOptions;
pub use order::OrderLosses;
pub use removal_history::Forgotten;
pub use resource_table::{AbsenceEvidence, Presence};
pub(crate) use resource_table::{Entry, ResourceTable};
pub use saved::{SavedResource, SavedSet};
pub use snapshot::{Batch, BatchKey, Lookup, Snapshot};
pub(crate) use stage::HoldTimes;
pub use stage::{Facts, Place, Stage, Unit};
pub use update::{Completeness, Evidence, NamedError, NoRoom, Origin, Retain, Update};

use self::brake::Release;
use self::claims::Sought;
use self::interest::Interest;
use self::receipts::Receipts;
use self::removal_history::RemovalHistory;
use self::row::Row;
use self::stage::Surroundings;
use self::update::Passed;
use super::faults::Fault;
use super::moment::{Moment, earliest};
use crate::xds::{Authority, Name, Type, TypeTable};

/// A change to one name that a session requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChanged {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    pub(crate) revision: Revision,
    /// It answers a claim: the server has no such name. No table shows that.
    pub(crate) claimed: Option<Class>,
}

/// A new snapshot and the sessions that it concerns. Wildcard sessions get no per-name notifications: they read the snapshot.
#[derive(Debug, Default)]
pub struct Notifications(pub BTreeMap<SessionId, Vec<NameChanged>>);

/// The cached resources of one view, the interest in them, and the snapshot that sessions read.
#[derive(Debug)]
pub struct View {
    revision: Revision,
    tables: BTreeMap<(Type, Class), ResourceTable>,
    /// When a wildcard set of any type was last forgotten. Kept once for all types, since clients can make up any number of
    /// types.
    forgotten: Revision,
    interest: Interest,
    refused_names: BTreeMap<SessionId, Vec<RefusedName>>,
    published: Arc<Snapshot>,
    wakes: BTreeMap<SessionId, Vec<NameChanged>>,
    /// Types whose `*` table changed since the last publication, each with the receipt of the oldest change of a resource.
    changed_wildcards: BTreeMap<Type, Option<Moment>>,
    /// When the oldest unpublished change of a name was received.
    names_received: Option<Moment>,
    /// The publications with changes of names.
    receipts: Receipts,
    /// When what is being applied was received, if that was not now.
    received: Option<Moment>,
    dirty: bool,
    /// A server has given what another one had given, and nothing else has changed since.
    is_reattributed: bool,
    /// The origin of the updates being applied.
    origin: Origin,
    sought: Sought,
    /// The stages that updates pass before they are applied.
    row: Row,
    removals: RemovalHistory,
    /// Upstream responds to a name that is requested again (UP-17).
    repeats: bool,
    /// Authorities without a reachable server.
    down: Arc<BTreeSet<Authority>>,
    table: Arc<TypeTable>,
    /// The type of clusters.
    clusters: Type,
    options: Arc<ViewOptions>,
}

/// A name of a session for which there is no room.
#[derive(Debug, Clone)]
pub struct RefusedName {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    pub(crate) why: NoRoom,
}

impl View {
    /// Starts empty, with an empty snapshot published.
    pub fn new(table: Arc<TypeTable>, options: Arc<ViewOptions>) -> Self {
        Self {
            revision: Revision::ZERO,
            tables: BTreeMap::new(),
            forgotten: Revision::ZERO,
            interest: Interest::new(options.clone()),
            refused_names: BTreeMap::new(),
            published: Arc::default(),
            wakes: BTreeMap::new(),
            changed_wildcards: BTreeMap::new(),
            names_received: None,
            receipts: Receipts::default(),
            received: None,
            dirty: false,
            is_reattributed: false,
            origin: Origin::default(),
            sought: Sought::default(),
            row: Row::new(options.clone()),
            removals: RemovalHistory::default(),
            repeats: false,
            down: Arc::default(),
            clusters: table.clusters(),
            table,
            options,
        }
    }

    /// Applies one complete response.
    pub fn apply(&mut self, updates: Vec<Update>, now: Moment) {
        self.apply_from(Origin::default(), updates, now);
    }

    /// Applies the updates of one response, except those that have to wait. [`View::publish`] makes them visible.
    pub fn apply_from(&mut self, origin: Origin, updates: Vec<Update>, now: Moment) {
        self.apply_received(origin, updates, now, now);
    }

    /// Like [`View::apply_from`], for a response that was received earlier.
    pub fn apply_received(&mut self, origin: Origin, updates: Vec<Update>, received: Moment, now: Moment) {
        self.origin = origin;
        self.row.enter(Place::Gate, Unit { origin, received: received.min(now), updates });
        self.apply_passed(now);
    }

    /// Applies what passes the row.
    fn apply_passed(&mut self, now: Moment) {
        loop {
            let (row, mut surroundings) = self.row_and_surroundings();
            let Some(Passed { update, origin, received }) = row.next(&mut surroundings, now) else { return };
            self.apply_one(update, origin, received, now);
        }
    }

    fn row_and_surroundings(&mut self) -> (&mut Row, Surroundings<'_>) {
        let Self { row, tables, interest, sought, table, clusters, options, .. } = self;
        (row, Surroundings::new((tables, table, clusters), interest, sought, options))
    }

    fn facts(&self) -> Facts<'_> {
        Facts::new(&self.tables, &self.interest, &self.table, &self.clusters, &self.options)
    }

    /// Returns what the stages hold, for those who ask.
    pub fn holds(&self) -> Holds<'_> {
        self.row.holds(self.facts())
    }

    /// Applies the updates of a type that the gate kept back.
    pub fn open_gate(&mut self, kind: &Type, now: Moment) {
        self.row.open_gate(kind, self.origin, now);
        self.apply_passed(now);
    }

    /// Keeps back updates of a type until its set is complete, since another server has become active.
    pub fn shut_gate(&mut self, kind: &Type) {
        self.row.shut_gate(kind);
    }

    /// Records the authorities of `Sources::unsteady`. While an authority is unsteady, no wait in it runs out.
    pub fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        self.row.note_unsteady(unsteady, now);
    }

    /// Returns the ordering rules that could not be kept since the last call.
    pub fn take_dangled(&mut self) -> OrderLosses {
        self.row.take_losses()
    }

    /// Returns what has happened to brakes since the last call.
    pub fn take_brake_events(&mut self) -> Vec<BrakeEvent> {
        self.row.take_brake_events()
    }

    /// Returns what another process needs to go on with the brakes, if what is held has changed since the last call.
    pub fn take_brake_state(&mut self, now: Moment) -> Option<BrakeState> {
        self.row.take_brake_state(now)
    }

    /// Goes on with the brakes of another process. Names that are not present are left out: the tables are restored first.
    pub fn restore_brakes(&mut self, state: &BrakeState, now: Moment) {
        let (row, surroundings) = self.row_and_surroundings();
        row.restore_brakes(state, &surroundings.facts(), now);
    }

    /// Lets go what an operator has seen: removals up to a generation, of one set or of all, of one server or of any. Returns how
    /// many.
    pub fn release_brakes(
        &mut self,
        of: Option<(&Type, &Selector)>,
        server: Option<u16>,
        generation: u64,
        now: Moment,
    ) -> Result<usize, NotReleased> {
        let outcome = self.row.release_brakes(Release { of, server, generation }, now);
        self.apply_passed(now);
        outcome
    }

    /// Puts a stage into the row, before those at a place.
    #[cfg(feature = "faults")]
    pub fn add_stage(&mut self, at: Place, stage: Box<dyn Stage>) {
        self.row.add_stage(at, stage);
    }

    /// Applies a session's subscription or unsubscription. A session is notified of a name that is known already, since it may have
    /// read an older snapshot before its interest was counted.
    pub fn change_interest(&mut self, session: SessionId, change: InterestChange, now: Moment) {
        let InterestChange { kind, selector: wanted, on } = change;
        if on {
            let admitted = self.interest.subscribe(session, &kind, &wanted);
            let Selector::Name(name) = wanted else {
                self.wakes.entry(session).or_default();
                return;
            };
            if let Err(why) = admitted {
                self.refused_names.entry(session).or_default().push(RefusedName { kind, name, why });
                return;
            }
            if name.is_glob() {
                self.mark_members(session, &kind, &name);
            }
            let table = self.tables.get(&(kind.clone(), Class::Named));
            let Some(entry) = table.and_then(|table| table.get(&name)) else { return };
            if self.repeats && matches!(&entry.presence, Presence::Present(held) if held.do_not_cache()) {
                self.interest.ask_again(&kind, &Selector::Name(name)); // the response is for the clients that wait now (XLAT-29)
                return;
            }
            let revision = entry.error.as_ref().map_or(entry.changed, |(revision, _)| entry.changed.max(*revision));
            self.wakes.entry(session).or_default().push(NameChanged { kind, name, revision, claimed: None });
        } else {
            self.interest.unsubscribe(session, &kind, &wanted, false, now);
        }
    }

    /// Returns the names, by session, for which there was no room since the last call.
    pub fn take_refused_names(&mut self) -> BTreeMap<SessionId, Vec<RefusedName>> {
        std::mem::take(&mut self.refused_names)
    }

    /// Applies the last changes of a session whose stream has ended, and forgets the session.
    pub fn on_session_left(&mut self, session: SessionId, changes: Vec<InterestChange>, now: Moment) {
        for change in changes {
            match change.on {
                true => self.change_interest(session, change, now),
                false => self.interest.unsubscribe(session, &change.kind, &change.selector, true, now),
            }
        }
        self.interest.on_left(session);
        self.sought.on_left(session);
    }

    /// Notifies a session that subscribes to a collection of the members.
    fn mark_members(&mut self, session: SessionId, kind: &Type, glob: &Name) {
        let is_new = self.resources(kind, Class::Named).collect(glob);
        self.dirty |= is_new;
        let Some(table) = self.tables.get(&(kind.clone(), Class::Named)) else { return };
        let members = table.collection(glob).into_iter().flat_map(|of| of.members());
        let revision = |name: &Name| table.get(name).map(|entry| entry.changed);
        let mark = |name: &Name| {
            Some(NameChanged { kind: kind.clone(), name: name.clone(), revision: revision(name)?, claimed: None })
        };
        self.wakes.entry(session).or_default().extend(members.filter_map(mark));
    }

    /// Returns the revision of the last change, published or not.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the sessions of `*` that the next publication concerns because a resource of the type has changed.
    pub(crate) fn changed_wildcard_sessions(&self, kind: &Type) -> impl Iterator<Item = SessionId> {
        let has_changed = self.changed_wildcards.get(kind).is_some_and(Option::is_some);
        has_changed.then(|| self.interest.wildcard_sessions(kind)).into_iter().flatten()
    }

    /// Publishes what has been applied since the last publication, and returns the sessions to notify.
    pub fn publish(&mut self) -> Notifications {
        for (kind, received) in std::mem::take(&mut self.changed_wildcards) {
            if let Some(table) = self.tables.get_mut(&(kind.clone(), Class::Wildcard)) {
                table.remember_version(&self.options);
                if let Some(received) = received {
                    table.note_received(self.published.revision, self.revision, received);
                }
            }
            for session in self.interest.wildcard_sessions(&kind) {
                self.wakes.entry(session).or_default();
            }
        }
        let is_reattributed = std::mem::take(&mut self.is_reattributed);
        if std::mem::take(&mut self.dirty) {
            if self.revision == self.published.revision {
                self.revision = self.revision.next(); // no entry changed, but the completeness did: another snapshot needs another revision
            }
            if let Some(received) = self.names_received.take() {
                self.receipts.note(self.revision, received);
            }
            self.replace_snapshot();
        } else if is_reattributed {
            self.replace_snapshot(); // what clients are sent stays the same, and so does the revision
        }
        Notifications(std::mem::take(&mut self.wakes))
    }

    fn replace_snapshot(&mut self) {
        debug_assert!(
            self.tables.values().all(|table| table.newest() <= self.revision),
            "a change later than the snapshot"
        );
        let (down, tables, receipts) = (self.down.clone(), self.tables.clone(), self.receipts.clone());
        let history_bytes = self.options.history_bytes;
        let snapshot = Snapshot::new(self.revision, down, tables, self.forgotten, receipts, history_bytes);
        self.published = Arc::new(snapshot);
    }

    /// Returns everything to request from a server that is opened now, each with whether it is cached already (FB-4).
    pub fn wanted(&self) -> impl Iterator<Item = (&Type, Selector, bool)> {
        self.interest.all().map(|(kind, wanted)| {
            let cached = self.is_cached(kind, &wanted);
            (kind, wanted, cached)
        })
    }

    /// Returns the members of a cached wildcard set.
    pub fn wildcard_names(&self, kind: &Type) -> impl Iterator<Item = &Name> {
        self.tables.get(&(kind.clone(), Class::Wildcard)).into_iter().flat_map(ResourceTable::present_names)
    }

    /// Returns whether there is interest, including interest that lingers.
    pub(crate) fn is_wanted(&self) -> bool {
        self.interest.is_any()
    }

    /// Sets how many bytes of names of one type a server takes in a request, if it takes whole lists.
    pub fn set_list_limit(&mut self, limit: Option<usize>) {
        self.interest.set_list_limit(limit);
    }

    /// Sets the limit for the bytes of all resources if it is reached. New names then have no room, and nothing lingers.
    pub fn set_full_cache(&mut self, limit: Option<usize>) {
        self.interest.set_full_cache(limit);
    }

    /// Records the state of the sources: the authorities without a reachable server, and whether upstream responds to a name that
    /// is requested again.
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

    /// Returns the snapshot that was published last.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.published
    }

    /// Returns how many resources of a type are cached, from wildcard or named subscriptions.
    pub fn held(&self, kind: &Type, wildcard: bool) -> usize {
        let class = if wildcard { Class::Wildcard } else { Class::Named };
        self.tables.get(&(kind.clone(), class)).map_or(0, |table| table.present())
    }

    /// Returns how many resources are cached of each type and class, and the length of their bodies.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&Type, usize, usize)> {
        self.tables.iter().map(|((kind, _), table)| (kind, table.present(), table.bytes()))
    }

    /// Returns what the remembered removals of sets take, without bodies.
    pub(crate) fn removal_bytes(&self) -> usize {
        let sets = self.tables.iter().filter(|((_, class), _)| *class == Class::Wildcard);
        sets.map(|(_, table)| table.removal_bytes()).sum()
    }

    /// Returns how many removals were forgotten.
    pub(crate) fn forgotten_removals(&self) -> Forgotten {
        self.removals.forgotten()
    }

    /// Returns how many cached resources came from each server, by its place in the plan.
    pub(crate) fn cached_by_server(&self) -> BTreeMap<u16, usize> {
        let mut sum = BTreeMap::new();
        for (server, count) in self.tables.values().flat_map(ResourceTable::by_server) {
            *sum.entry(*server).or_default() += count;
        }
        sum
    }

    /// Returns how many names of a type have a named entry, including absent ones.
    pub fn known_names(&self, kind: &Type) -> usize {
        self.tables.get(&(kind.clone(), Class::Named)).map_or(0, ResourceTable::len)
    }

    /// Returns what to subscribe to and to unsubscribe from upstream since the last call.
    pub fn take_upstream_changes(&mut self) -> Vec<InterestChange> {
        self.interest.take_changes()
    }

    /// Returns when [`View::on_time`] has something to do next.
    pub fn next_deadline(&self) -> Option<Moment> {
        let tables = self.tables.values().filter_map(|table| table.next_deadline(&self.options));
        let waits = earliest(self.row.next_deadline(), self.removals.next_deadline(&self.options));
        earliest(tables.min(), earliest(self.interest.next_deadline(), waits))
    }

    /// Handles expired timers: lingering interest ends, and old tombstones are forgotten.
    pub fn on_time(&mut self, now: Moment) {
        for (kind, wanted) in self.interest.expire(now) {
            self.forget(&kind, &wanted, now);
        }
        self.row.on_time();
        self.apply_passed(now);
        let expired = |((kind, class), table): (&(Type, Class), &ResourceTable)| {
            let names = table.expired(now).into_iter();
            names.map(|name| (kind.clone(), *class, name)).collect::<Vec<_>>()
        };
        for (kind, class, key) in self.tables.iter().flat_map(expired).collect::<Vec<_>>() {
            let updates = vec![Update::Expired { kind, class, key }];
            self.row.enter(Place::Gate, Unit { origin: Origin::default(), received: now, updates }); // expiry has no rank
            self.apply_passed(now);
        }
        for table in self.tables.values_mut() {
            self.dirty |= table.trim_bodies(now, &self.options);
        }
        let sets = self.tables.iter_mut().filter(|((_, class), _)| *class == Class::Wildcard).map(|(_, table)| table);
        let is_reachable = !self.down.contains(&Authority::TopLevel);
        self.dirty |= self.removals.trim(sets.collect(), self.published.revision, is_reachable, &self.options, now);
    }

    fn forget(&mut self, kind: &Type, wanted: &Selector, now: Moment) {
        if self.options.faults.has(Fault::ServeForgottenNames) {
            return;
        }
        self.dirty = true;
        self.row.forget(kind, wanted);
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
                self.revision = self.revision.next();
                let revision = self.revision;
                for name in &forgotten {
                    let old = self.followed(kind, Class::Named, name);
                    self.resources(kind, Class::Named).forget_at(name, revision);
                    self.forget_order(&(kind.clone(), Class::Named, name.clone()), old.as_ref(), now);
                }
                if self.resources(kind, Class::Named).is_empty() {
                    self.tables.remove(&(kind.clone(), Class::Named));
                }
            }
            Selector::Wildcard => {
                // A session that reads this table now, or just did, would miss removals from here on. The horizon makes it notice.
                let dropped = self.tables.remove(&(kind.clone(), Class::Wildcard)).unwrap_or_default();
                for name in dropped.present_names() {
                    let old = dropped.get(name).and_then(Entry::resource);
                    self.forget_order(&(kind.clone(), Class::Wildcard, name.clone()), old, now);
                }
                self.revision = self.revision.next();
                self.forgotten = self.revision;
            }
        }
    }

    /// Returns the members of a collection that are known to be absent, since a client held them.
    fn absent_names_under<'a>(&'a self, kind: &Type, glob: &'a Name) -> impl Iterator<Item = &'a Name> {
        let table = self.tables.get(&(kind.clone(), Class::Named));
        let gone = table.into_iter().flat_map(|table| table.removals(Revision::ZERO)).map(|(name, _)| name);
        gone.filter(move |name| name.collection().as_ref() == Some(glob))
    }

    fn resources(&mut self, kind: &Type, class: Class) -> &mut ResourceTable {
        let (made, forgotten) = (self.revision, self.forgotten);
        let new = || match class {
            Class::Wildcard => ResourceTable::empty_at(made, forgotten),
            Class::Named => ResourceTable::empty_at(made, Revision::ZERO),
        };
        self.tables.entry((kind.clone(), class)).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests;

//! A view: the cached resources of one sharing key, and which sessions subscribe to them.
//!
//! Owns the row of stages, the tables, the counts of interest and the published snapshot. Leaves the wire to [`upstream`](super::upstream)
//! and clients to [`session`](super::session).

mod after_outage;
mod apply;
mod brake;
mod claims;
mod collections;
mod differences;
mod holds;
mod interest;
mod leases;
mod lingering;
mod name_room;
mod options;
mod order;
mod publication;
mod receipts;
mod removal_history;
mod resource_table;
mod row;
mod saved;
mod snapshot;
mod sought_names;
mod stage;
mod table_writer;
mod tables;
mod update;
mod wants;
mod without_room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use super::keys::{Class, Revision, Selector, SessionId};
pub use brake::{
    BrakeEvent, BrakeReport, BrakeRules, BrakeState, Generations, HeldRemoval, NotReleased, ReleaseReason, SetState,
};
pub use claims::{Claim, Claimed, OpenClaims};
pub use holds::{Holds, NameHolds};
pub use interest::InterestChange;
pub(crate) use leases::Lease;
pub use leases::{LeaseAccess, LeaseProgress, Leases};
pub use lingering::Scarcity;
pub use options::ViewOptions;
pub use order::OrderLosses;
pub use publication::{NameChanged, Notifications};
pub use removal_history::Forgotten;
pub use resource_table::{AbsenceEvidence, Presence, ResourceTable, TableEntry};
pub use saved::{SavedResource, SavedSet};
pub use snapshot::{Batch, BatchKey, Lookup, Snapshot};
pub use stage::{HoldTimes, RowPosition, Stage, StageFacts, UpdateUnit};
pub use tables::{KeptByView, Tables};
pub use update::{Completeness, Evidence, NamedError, NoRoom, Origin, Recovering, RefusedName, Retain, Update};
pub use wants::Wants;

use self::brake::Release;
use self::interest::Interest;
use self::lingering::SubscriptionEnd;
use self::publication::Publication;
use self::removal_history::RemovalHistory;
use self::row::Row;
use self::stage::{Setup, Surroundings};
use self::table_writer::TableWriter;
use self::update::{SourcedUpdate, UpdateContext};
use super::moment::{Moment, earliest};
use crate::xds::{Authority, Name, Type, TypeTable};

/// The cached resources of one view, the interest in them, and the snapshot that sessions read.
#[derive(Debug)]
pub struct View {
    tables: Tables,
    interest: Interest,
    /// The claims of clients.
    sought: OpenClaims,
    refused_names: BTreeMap<SessionId, Vec<RefusedName>>,
    /// The stages that updates pass before they are applied.
    row: Row,
    publication: Publication,
    removals: RemovalHistory,
    /// Upstream responds to a name that is requested again (UP-17).
    repeats: bool,
    setup: Setup,
}

impl View {
    /// Starts empty, with an empty snapshot published.
    pub fn new(table: Arc<TypeTable>, options: Arc<ViewOptions>) -> Self {
        let (tables, sought, refused_names, publication, removals, repeats) = Default::default();
        let (interest, row) = (Interest::new(options.clone()), Row::new(options.clone()));
        let setup = Setup::new(table, options);
        Self { tables, interest, sought, refused_names, row, publication, removals, repeats, setup }
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
        self.row.enter(RowPosition::Brakes, UpdateUnit { origin, received: received.min(now), updates });
        self.apply_passed(now);
    }

    /// Applies what passes the row.
    fn apply_passed(&mut self, now: Moment) {
        loop {
            let Self { row, tables, interest, sought, setup, .. } = self;
            let mut surroundings = Surroundings::new(tables, interest, sought, setup);
            let Some(SourcedUpdate { update, origin, received }) = row.next(&mut surroundings, now) else { return };
            self.tables.without_room_mut().note(&update);
            apply::apply(update, &mut self.writer(UpdateContext { origin, received, now }));
        }
    }

    fn writer(&mut self, occasion: UpdateContext) -> TableWriter<'_> {
        let Self { row, tables, interest, sought, publication, setup, .. } = self;
        TableWriter::new((tables, interest, sought), row, publication, setup, occasion)
    }

    /// Returns the cached resources.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns what clients want.
    pub fn wants(&self) -> Wants<'_> {
        Wants::new(&self.tables, &self.interest)
    }

    /// Returns the claims of clients.
    pub fn sought(&self) -> &OpenClaims {
        &self.sought
    }

    /// Returns what the stages hold.
    pub fn holds(&self) -> Holds<'_> {
        self.row.holds(StageFacts::new(&self.tables, &self.interest, &self.setup))
    }

    /// Records until when each server may still be reading its state after an outage, and whether a client is there for whom that matters.
    pub fn note_recovering(&mut self, recovering: impl Into<Recovering>) {
        self.row.note_recovering(recovering.into());
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

    /// Goes on with the brakes of another process. Leaves out names that are not present, so the tables have to be restored before.
    pub fn restore_brakes(&mut self, state: &BrakeState, now: Moment) {
        self.row.restore_brakes(state, &StageFacts::new(&self.tables, &self.interest, &self.setup), now);
    }

    /// Releases what an operator has seen: removals up to a generation, of one set or of all, of one server or of any.
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
    pub fn add_stage(&mut self, at: RowPosition, stage: Box<dyn Stage>) {
        self.row.add_stage(at, stage);
    }

    /// Applies a session's change of interest. If the name is known, the session is notified: it may have read an older snapshot.
    pub fn change_interest(&mut self, session: SessionId, change: InterestChange, now: Moment) {
        let InterestChange { kind, selector, on } = change;
        if on {
            let admitted = self.interest.subscribe(session, &kind, &selector);
            let Selector::Name(name) = selector else {
                self.publication.wake(session);
                return;
            };
            if let Err(why) = admitted {
                self.refused_names.entry(session).or_default().push(RefusedName { kind, name, why });
                return;
            }
            if name.is_glob() {
                self.mark_members(session, &kind, &name);
            }
            let Some(entry) = self.tables.entry(&kind, Class::Named, &name) else { return };
            if self.repeats && matches!(&entry.presence, Presence::Present(held) if held.do_not_cache()) {
                self.interest.ask_again(&kind, &Selector::Name(name)); // the response is for the clients that wait now (XLAT-29)
                return;
            }
            let revision = entry.error.as_ref().map_or(entry.changed, |(revision, _)| entry.changed.max(*revision));
            let is_absent = matches!(entry.presence, Presence::Absent(_));
            self.publication.notify(session, [NameChanged { kind, name, revision, is_absent, claimed: None }]);
        } else {
            self.interest.unsubscribe(session, &kind, &selector, SubscriptionEnd::BY_REQUEST, now);
        }
    }

    /// Returns the names, by session, for which there was no room since the last call.
    pub fn take_refused_names(&mut self) -> BTreeMap<SessionId, Vec<RefusedName>> {
        std::mem::take(&mut self.refused_names)
    }

    /// Applies some of the last changes of a session whose stream has ended.
    pub fn on_session_leaving(&mut self, session: SessionId, changes: Vec<InterestChange>, now: Moment) {
        for change in changes {
            match change.on {
                true => self.change_interest(session, change, now),
                false => {
                    let how = SubscriptionEnd { with_stream: true, has_any: self.tables.has_any(&change) };
                    self.interest.unsubscribe(session, &change.kind, &change.selector, how, now);
                }
            }
        }
    }

    /// Applies the last changes of a session whose stream has ended, and forgets the session.
    pub fn on_session_left(&mut self, session: SessionId, changes: Vec<InterestChange>, now: Moment) {
        self.on_session_leaving(session, changes, now);
        self.interest.on_left(session);
        self.sought.on_left(session);
    }

    /// Notifies a session of the members of a collection that it subscribes to.
    fn mark_members(&mut self, session: SessionId, kind: &Type, glob: &Name) {
        let table = self.tables.table_made_at(self.publication.revision(), kind, Class::Named);
        if table.collections_mut().begin(glob) {
            self.publication.note_difference();
        }
        let members = table.collections().get(glob).into_iter().flat_map(|of| of.members());
        let changed = |name: &Name| {
            let (kind, name, revision) = (kind.clone(), name.clone(), table.get(name)?.changed);
            Some(NameChanged { kind, name, revision, is_absent: false, claimed: None })
        };
        self.publication.notify(session, members.filter_map(changed));
    }

    /// Returns the revision of the last change, published or not.
    pub fn revision(&self) -> Revision {
        self.publication.revision()
    }

    /// Returns the sessions of `*` that the next publication concerns because a resource of the type has changed.
    pub fn changed_wildcard_sessions(&self, kind: &Type) -> impl Iterator<Item = SessionId> {
        let has_changed = self.publication.has_changed_wildcard(kind);
        has_changed.then(|| self.interest.wildcard_sessions(kind)).into_iter().flatten()
    }

    /// Publishes what has been applied since the last publication, and returns the sessions to notify.
    pub fn publish(&mut self) -> Notifications {
        self.publication.publish(&mut self.tables, &self.interest, self.setup.options())
    }

    /// Adds claims of a session, so that their names are requested again. [`Self::take_refused_claims`] returns those without room.
    pub fn add_claims(&mut self, session: SessionId, claims: Vec<Claim>) {
        for claim in claims {
            if self.wants().is_claim_open(&claim)
                && let Some(answer) = self.sought.insert(session, claim, self.setup.options())
            {
                self.publication.notify(session, [answer]);
            }
        }
    }

    /// Returns the claims, by session, for which there was no room since the last call. They stay with their sessions.
    pub fn take_refused_claims(&mut self) -> BTreeMap<SessionId, Vec<Claim>> {
        self.sought.take_refused()
    }

    /// Returns the sessions that may claim again what had no room, since the last call.
    pub fn take_sessions_to_claim(&mut self) -> BTreeSet<SessionId> {
        self.sought.take_admitted()
    }

    /// Puts the sets of an earlier process into a new view, and publishes them. What no session wants by `until` is forgotten.
    pub fn restore(&mut self, sets: Vec<SavedSet>, until: Moment, now: Moment) {
        let mut writer = self.writer(UpdateContext { origin: Origin::default(), received: now, now });
        for set in &sets {
            set.expect(until, &mut writer);
        }
        for set in sets {
            set.restore(Completeness::Settled, &mut writer);
        }
        self.publish();
    }

    /// Sets how many bytes of names of one type a server takes in a request, if it takes whole lists.
    pub fn set_list_limit(&mut self, limit: Option<usize>) {
        self.interest.set_list_limit(limit);
    }

    /// Sets the limit for the bytes of all resources if it is reached: new names then have no room, and nothing lingers.
    pub fn set_full_cache(&mut self, limit: Option<usize>) {
        self.interest.set_full_cache(limit);
    }

    /// Sets how scarce memory is, and whether what was rejected for lack of room would have room by now.
    pub fn set_scarcity(&mut self, memory: Scarcity, has_room: bool) {
        self.interest.memory = memory;
        self.tables.without_room_mut().set_has_room(has_room);
    }

    /// Returns how much it keeps besides bodies, and besides what its sessions want and were not sent.
    pub fn kept(&self) -> KeptByView {
        KeptByView { lingering: self.interest.lingering_count(), ..self.tables.kept() }
    }

    /// Records the authorities without a reachable server, and whether upstream responds to a name that is requested again.
    pub fn on_source(&mut self, down: BTreeSet<Authority>, repeats: bool) {
        self.repeats = repeats;
        if self.publication.note_down(down) {
            self.interest.everyone().for_each(|session| self.publication.wake(session));
        }
    }

    /// Returns the snapshot that was published last.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        self.publication.snapshot()
    }

    /// Returns how many removals were forgotten.
    pub fn forgotten_removals(&self) -> Forgotten {
        self.removals.forgotten()
    }

    /// Returns what to subscribe to and to unsubscribe from upstream since the last call.
    pub fn take_upstream_changes(&mut self) -> Vec<InterestChange> {
        self.interest.take_changes()
    }

    /// Returns when [`View::on_time`] has something to do next.
    pub fn next_deadline(&self) -> Option<Moment> {
        let options = self.setup.options();
        let tables = self.tables.all().filter_map(|(_, table)| table.next_deadline(options));
        let waits = earliest(self.row.next_deadline(), self.removals.next_deadline(options));
        earliest(tables.min(), earliest(self.interest.next_deadline(), waits))
    }

    /// Handles expired timers: interest that lingers, what stages hold, TTLs, and tombstones.
    pub fn on_time(&mut self, now: Moment) {
        for (kind, selector) in self.interest.expire(now) {
            self.tables.without_room_mut().forget(&kind, &selector);
            self.writer(UpdateContext { origin: Origin::default(), received: now, now }).forget(&kind, &selector);
        }
        self.row.on_time();
        self.apply_passed(now);
        for (kind, class, key) in self.tables.expired(now) {
            let (origin, updates) = (Origin::default(), vec![Update::Expired { kind, class, key }]); // expiry has no rank
            self.row.enter(RowPosition::Brakes, UpdateUnit { origin, received: now, updates });
            self.apply_passed(now);
        }
        self.trim(now);
    }

    fn trim(&mut self, now: Moment) {
        let (options, published) = (self.setup.options(), self.publication.snapshot().revision);
        let mut differs = false;
        for (_, table) in self.tables.all_mut() {
            differs |= table.trim_bodies(now, options);
        }
        let sets = self.tables.all_mut().filter_map(|(class, table)| (class == Class::Wildcard).then_some(table));
        let is_reachable = !self.publication.is_down(&Authority::TopLevel);
        differs |= self.removals.trim(sets.collect(), published, is_reachable, options, now);
        if differs {
            self.publication.note_difference();
        }
    }
}

#[cfg(test)]
mod tests;

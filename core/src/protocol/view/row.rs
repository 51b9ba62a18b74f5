//! The way from what a server says to the tables: through the brakes, the hold after an outage, and the order.
//!
//! Each stage passes on what it does not hold. What it releases later enters after it, never at the head, so a released removal is not braked
//! again; nor is such a removal held after an outage. The brakes judge all that one response says; before the order, sets are taken apart
//! into their differences, and each is applied before the next is judged.
//!
//! Owns the stages, and what is on its way between them. Leaves the tables to the view, which applies what [`Row::next`] returns, one update
//! after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::vec;

use super::after_outage::AfterOutage;
use super::brake::{BrakeEvent, BrakeState, Brakes, NotReleased, Release};
use super::differences::Differences;
use super::holds::Holds;
use super::order::{Order, OrderLosses};
use super::stage::{RowPosition, Stage, StageFacts, Surroundings, UpdateUnit, class_of};
use super::update::{Origin, Recovering, SourcedUpdate, Update};
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::options::ViewOptions;
use crate::xds::{Authority, Name, Resource, Type};

/// The stages of a view.
#[derive(Debug)]
pub(super) struct Row {
    brakes: Brakes,
    after_outage: AfterOutage,
    order: Order,
    /// Further stages, by their places. Tests add them.
    added: BTreeMap<RowPosition, Box<dyn Stage>>,
    /// What is on its way; the last element is next. Empty once the view has applied what came.
    under_way: Vec<Step>,
    options: Arc<ViewOptions>,
}

/// Something on its way, or that is to be done when all before it has been applied.
#[derive(Debug)]
enum Step {
    /// Units are before the stages at a place.
    Enter(RowPosition, vec::IntoIter<UpdateUnit>),
    /// A unit is after those that were added at a place.
    Pass(RowPosition, UpdateUnit),
    /// The brakes judge what was said of one set, or of what has no brake.
    Brake(Option<SetKey>, UpdateUnit),
    /// The brakes have released units.
    Released(vec::IntoIter<UpdateUnit>),
    /// The stage after an outage judges what the brakes pass.
    JudgeAfterOutage(UpdateUnit),
    /// The brakes record what follows from the tables.
    SettleBrakes,
    /// Updates are at a place, one after the other.
    Updates(RowPosition, Origin, Moment, vec::IntoIter<Update>),
    /// The differences that a set was taken apart into are before the order.
    Differences(Origin, Moment, Differences),
    /// Updates are after the order.
    EnterTables(vec::IntoIter<SourcedUpdate>),
    /// This and the next three: the added stages at a place, the brakes, the stage after the outage, and the order release what they held for long enough.
    ReleaseAdded(RowPosition),
    ReleaseBraked,
    ReleaseAfterOutage,
    ReleaseOrdered,
    /// The order releases changes that have waited long enough, each with the clusters that did not arrive. Then it releases removals.
    Overdue(vec::IntoIter<(SourcedUpdate, BTreeSet<Name>)>),
    WaitedFor(BTreeSet<Name>),
    ReleaseRemovals,
}

impl Row {
    pub(super) fn new(options: Arc<ViewOptions>) -> Self {
        let (brakes, after_outage, order) = Default::default();
        Self { brakes, after_outage, order, added: BTreeMap::new(), under_way: Vec::new(), options }
    }

    /// Lets a unit into the row, before the stages at a place.
    pub(super) fn enter(&mut self, at: RowPosition, unit: UpdateUnit) {
        self.enter_all(at, vec![unit]);
    }

    fn enter_all(&mut self, at: RowPosition, units: Vec<UpdateUnit>) {
        self.under_way.push(Step::Enter(at, units.into_iter()));
    }

    /// Returns the next update to apply of what is under way. The stages judge it by tables that have everything returned before.
    pub(super) fn next(&mut self, view: &mut Surroundings<'_>, now: Moment) -> Option<SourcedUpdate> {
        while let Some(step) = self.under_way.pop() {
            let passed = self.take_step(step, view, now);
            if passed.is_some() {
                return passed;
            }
        }
        None
    }

    fn take_step(&mut self, step: Step, view: &mut Surroundings<'_>, now: Moment) -> Option<SourcedUpdate> {
        match step {
            Step::Enter(at, mut units) => {
                let unit = units.next()?;
                self.under_way.push(Step::Enter(at, units));
                let facts = later(view, &self.order, &self.after_outage, at);
                let Some(stage) = self.added.get_mut(&at) else {
                    self.under_way.push(Step::Pass(at, unit));
                    return None;
                };
                let passed = stage.judge(unit, facts, now);
                self.pass_all(at, passed);
            }
            Step::Pass(RowPosition::Brakes, unit) => {
                let parts = self.brakes.parts(unit, &view.facts());
                self.under_way.extend(parts.into_iter().rev().map(|(set, unit)| Step::Brake(set, unit)));
            }
            Step::Brake(set, unit) => {
                let facts = later(view, &self.order, &self.after_outage, RowPosition::Brakes);
                let (passed, released) = self.brakes.judge(set, unit, &facts, now);
                self.follow_brakes(released);
                self.under_way.push(Step::JudgeAfterOutage(passed));
            }
            Step::Released(mut units) => {
                let unit = units.next()?;
                self.under_way.push(Step::Released(units));
                // A removal has waited for its time, was agreed to, or is of another server than the one that speaks now. A change may
                // have to wait for removals that are held after an outage.
                if matches!(unit.updates[..], [Update::Absent { .. }]) {
                    self.enter(RowPosition::Order, unit);
                } else {
                    self.under_way.push(Step::JudgeAfterOutage(unit));
                }
            }
            Step::JudgeAfterOutage(unit) => {
                let facts = view.facts().with_removed(self.order.removals());
                let passed = self.after_outage.judge(unit, &facts, now);
                self.enter_all(RowPosition::Order, passed);
            }
            Step::SettleBrakes => {
                let facts = later(view, &self.order, &self.after_outage, RowPosition::Brakes);
                let passed = self.brakes.settle(&facts, now);
                self.enter_all(RowPosition::Order, passed);
            }
            Step::Pass(at @ (RowPosition::Order | RowPosition::Tables), UpdateUnit { origin, received, updates }) => {
                self.under_way.push(Step::Updates(at, origin, received, updates.into_iter()));
            }
            Step::Updates(at, origin, received, mut updates) => {
                let passed = SourcedUpdate { update: updates.next()?, origin, received };
                self.under_way.push(Step::Updates(at, origin, received, updates));
                return if at == RowPosition::Tables { Some(passed) } else { self.take_apart(passed, view, now) };
            }
            Step::Differences(origin, received, mut differences) => {
                let passed = SourcedUpdate { update: differences.next()?, origin, received };
                self.under_way.push(Step::Differences(origin, received, differences));
                return self.enter_order(passed, view, now);
            }
            Step::EnterTables(mut passed) => {
                let next = passed.next()?;
                self.under_way.push(Step::EnterTables(passed));
                return self.enter_tables(next);
            }
            Step::ReleaseAdded(at) => {
                let facts = later(view, &self.order, &self.after_outage, at);
                let released = self.added.get_mut(&at).map(|stage| stage.on_time(facts, now));
                self.pass_all(at, released.unwrap_or_default());
            }
            Step::ReleaseBraked => {
                let passed = self.brakes.on_time(&self.options.brakes, now);
                self.follow_brakes(passed);
            }
            Step::ReleaseAfterOutage => {
                let released = self.after_outage.on_time(&self.options.brakes, now);
                self.enter_all(RowPosition::Order, released);
            }
            Step::ReleaseOrdered => {
                if self.order.is_due(now) {
                    self.order.bound_changes(&view.facts());
                    let overdue = self.order.take_overdue(now);
                    self.under_way.extend([Step::ReleaseRemovals, Step::Overdue(overdue.into_iter())]);
                }
            }
            Step::Overdue(mut overdue) => {
                let (change, missing) = overdue.next()?;
                self.under_way.extend([Step::Overdue(overdue), Step::WaitedFor(missing)]);
                return self.enter_tables(change);
            }
            Step::WaitedFor(clusters) => self.order.waited_for(&clusters),
            Step::ReleaseRemovals => {
                let removals = self.order.take_removals(&view.facts(), now);
                self.under_way.push(Step::EnterTables(removals.into_iter()));
            }
        }
        None
    }

    /// Passes on what the added stages at a place let through.
    fn pass_all(&mut self, at: RowPosition, units: Vec<UpdateUnit>) {
        self.under_way.extend(units.into_iter().rev().map(|unit| Step::Pass(at, unit)));
    }

    /// Passes on what the brakes release, and then updates the brakes from the tables, which have it by then.
    fn follow_brakes(&mut self, released: Vec<UpdateUnit>) {
        self.under_way.extend([Step::SettleBrakes, Step::Released(released.into_iter())]);
    }

    /// Takes a set apart into what is different in it, unless its interest ended while the response was in flight.
    fn take_apart(&mut self, passed: SourcedUpdate, view: &mut Surroundings<'_>, now: Moment) -> Option<SourcedUpdate> {
        let SourcedUpdate { update, origin, received } = passed;
        if !view.facts().is_update_wanted(&update) && !matches!(update, Update::Expired { .. }) {
            return None;
        }
        let differences = match update {
            Update::FullSet { kind, resources, retain } => {
                view.prefetch_endpoints(&kind, &resources, now);
                // While removals or changes wait, or clients have claims, all resources are applied: what waits depends on what is sent
                // again.
                let all = self.order.is_any() || view.has_claims();
                Differences::of_set(kind, &resources, &retain, origin, &view.facts(), all)
            }
            Update::Absent { kind, class: Class::Named, key: glob, .. } if glob.is_glob() => {
                Differences::of_removed_collection(kind, glob, &view.facts())
            }
            update => return self.enter_order(SourcedUpdate { update, origin, received }, view, now),
        };
        self.under_way.push(Step::Differences(origin, received, differences));
        None
    }

    fn enter_order(
        &mut self,
        passed: SourcedUpdate,
        view: &mut Surroundings<'_>,
        now: Moment,
    ) -> Option<SourcedUpdate> {
        if let Update::Upsert { kind, class, key, .. } = &passed.update {
            view.found(kind, *class, key);
        }
        self.judge_order(passed, view, now)
    }

    fn judge_order(&mut self, passed: SourcedUpdate, view: &Surroundings<'_>, now: Moment) -> Option<SourcedUpdate> {
        let SourcedUpdate { update, origin, received } = passed;
        let update = self.order.judge(update, origin, &view.facts(), now)?;
        self.enter_tables(SourcedUpdate { update, origin, received })
    }

    /// Returns what is applied now: what no stage holds, or holds no longer.
    fn enter_tables(&mut self, passed: SourcedUpdate) -> Option<SourcedUpdate> {
        if !self.added.contains_key(&RowPosition::Tables) {
            return Some(passed);
        }
        let SourcedUpdate { update, origin, received } = passed;
        self.enter(RowPosition::Tables, UpdateUnit { origin, received, updates: vec![update] });
        None
    }

    /// Records that a resource in the tables was added, replaced or removed. The changes of routing that have waited for it follow it.
    pub(super) fn applied(&mut self, key: Key, old: Option<&Arc<Resource>>, facts: &StageFacts, now: Moment) {
        let ready = self.order.applied(key, old, facts, now);
        if !ready.is_empty() {
            self.under_way.push(Step::EnterTables(ready.into_iter()));
        }
    }

    /// Whether what was in the tables is needed to record a change of a resource.
    pub(super) fn follows(kind: &Type, facts: &StageFacts) -> bool {
        Order::follows(kind, facts)
    }

    /// A server has sent again what is in the tables: a removal of it does not wait any more.
    pub(super) fn cancel_removal(&mut self, key: &Key) {
        self.order.cancel_removal(key);
    }

    /// Whether a cluster in the tables takes these endpoints, or may.
    pub(super) fn may_take(&self, endpoints: &Name, facts: &StageFacts) -> bool {
        self.order.may_take(endpoints, facts)
    }

    /// Drops a change of a name that no session subscribes to any more.
    pub(super) fn drop_waiting(&mut self, key: &Key) {
        self.order.drop_waiting(key);
        self.after_outage.forget(key);
    }

    /// Lets go what stages have held for long enough.
    pub(super) fn on_time(&mut self) {
        let released = [
            Step::ReleaseAdded(RowPosition::Brakes),
            Step::ReleaseBraked,
            Step::ReleaseAfterOutage,
            Step::ReleaseAdded(RowPosition::Order),
            Step::ReleaseOrdered,
            Step::ReleaseAdded(RowPosition::Tables),
        ];
        self.under_way.extend(released.into_iter().rev());
    }

    /// Returns when [`Self::on_time`] has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let brakes = &self.options.brakes;
        let early = earliest(self.brakes.next_deadline(brakes), self.after_outage.next_deadline(brakes));
        let held = earliest(self.order.next_deadline(), early);
        earliest(held, self.added.values().filter_map(|stage| stage.next_deadline()).min())
    }

    /// Ends what is held for an interest that has ended. Single names in the order are ended by [`Self::applied`].
    pub(super) fn forget(&mut self, kind: &Type, selector: &Selector) {
        let set = (kind.clone(), selector.clone());
        self.brakes.forget(&set);
        self.after_outage.forget_set(&set);
    }

    /// Puts a stage into the row, before those at a place.
    pub(super) fn add_stage(&mut self, at: RowPosition, stage: Box<dyn Stage>) {
        self.added.insert(at, stage);
    }

    /// Releases what an operator has seen. Returns how many removals that were.
    pub(super) fn release_brakes(&mut self, release: Release, now: Moment) -> Result<usize, NotReleased> {
        let (outcome, passed) = self.brakes.release(release, &self.options.brakes, now);
        self.follow_brakes(passed);
        outcome
    }

    /// Goes on with the brakes of another process. Names that are not present are left out: the tables are restored first.
    pub(super) fn restore_brakes(&mut self, state: &BrakeState, facts: &StageFacts, now: Moment) {
        let is_present = |(kind, of): &SetKey, name: &Name| facts.tables().resource(kind, class_of(of), name).is_some();
        self.brakes.restore(state, facts.types(), &self.options.brakes, is_present, now);
    }

    /// Returns what the stages hold.
    pub(super) fn holds<'a>(&'a self, facts: StageFacts<'a>) -> Holds<'a> {
        Holds::new(&self.brakes, &self.after_outage, &self.order, facts)
    }

    /// Returns what has happened to brakes since the last call.
    pub(super) fn take_brake_events(&mut self) -> Vec<BrakeEvent> {
        self.brakes.take_events()
    }

    /// Returns what another process needs to go on with the brakes. None if the same removals and changes are held as at the last call.
    pub(super) fn take_brake_state(&mut self, now: Moment) -> Option<BrakeState> {
        self.brakes.take_news().then(|| self.brakes.state(&self.options.brakes, now))
    }

    /// Records until when each server may still be reading its state after an outage.
    pub(super) fn note_recovering(&mut self, recovering: Recovering) {
        self.after_outage.note_recovering(recovering);
    }

    /// Records the authorities of `Sources::unsteady`. While an authority is unsteady, no wait in it runs out.
    pub(super) fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        self.order.note_unsteady(unsteady, now);
    }

    /// Returns the ordering rules that could not be kept since the last call.
    pub(super) fn take_losses(&mut self) -> OrderLosses {
        self.order.take_losses()
    }
}

/// Returns what a stage at a place may know, including what later stages hold.
fn later<'a>(
    view: &'a Surroundings<'_>,
    order: &'a Order,
    after_outage: &'a AfterOutage,
    at: RowPosition,
) -> StageFacts<'a> {
    let facts = view.facts().with_removed(order.removals()).with_changes(order.changes());
    if at == RowPosition::Brakes { facts.with_after_outage(after_outage.held()) } else { facts }
}

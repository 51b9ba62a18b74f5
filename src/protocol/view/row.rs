//! The way of what a server says: through the gate, the brakes and the order to the tables.
//!
//! Each stage lets on what passes, and keeps what it holds. What it releases later enters at the next one, never at the head: a released
//! removal is not braked again. The gate and the brakes judge all that one response says; before the order, sets are taken apart into their
//! differences, and each is applied before the next is judged.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::brake::Brakes;
use super::order::Order;
use super::stage::{Facts, Place, Unit};
use super::{Class, Completeness, Evidence, Origin, Retain, Selector, Update, View};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, Role, Type};

impl View {
    /// Lets a unit into the row, before the stages at a place.
    pub(super) fn enter(&mut self, at: Place, unit: Unit, now: Moment) {
        if let Some(mut stage) = self.added.remove(&at) {
            let passed = stage.judge(unit, self.facts(), now);
            self.added.insert(at, stage);
            return passed.into_iter().for_each(|unit| self.pass(at, unit, now));
        }
        self.pass(at, unit, now);
    }

    fn pass(&mut self, at: Place, unit: Unit, now: Moment) {
        match at {
            Place::Gate => {
                let updates = self.gate.pass(unit.updates);
                self.enter(Place::Brakes, Unit { updates, ..unit }, now);
            }
            Place::Brakes => {
                for (set, unit) in self.brakes.parts(unit, &self.facts()) {
                    let (brakes, facts) = self.brakes_and_facts();
                    let passed = brakes.judge(set, unit, &facts, now);
                    self.follow_brakes(passed, now);
                }
            }
            Place::Order => {
                let Unit { origin, received, updates } = unit;
                updates.into_iter().for_each(|update| self.take_apart(update, origin, received, now));
            }
            Place::Tables => {
                let Unit { origin, received, updates } = unit;
                updates.into_iter().for_each(|update| self.apply_one(update, origin, received, now));
            }
        }
    }

    /// Lets on what the brakes do, and then what follows from the tables as they are with it.
    pub(super) fn follow_brakes(&mut self, passed: Vec<Unit>, now: Moment) {
        passed.into_iter().for_each(|unit| self.enter(Place::Order, unit, now));
        let (brakes, facts) = self.brakes_and_facts();
        let more = brakes.settle(&facts, now);
        more.into_iter().for_each(|unit| self.enter(Place::Order, unit, now));
    }

    /// Takes a set apart into what is different in it, unless its interest ended while the response was in flight.
    fn take_apart(&mut self, update: Update, origin: Origin, received: Moment, now: Moment) {
        let is_wanted = match update.subject() {
            (kind, Some((Class::Named, key))) => self.interest.covers(kind, key),
            (kind, _) => self.interest.has_wildcard(kind),
        };
        if !is_wanted && !matches!(update, Update::Expired { .. }) {
            return;
        }
        match update {
            Update::FullSet { kind, resources, retain } => {
                let class = Class::Wildcard;
                let (changed, vanished) = self.differences(&kind, resources, &retain, origin, now);
                for resource in changed {
                    let (kind, key) = (kind.clone(), resource.name.clone());
                    self.enter_order(Update::Upsert { kind, class, key, resource }, origin, received, now);
                }
                let evidence = Evidence::Reported;
                for key in vanished {
                    let kind = kind.clone();
                    self.enter_order(Update::Absent { kind, class, key, evidence }, origin, received, now);
                }
                let (of, completeness) = (Selector::Wildcard, Completeness::Complete);
                self.enter_order(Update::Progress { kind, of, completeness }, origin, received, now);
            }
            Update::Absent { kind, class: Class::Named, key: glob, .. } if glob.is_glob() => {
                let (class, evidence) = (Class::Named, Evidence::Reported);
                let members = self.facts().collection(&kind, &glob).into_iter().flat_map(|of| of.members().cloned());
                for key in members.collect::<Vec<_>>().into_iter().chain([glob]) {
                    let kind = kind.clone();
                    self.enter_order(Update::Absent { kind, class, key, evidence }, origin, received, now);
                }
            }
            update => self.enter_order(update, origin, received, now),
        }
    }

    fn enter_order(&mut self, update: Update, origin: Origin, received: Moment, now: Moment) {
        if let Update::Upsert { kind, class, key, resource } = &update {
            self.sought.found(kind, *class, key);
            let leaks = *class == Class::Wildcard && self.limits.faults.has(Fault::StarAnswersNames);
            if leaks && self.interest.sessions_of(kind, key).next().is_some() {
                let (kind, class, key, resource) = (kind.clone(), Class::Named, key.clone(), resource.clone());
                self.enter_order(Update::Upsert { kind, class, key, resource }, origin, received, now);
            }
        }
        let (order, facts) = self.order_and_facts();
        if let Some(update) = order.judge(update, origin, &facts, now) {
            self.enter_tables(update, origin, received, now);
        }
    }

    /// Applies what no stage holds, or holds no longer.
    pub(super) fn enter_tables(&mut self, update: Update, origin: Origin, received: Moment, now: Moment) {
        if self.added.contains_key(&Place::Tables) {
            return self.enter(Place::Tables, Unit { origin, received, updates: vec![update] }, now);
        }
        self.apply_one(update, origin, received, now);
    }

    /// Finds what a set that is sent again changes and removes. In a large set they are few, and only they are applied.
    fn differences(
        &mut self,
        kind: &Type,
        sent: Vec<Arc<Resource>>,
        retain: &Retain,
        origin: Origin,
        now: Moment,
    ) -> (Vec<Arc<Resource>>, Vec<Name>) {
        let referred = self.table.referred_by(kind).filter(|kind| kind.is(Role::Endpoints));
        if referred.is_some_and(|referred| self.interest.any_name(&referred)) {
            sent.iter().for_each(|resource| self.prefetch_endpoints(kind, resource, now));
        }
        let table = self.facts().table(kind, Class::Wildcard);
        let entry = |resource: &Resource| table.and_then(|table| table.get(&resource.name));
        let present =
            sent.iter().filter(|resource| entry(resource).is_some_and(|entry| entry.resource().is_some())).count();
        let vanished = match retain {
            Retain::These(names) if table.is_some_and(|table| table.present() != present) => {
                let here: BTreeSet<&Name> = sent.iter().map(|resource| &resource.name).chain(names).collect();
                let names = table.into_iter().flat_map(|table| table.present_names());
                names.filter(|name| !here.contains(name)).cloned().collect()
            }
            Retain::These(_) | Retain::Everything => Vec::new(),
        };
        // While removals or changes wait, or clients have claims, all resources are applied: what waits depends on what is sent
        // again.
        if self.order.is_any() || self.sought.is_any() || self.limits.faults.has(Fault::StarAnswersNames) {
            return (sent, vanished);
        }
        let is_unchanged =
            |resource: &Arc<Resource>| entry(resource).is_some_and(|entry| entry.is_unchanged_by(resource, origin));
        (sent.iter().filter(|resource| !is_unchanged(resource)).cloned().collect(), vanished)
    }

    /// Lets go what stages have held for long enough.
    pub(super) fn release_overdue(&mut self, now: Moment) {
        self.release_added(Place::Gate, now);
        self.release_added(Place::Brakes, now);
        let (brakes, facts) = self.brakes_and_facts();
        let passed = brakes.on_time(&facts, now);
        self.follow_brakes(passed, now);
        self.release_added(Place::Order, now);
        if self.order.is_due(now) {
            for (key, change) in self.order.take_overdue(now) {
                self.enter_tables(change.update(key), change.origin, change.since, now);
                self.order.waited_for(&change);
            }
            self.order.note_released(now);
            let (order, facts) = self.order_and_facts();
            for (key, removal) in order.take_removals(&facts, now) {
                self.enter_tables(removal.update(key), removal.origin, removal.since, now);
            }
        }
        self.release_added(Place::Tables, now);
    }

    fn release_added(&mut self, at: Place, now: Moment) {
        let Some(mut stage) = self.added.remove(&at) else { return };
        let passed = stage.on_time(self.facts(), now);
        self.added.insert(at, stage);
        passed.into_iter().for_each(|unit| self.pass(at, unit, now));
    }

    /// Puts a stage into the row, before those at a place.
    #[cfg(feature = "faults")]
    pub fn add_stage(&mut self, at: Place, stage: Box<dyn super::Stage>) {
        self.added.insert(at, stage);
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        let Self { tables, interest, table, clusters, limits, order, .. } = self;
        Facts { tables, interest, types: table, clusters, limits, later: Some(order) }
    }

    pub(super) fn brakes_and_facts(&mut self) -> (&mut Brakes, Facts<'_>) {
        let Self { brakes, tables, interest, table, clusters, limits, order, .. } = self;
        (brakes, Facts { tables, interest, types: table, clusters, limits, later: Some(order) })
    }

    pub(super) fn order_and_facts(&mut self) -> (&mut Order, Facts<'_>) {
        let Self { order, tables, interest, table, clusters, limits, .. } = self;
        (order, Facts { tables, interest, types: table, clusters, limits, later: None })
    }
}

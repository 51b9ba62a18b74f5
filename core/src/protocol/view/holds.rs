//! What the stages of a view hold, as others ask for it: of all names, or of one.

use std::collections::BTreeMap;

use super::after_outage::AfterOutage;
use super::brake::{BrakeReport, BrakeState, Brakes};
use super::order::Order;
use super::resource_table::TableEntry;
use super::stage::{HoldTimes, StageFacts};
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::visits::visit;
use crate::protocol::wait::WaitList;
use crate::xds::{Name, Type};

/// The stages of a view as they are now.
#[derive(Debug, Clone, Copy)]
pub struct Holds<'a> {
    brakes: &'a Brakes,
    after_outage: &'a AfterOutage,
    order: &'a Order,
    facts: StageFacts<'a>,
}

/// What keeps the tables from following the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NameHolds {
    /// A client subscribes to it, or did until recently.
    pub(crate) is_wanted: bool,
    /// The server has removed it, and it stays because something refers to it.
    pub deferred_removal: Option<HoldTimes>,
    /// The server has changed it, and the change waits for these clusters.
    pub deferred_change: Option<(Vec<Name>, HoldTimes)>,
    /// The server has removed or changed it, and a brake holds that.
    pub braked: Option<HoldTimes>,
    /// The server has removed it or its hosts soon after an outage, and that is held.
    pub after_outage: Option<HoldTimes>,
}

impl NameHolds {
    /// Whether what clients are sent is not what the server has said last.
    pub fn is_any(&self) -> bool {
        let is_deferred = self.deferred_removal.is_some() || self.deferred_change.is_some();
        is_deferred || self.braked.is_some() || self.after_outage.is_some()
    }
}

impl<'a> Holds<'a> {
    pub(super) fn new(
        brakes: &'a Brakes,
        after_outage: &'a AfterOutage,
        order: &'a Order,
        facts: StageFacts<'a>,
    ) -> Self {
        Self { brakes, after_outage, order, facts }
    }

    /// Adds what is held back.
    pub fn add_waits(self, now: Moment, list: &mut WaitList) {
        let options = self.facts.options();
        self.order.add_waits(options.reference_hold, now, list);
        self.brakes.add_waits(&options.brakes, now, list);
        self.after_outage.add_waits(&options.brakes, now, list);
    }

    /// Returns the brakes that hold something, each with a limited number of names.
    pub fn brakes(self, names: usize) -> Vec<BrakeReport> {
        self.brakes.reports(&self.facts.options().brakes, names)
    }

    /// Returns a number that changes with what the brakes hold.
    pub fn brake_changes(self) -> u64 {
        self.brakes.changes()
    }

    /// Whether a brake holds anything.
    pub fn is_braked(self) -> bool {
        self.brakes.is_any()
    }

    /// Whether a brake holds anything, or what a server takes away after an outage is held.
    pub(crate) fn is_held(self) -> bool {
        self.brakes.is_any() || self.after_outage.is_any()
    }

    /// Returns what another process needs to go on with the brakes.
    pub fn brake_state(self, now: Moment) -> BrakeState {
        self.brakes.state(&self.facts.options().brakes, now)
    }

    /// Returns, by the server's place, until when at most the first words of each server after an outage are held.
    pub fn held_of_servers(self) -> BTreeMap<u16, Moment> {
        self.after_outage.held().ends_by_server(self.facts.options().brakes.after_outage)
    }

    /// Whether anything waits in the order. Only then it matters which authorities are unsteady (`View::note_unsteady`).
    pub fn awaits_routing(self) -> bool {
        self.order.is_any()
    }

    /// Whether a server has removed a resource that stays for now: because something refers to it, because a brake holds a removal of the
    /// server's present opening, or because the removal is held after an outage.
    fn is_removed(self, kind: &Type, class: Class, name: &Name) -> bool {
        let (removals, key) = (self.order.removals(), || (kind.clone(), class, name.clone()));
        if !removals.is_empty() && removals.has(&key()) || self.after_outage.held().is_removal(&key()) {
            return true;
        }
        let is_braked = |set: SetKey| self.brakes.is_removed_now(&set, name);
        self.brakes.is_any() && self.facts.set_of(kind, class, name).is_some_and(is_braked)
    }

    /// Returns the present resources of a type. A resource that upstream has removed, and that stays for a while or is held by a
    /// brake, counts as absent.
    pub fn here(self, kind: &'a Type, class: Class) -> impl Iterator<Item = (&'a Name, &'a TableEntry)> {
        let table = self.facts.tables().table(kind, class).into_iter();
        let all = table.flat_map(|table| table.present_names().filter_map(|name| Some((name, table.get(name)?))));
        all.filter(move |(name, _)| !self.is_removed(kind, class, name))
    }

    /// Returns what is present under one name, in the sense of [`Self::here`].
    pub(crate) fn entry_here(self, kind: &Type, class: Class, name: &Name) -> Option<&'a TableEntry> {
        visit();
        let entry = self.facts.tables().entry(kind, class, name).filter(|entry| entry.resource().is_some())?;
        (!self.is_removed(kind, class, name)).then_some(entry)
    }

    /// Returns the names of which a server has said something that the end of its stream cancels: names of a set, or one name.
    pub(crate) fn said_by(self, server: usize, kind: &'a Type, of: &'a Selector) -> impl Iterator<Item = &'a Name> {
        let removals = self.order.removals();
        let (set, one) = match of {
            Selector::Wildcard => (Some(removals.names_removed_by(server, kind, Class::Wildcard)), None),
            Selector::Name(name) => (None, Some(name)),
        };
        let is_meant =
            move |name: &&Name| removals.is_removed_by(server, &(kind.clone(), Class::Named, (*name).clone()));
        let removed = set.into_iter().flatten().chain(one.into_iter().filter(is_meant));
        removed.chain(self.after_outage.names_said_by(server, kind, of))
    }

    /// Returns the names of one type that a server has sent by name or as members of collections, in a form that is held after an outage.
    pub(crate) fn sent_by(self, server: usize, kind: &'a Type) -> impl Iterator<Item = &'a Name> {
        self.after_outage.names_sent_by(server, kind)
    }

    /// Returns the dangling clusters, each with since when.
    pub fn dangling(self) -> impl Iterator<Item = (&'a Name, Moment)> {
        self.order.dangling(self.facts)
    }

    /// Returns how many present resources refer to a name. None if that is not counted.
    pub fn references_to(self, kind: &Type, name: &Name) -> Option<usize> {
        let is_cluster = kind == self.facts.clusters();
        if is_cluster { self.order.references_to(name, &self.facts) } else { None }
    }

    /// Returns what is held back of a name, of either class.
    pub fn of_name(self, kind: &Type, name: &Name) -> NameHolds {
        let Self { brakes, after_outage, order, facts } = self;
        let (both, options) = ([Class::Wildcard, Class::Named], facts.options());
        let key = |class: Class| -> Key { (kind.clone(), class, name.clone()) };
        let braked = |set: SetKey| brakes.times_of(&set, name, &options.brakes);
        NameHolds {
            is_wanted: facts.is_name_wanted(kind, name),
            deferred_removal: both
                .into_iter()
                .find_map(|class| order.removal_times(&key(class), options.reference_hold)),
            deferred_change: both.into_iter().find_map(|class| order.awaited_by(&key(class))),
            after_outage: both.into_iter().find_map(|class| after_outage.times_of(&key(class), &options.brakes)),
            braked: both.into_iter().find_map(|class| facts.set_of(kind, class, name).and_then(braked)),
        }
    }
}

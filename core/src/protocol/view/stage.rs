//! What the stages of a view judge, where they stand, and what they may know of their view: see `view/row.rs`.

use std::sync::Arc;

use super::after_outage::held_words::HeldWords;
use super::claims::OpenClaims;
use super::collections::Collection;
use super::interest::Interest;
use super::order::removals::DeferredRemovals;
use super::order::waiting::WaitingChanges;
use super::resource_table::TableEntry;
use super::tables::Tables;
use super::update::{Origin, Update};
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::view::options::ViewOptions;
use crate::xds::{Name, Resource, Type, TypeTable};

/// Updates that a server sent together, or the part of them that a stage has passed on.
#[derive(Debug)]
pub struct UpdateUnit {
    /// Who said it.
    pub origin: Origin,
    /// When it was received.
    pub received: Moment,
    /// What was said, in this order.
    pub updates: Vec<Update>,
}

/// Where something enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowPosition {
    /// The head: everything that a server says, and the end of a TTL.
    Brakes,
    /// Removals that have waited in the brakes, and what the hold after an outage passes on or releases.
    Order,
    /// What is applied now.
    Tables,
}

/// A further stage in the row, beside those that are always there.
pub trait Stage: std::fmt::Debug + Send {
    /// Judges a unit, and returns what goes on.
    fn judge(&mut self, unit: UpdateUnit, facts: StageFacts<'_>, now: Moment) -> Vec<UpdateUnit>;

    /// Returns what is no longer held.
    fn on_time(&mut self, facts: StageFacts<'_>, now: Moment) -> Vec<UpdateUnit>;

    /// Returns when [`Self::on_time`] has something to return.
    fn next_deadline(&self) -> Option<Moment>;
}

/// Since when something is held, and until when at the latest, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldTimes {
    /// Since when it is held.
    pub since: Option<Moment>,
    /// Until when it is held at the latest.
    pub until: Option<Moment>,
}

/// What a view was set up with.
#[derive(Debug)]
pub(super) struct Setup {
    types: Arc<TypeTable>,
    clusters: Type,
    options: Arc<ViewOptions>,
}

impl Setup {
    pub(super) fn new(types: Arc<TypeTable>, options: Arc<ViewOptions>) -> Self {
        Self { clusters: types.clusters(), types, options }
    }

    pub(super) fn types(&self) -> &TypeTable {
        &self.types
    }

    pub(super) fn options(&self) -> &ViewOptions {
        &self.options
    }
}

/// What a stage may know of its view when it judges: the tables and the interest, and what later stages hold. It changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct StageFacts<'a> {
    tables: &'a Tables,
    interest: &'a Interest,
    setup: &'a Setup,
    /// For earlier stages: what upstream has removed and the order keeps, the changes that wait in the order, and what is held of the first
    /// words after an outage.
    removed: Option<&'a DeferredRemovals>,
    changes: Option<&'a WaitingChanges>,
    after_outage: Option<&'a HeldWords>,
}

impl<'a> StageFacts<'a> {
    pub(super) fn new(tables: &'a Tables, interest: &'a Interest, setup: &'a Setup) -> Self {
        Self { tables, interest, setup, removed: None, changes: None, after_outage: None }
    }

    /// Adds the removals that wait in the order, for stages before it.
    pub(super) fn with_removed(self, removed: &'a DeferredRemovals) -> Self {
        Self { removed: Some(removed), ..self }
    }

    /// Adds the changes that wait in the order, for stages before it.
    pub(super) fn with_changes(self, changes: &'a WaitingChanges) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// Adds the words that are held after an outage, for stages before that hold.
    pub(super) fn with_after_outage(self, after_outage: &'a HeldWords) -> Self {
        Self { after_outage: Some(after_outage), ..self }
    }

    pub(super) fn options(&self) -> &'a ViewOptions {
        &self.setup.options
    }

    pub(super) fn types(&self) -> &'a TypeTable {
        &self.setup.types
    }

    /// Returns the type of clusters.
    pub(super) fn clusters(&self) -> &'a Type {
        &self.setup.clusters
    }

    pub(super) fn tables(&self) -> &'a Tables {
        self.tables
    }

    /// Whether a session subscribes to a name by itself.
    pub(super) fn has_name(&self, kind: &Type, name: &Name) -> bool {
        self.interest.has_name(kind, name)
    }

    /// Whether a session subscribes to a set, or did until recently.
    pub(super) fn is_set_wanted(&self, (kind, of): &SetKey) -> bool {
        match of {
            Selector::Wildcard => self.interest.has_wildcard(kind),
            Selector::Name(glob) => self.interest.covers(kind, glob),
        }
    }

    /// Whether a session subscribes to what an update concerns, or did until recently.
    pub(super) fn is_update_wanted(&self, update: &Update) -> bool {
        match update.subject() {
            (kind, Some((Class::Named, key))) => self.interest.covers(kind, key),
            (kind, _) => self.interest.has_wildcard(kind),
        }
    }

    /// Whether a name is subscribed to by itself, as a member of a set, or through `*`.
    pub(super) fn is_name_wanted(&self, kind: &Type, name: &Name) -> bool {
        self.interest.has_wildcard(kind)
            || self.interest.has_name(kind, name)
            || self.interest.collection(kind, name).is_some()
    }

    /// Returns the set that a name belongs to, if any.
    pub(super) fn set_of(&self, kind: &Type, class: Class, name: &Name) -> Option<SetKey> {
        let of = match class {
            Class::Wildcard => Selector::Wildcard,
            Class::Named => Selector::Name(self.interest.collection(kind, name)?),
        };
        Some((kind.clone(), of))
    }

    /// Returns the subscribed set that a name would be in, of either class, if there is one.
    pub(super) fn set_around(&self, kind: &Type, name: &Name) -> Option<Selector> {
        match self.interest.collection(kind, name) {
            Some(glob) => Some(Selector::Name(glob)),
            None => self.interest.has_wildcard(kind).then_some(Selector::Wildcard),
        }
    }

    /// Returns how many resources a set has. Those without room count. Those whose removal waits in a later stage do not.
    pub(super) fn size_of(&self, (kind, of): &SetKey) -> usize {
        let class = class_of(of);
        let present = match of {
            Selector::Wildcard => self.tables.table(kind, class).map_or(0, |table| table.journal().present()),
            Selector::Name(glob) => self.tables.collection(kind, glob).map_or(0, Collection::len),
        };
        let held = self.after_outage.into_iter().flat_map(|held| held.removed_names(kind, class));
        let removed = self.removed.into_iter().flat_map(|removed| removed.names(kind, class));
        let removed = removed.chain(held).filter(|name| match of {
            Selector::Wildcard => true,
            Selector::Name(glob) => name.collection().as_ref() == Some(glob),
        });
        (present + self.tables.without_room().count(kind, of)).saturating_sub(removed.count())
    }

    /// Whether a name is one of those that [`Self::size_of`] counts.
    pub(super) fn is_counted(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.is_intended(kind, class, name) || self.tables.without_room().has(kind, class, name)
    }

    /// Whether upstream has it, as far as is known: it is present, and not only because its removal waits for others.
    pub(super) fn is_intended(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.tables.resource(kind, class, name).is_some() && !self.is_let_stay(kind, class, name)
    }

    /// Whether a server has removed it, and a later stage than the one that judges keeps it.
    pub(super) fn is_let_stay(&self, kind: &Type, class: Class, name: &Name) -> bool {
        let key = || (kind.clone(), class, name.clone());
        self.removed.is_some_and(|removed| removed.has(&key()))
            || self.after_outage.is_some_and(|held| held.is_removal(&key()))
    }

    /// Whether a later stage than the one that judges holds a removal or a change of a name.
    pub(super) fn is_held_later(&self, kind: &Type, class: Class, name: &Name) -> bool {
        let key = (kind.clone(), class, name.clone());
        self.removed.is_some_and(|removed| removed.has(&key))
            || self.changes.is_some_and(|changes| changes.has(&key))
            || self.after_outage.is_some_and(|held| held.get(&key).is_some())
    }

    /// Returns the names of one type and class that a server has sent and that wait in a later stage than the one that judges.
    pub(super) fn waiting_names(&self, kind: &Type, class: Class) -> impl Iterator<Item = &'a Name> {
        self.after_outage.into_iter().flat_map(move |held| held.waiting_names(kind, class))
    }

    /// Whether a server can remove a name: it is not kept for a server above this one.
    pub(super) fn may_remove(&self, (kind, class, name): &Key, origin: Origin) -> bool {
        let is_higher = |entry: &TableEntry| origin.holds_missing && entry.origin.rank < origin.rank;
        !self.tables.entry(kind, *class, name).is_some_and(is_higher)
    }
}

/// What a row uses of its view: what the stages judge by, and what has to know of incoming updates.
pub(super) struct Surroundings<'a> {
    tables: &'a Tables,
    interest: &'a mut Interest,
    sought: &'a mut OpenClaims,
    setup: &'a Setup,
}

impl<'a> Surroundings<'a> {
    pub(super) fn new(
        tables: &'a Tables,
        interest: &'a mut Interest,
        sought: &'a mut OpenClaims,
        setup: &'a Setup,
    ) -> Self {
        Self { tables, interest, sought, setup }
    }

    pub(super) fn facts(&self) -> StageFacts<'_> {
        StageFacts::new(self.tables, self.interest, self.setup)
    }

    pub(super) fn found(&mut self, kind: &Type, class: Class, name: &Name) {
        self.sought.found(kind, class, name);
    }

    pub(super) fn has_claims(&self) -> bool {
        self.sought.is_any()
    }

    /// Requests the endpoints of the clusters of a set early: before the clients that are sent the clusters request them.
    pub(super) fn prefetch_endpoints(&mut self, kind: &Type, sent: &[Arc<Resource>], now: Moment) {
        self.interest.prefetch_endpoints(kind, sent, self.setup.types(), now);
    }
}

/// Returns the class of the members of a set.
pub(super) fn class_of(of: &Selector) -> Class {
    match of {
        Selector::Wildcard => Class::Wildcard,
        Selector::Name(_) => Class::Named,
    }
}

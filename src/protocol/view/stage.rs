//! What the stages of a view judge, where they stand, and what they may know of their view: see `view/row.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collections::Collection;
use super::interest::Interest;
use super::keys::{Class, Key, Selector, SetKey};
use super::resource_table::{Entry, ResourceTable};
use super::update::{Completeness, Origin, Update};
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, Type, TypeTable};

/// What a server said at once, or what a stage lets on of that.
#[derive(Debug)]
pub struct Unit {
    /// Who said it.
    pub origin: Origin,
    /// When it was received.
    pub received: Moment,
    /// What was said, in this order.
    pub updates: Vec<Update>,
}

/// Where something enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The head: everything that a server says, and the end of a TTL.
    Gate,
    /// What the gate lets on.
    Brakes,
    /// What the brakes let on.
    Order,
    /// What is applied now.
    Tables,
}

/// A stage that stands in the row beside those that are always there.
pub trait Stage: std::fmt::Debug + Send {
    /// Judges a unit, and returns what goes on.
    fn judge(&mut self, unit: Unit, facts: Facts<'_>, now: Moment) -> Vec<Unit>;

    /// Returns what is no longer held.
    fn on_time(&mut self, facts: Facts<'_>, now: Moment) -> Vec<Unit>;

    /// Returns when [`Self::on_time`] has something to return.
    fn next_deadline(&self) -> Option<Moment>;
}

/// A stage that lets resources stay for a while that upstream has removed.
pub(super) trait KeepsRemoved: std::fmt::Debug {
    fn is_doomed(&self, key: &Key) -> bool;

    /// Returns what stays so of one type and class.
    fn doomed(&self, kind: &Type, class: Class) -> Box<dyn Iterator<Item = &Name> + '_>;
}

/// What a stage may know of its view when it judges: the tables and the interest, and what a later stage has removed. It changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub(super) tables: &'a BTreeMap<(Type, Class), ResourceTable>,
    pub(super) interest: &'a Interest,
    pub(super) types: &'a TypeTable,
    pub(super) clusters: &'a Type,
    pub(super) limits: &'a Limits,
    /// The stage after the one that judges, if it keeps what was removed.
    pub(super) later: Option<&'a dyn KeepsRemoved>,
}

impl<'a> Facts<'a> {
    pub(super) fn table(&self, kind: &Type, class: Class) -> Option<&'a ResourceTable> {
        self.tables.get(&(kind.clone(), class))
    }

    /// Returns what is known of a name, if anything is.
    pub(super) fn entry(&self, kind: &Type, class: Class, name: &Name) -> Option<&'a Entry> {
        self.table(kind, class)?.get(name)
    }

    pub(super) fn resource(&self, kind: &Type, class: Class, name: &Name) -> Option<&'a Arc<Resource>> {
        self.entry(kind, class, name)?.resource()
    }

    pub(super) fn collection(&self, kind: &Type, glob: &Name) -> Option<&'a Collection> {
        self.table(kind, Class::Named)?.collection(glob)
    }

    /// Returns the completeness of a set.
    pub(super) fn completeness_of(&self, kind: &Type, of: &Selector) -> Completeness {
        let completeness = match of {
            Selector::Wildcard => self.table(kind, Class::Wildcard).map(|table| table.completeness),
            Selector::Name(glob) => self.table(kind, Class::Named).and_then(|table| table.completeness_of(glob)),
        };
        completeness.unwrap_or_default()
    }

    /// Returns the set that a name belongs to, if it is one of a set.
    pub(super) fn set_of(&self, kind: &Type, class: Class, name: &Name) -> Option<SetKey> {
        let of = match class {
            Class::Wildcard => Selector::Wildcard,
            Class::Named => Selector::Name(self.interest.collection(kind, name)?),
        };
        Some((kind.clone(), of))
    }

    /// Returns how many resources a set has, but for those that go once nothing refers to them.
    pub(super) fn size_of(&self, (kind, of): &SetKey) -> usize {
        let class = class_of(of);
        let present = match of {
            Selector::Wildcard => self.table(kind, class).map_or(0, ResourceTable::present),
            Selector::Name(glob) => self.collection(kind, glob).map_or(0, Collection::len),
        };
        let doomed = self.later.into_iter().flat_map(|later| later.doomed(kind, class)).filter(|name| match of {
            Selector::Wildcard => true,
            Selector::Name(glob) => name.collection().as_ref() == Some(glob),
        });
        present.saturating_sub(doomed.count())
    }

    /// Whether upstream has it, as far as is known: it is present, and not only because a removal waits for others.
    pub(super) fn is_intended(&self, kind: &Type, class: Class, name: &Name) -> bool {
        let is_doomed = |later: &dyn KeepsRemoved| later.is_doomed(&(kind.clone(), class, name.clone()));
        self.resource(kind, class, name).is_some() && !self.later.is_some_and(is_doomed)
    }

    /// Whether a server can remove a name: it is not kept for a server above this one.
    pub(super) fn may_remove(&self, (kind, class, name): &Key, origin: Origin) -> bool {
        let is_higher = |entry: &Entry| origin.holds_missing && entry.origin.rank < origin.rank;
        !self.entry(kind, *class, name).is_some_and(is_higher)
    }
}

/// Returns the class of the members of a set.
pub(super) fn class_of(of: &Selector) -> Class {
    match of {
        Selector::Wildcard => Class::Wildcard,
        Selector::Name(_) => Class::Named,
    }
}

//! The cached resources of a view: a table for each type and class.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collections::Collection;
use super::interest::InterestChange;
use super::resource_table::{Presence, ResourceTable, TableEntry};
use super::update::{Completeness, Origin};
use super::without_room::WithoutRoom;
use crate::protocol::keys::{Class, Key, Revision, Selector};
use crate::protocol::moment::Moment;
use crate::xds::{Authority, Name, Resource, Type};

/// The tables of a view.
#[derive(Debug, Default)]
pub struct Tables {
    of: BTreeMap<(Type, Class), ResourceTable>,
    /// When a wildcard set of any type was last forgotten. Kept once for all types, since clients can make up any number of
    /// types.
    forgotten: Revision,
    /// Names that are in no table, because there was no room for their resources.
    without_room: WithoutRoom,
}

/// What a view keeps, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptByView {
    /// Entries of present resources.
    pub resources: usize,
    /// Subscriptions that linger.
    pub lingering: usize,
    /// Bytes of what is remembered of removed ones.
    pub removal_bytes: usize,
    /// Names for whose resources there was no room.
    pub without_room: usize,
}

impl Tables {
    /// Returns the resources of a type and class, if there is a table of them.
    pub(super) fn table(&self, kind: &Type, class: Class) -> Option<&ResourceTable> {
        self.of.get(&(kind.clone(), class))
    }

    /// Returns the names for whose resources there was no room.
    pub(super) fn without_room(&self) -> &WithoutRoom {
        &self.without_room
    }

    pub(super) fn without_room_mut(&mut self) -> &mut WithoutRoom {
        &mut self.without_room
    }

    /// Returns what is known of a name, if anything is.
    pub fn entry(&self, kind: &Type, class: Class, name: &Name) -> Option<&TableEntry> {
        self.table(kind, class)?.get(name)
    }

    /// Returns what is present of a type and class.
    pub(crate) fn present(&self, kind: &Type, class: Class) -> impl Iterator<Item = &Arc<Resource>> {
        self.table(kind, class).into_iter().flat_map(ResourceTable::entries).filter_map(|(_, entry)| entry.resource())
    }

    /// Returns what is present under a name.
    pub(super) fn resource(&self, kind: &Type, class: Class, name: &Name) -> Option<&Arc<Resource>> {
        self.entry(kind, class, name)?.resource()
    }

    /// Whether the tables may have anything for a subscription; for a name, whether it is present.
    pub(super) fn has_any(&self, of: &InterestChange) -> bool {
        match &of.selector {
            Selector::Wildcard => true,
            Selector::Name(name) => name.is_glob() || self.resource(&of.kind, Class::Named, name).is_some(),
        }
    }

    /// Returns a collection that is followed.
    pub(super) fn collection(&self, kind: &Type, glob: &Name) -> Option<&Collection> {
        self.table(kind, Class::Named)?.collections().get(glob)
    }

    /// Returns the members of a collection that is followed.
    pub(crate) fn members(&self, kind: &Type, glob: &Name) -> impl Iterator<Item = &Name> {
        self.collection(kind, glob).into_iter().flat_map(Collection::members)
    }

    /// Returns the completeness of a set.
    pub fn completeness_of(&self, kind: &Type, of: &Selector) -> Completeness {
        let completeness = match of {
            Selector::Wildcard => self.table(kind, Class::Wildcard).map(|table| table.coverage().completeness()),
            Selector::Name(glob) => {
                self.table(kind, Class::Named).and_then(|table| table.collections().completeness_of(glob))
            }
        };
        completeness.unwrap_or_default()
    }

    /// Returns whether a name is known to be absent.
    pub(crate) fn is_gone(&self, kind: &Type, name: &Name) -> bool {
        self.entry(kind, Class::Named, name).is_some_and(|entry| matches!(entry.presence, Presence::Absent(_)))
    }

    /// Returns the members of a cached wildcard set.
    pub fn wildcard_names(&self, kind: &Type) -> impl Iterator<Item = &Name> {
        self.table(kind, Class::Wildcard).into_iter().flat_map(ResourceTable::present_names)
    }

    /// Returns the members of a collection that are known to be absent.
    pub(super) fn absent_names_under<'a>(&'a self, kind: &Type, glob: &'a Name) -> impl Iterator<Item = &'a Name> {
        let removals = self.table(kind, Class::Named).into_iter().flat_map(|table| table.removals(Revision::ZERO));
        removals.map(|(name, _)| name).filter(move |name| name.collection().as_ref() == Some(glob))
    }

    /// Returns how many resources of a type are cached, from wildcard or named subscriptions.
    pub fn held(&self, kind: &Type, wildcard: bool) -> usize {
        let class = if wildcard { Class::Wildcard } else { Class::Named };
        self.table(kind, class).map_or(0, |table| table.journal().present())
    }

    /// Returns how many names of a type have a named entry, including absent ones.
    pub fn known_names(&self, kind: &Type) -> usize {
        self.table(kind, Class::Named).map_or(0, ResourceTable::len)
    }

    /// Returns how many resources are cached of each type and class, and the length of their bodies.
    pub fn sizes(&self) -> impl Iterator<Item = (&Type, usize, usize)> {
        self.of.iter().map(|((kind, _), table)| (kind, table.journal().present(), table.sums().bytes()))
    }

    /// Returns how much they keep besides bodies.
    pub(super) fn kept(&self) -> KeptByView {
        let resources = self.all().map(|(_, table)| table.journal().present()).sum();
        let without_room = self.without_room.len();
        KeptByView { resources, removal_bytes: self.removal_bytes(), without_room, ..KeptByView::default() }
    }

    /// Returns what the remembered removals of sets take, without bodies.
    pub fn removal_bytes(&self) -> usize {
        let sets = self.of.iter().filter(|((_, class), _)| *class == Class::Wildcard);
        sets.map(|(_, table)| table.journal().removal_bytes()).sum()
    }

    /// Returns how many cached resources came from each server, by its place in the plan.
    pub fn cached_by_server(&self) -> BTreeMap<u16, usize> {
        let mut sum = BTreeMap::new();
        for (server, count) in self.of.values().flat_map(|table| table.sums().by_server()) {
            *sum.entry(*server).or_default() += count;
        }
        sum
    }

    /// Returns how many of the present resources were loaded from disk, and not confirmed by a server since.
    pub fn loaded_from_disk(&self) -> usize {
        self.of.values().map(|table| table.sums().loaded_from_disk()).sum()
    }

    /// Returns the names of an authority that a server gave to an earlier process or configuration, and that no server has confirmed since. If
    /// that server is no longer configured, its names are returned for each server.
    pub(crate) fn unconfirmed_from_disk(
        &self,
        server: usize,
        authority: &Authority,
    ) -> impl Iterator<Item = (&Type, Class, &Name)> {
        let tables = self.of.iter().filter(|(_, table)| table.sums().loaded_from_disk() > 0);
        let names = tables.flat_map(|((kind, class), table)| {
            let restored = table.entries().filter(|(_, entry)| entry.resource().is_some() && entry.origin.from_disk);
            restored.map(move |(name, entry)| (kind, *class, name, usize::from(entry.origin.server)))
        });
        let of_authority = move |class, name: &Name| match class {
            Class::Wildcard => *authority == Authority::TopLevel,
            Class::Named => Authority::of(name) == *authority,
        };
        names
            .filter(move |(_, class, name, from)| {
                (*from == server || *from == usize::from(Origin::GONE.server)) && of_authority(*class, name)
            })
            .map(|(kind, class, name, _)| (kind, class, name))
    }

    /// Returns what has expired.
    pub(super) fn expired(&self, now: Moment) -> Vec<Key> {
        let mut expired = Vec::new();
        for ((kind, class), table) in &self.of {
            expired.extend(table.expirations().expired(now).map(|name| (kind.clone(), *class, name.clone())));
        }
        expired
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&(Type, Class), &ResourceTable)> {
        self.of.iter()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (Class, &mut ResourceTable)> {
        self.of.iter_mut().map(|((_, class), table)| (*class, table))
    }

    pub(super) fn table_mut(&mut self, kind: &Type, class: Class) -> Option<&mut ResourceTable> {
        self.of.get_mut(&(kind.clone(), class))
    }

    /// Returns the table of a type and class. If there was none, it is made at a revision.
    pub(super) fn table_made_at(&mut self, made: Revision, kind: &Type, class: Class) -> &mut ResourceTable {
        let horizon = match class {
            Class::Wildcard => self.forgotten,
            Class::Named => Revision::ZERO,
        };
        self.of.entry((kind.clone(), class)).or_insert_with(|| ResourceTable::empty_at(made, horizon))
    }

    pub(super) fn remove(&mut self, kind: &Type, class: Class) -> Option<ResourceTable> {
        self.of.remove(&(kind.clone(), class))
    }

    /// A session that reads a `*` table now, or just did, would miss its removals from here on. The horizon makes it notice.
    pub(super) fn note_forgotten_set(&mut self, at: Revision) {
        self.forgotten = at;
    }

    /// Returns when a wildcard set of any type was last forgotten.
    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }
}

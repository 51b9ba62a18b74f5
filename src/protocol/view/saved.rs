//! What a view had in an earlier process, put back. It is served, and proves nothing: clients that hold something else wait until a server
//! has spoken (`protocol/session/client_snapshot.rs`), and each server is asked what became of what it gave.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Class, Completeness, Entry, Origin, ResourceTable, Selector, Snapshot, View};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::xds::{Authority, Name, Resource, SetVersion, Type};

/// The present resources of one type and class, as a view had them at one revision.
#[derive(Debug, Clone)]
pub struct SavedSet {
    /// The type.
    pub kind: Type,
    /// The class. A set of `*` is saved only if it was known to be settled.
    pub class: Class,
    /// The collections that were settled.
    pub settled: Vec<Name>,
    /// Versions that were given out for the set, of bodies and of everything, the last one last.
    pub past: Vec<(SetVersion, SetVersion)>,
    /// A resource had expired, and no server had said whether it exists.
    pub has_expired: bool,
    /// What was present.
    pub resources: Vec<SavedResource>,
}

/// A resource, the name that it was requested under, and the server that gave it.
#[derive(Debug, Clone)]
pub struct SavedResource {
    /// The requested name: its own, or an alias.
    pub key: Name,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The server's place in the plan.
    pub server: u16,
    /// The server's rank in the list of the authority.
    pub rank: u8,
}

impl ResourceTable {
    /// Whether the present resources may be given to clients of a later process: a set that was never settled may be a part of one, and one
    /// with resources that are not to be cached would lack those.
    pub(crate) fn may_be_saved(&self, class: Class) -> bool {
        class == Class::Named || self.completeness >= Completeness::Settled && self.uncacheable == 0
    }

    /// Returns the collections whose members are all known.
    pub(crate) fn settled_collections(&self) -> impl Iterator<Item = &Name> {
        self.collections.settled()
    }
}

impl Entry {
    /// Returns the resource, if clients of a later process may be given it.
    pub(crate) fn to_save(&self) -> Option<&Arc<Resource>> {
        self.resource().filter(|resource| !resource.do_not_cache())
    }
}

impl Snapshot {
    /// Returns everything that may be put back into a later view, for callers that save all of it at once. A resource that expires has what
    /// is left of its time.
    pub fn to_save(&self, now: Moment) -> Vec<SavedSet> {
        let tables = self.tables().filter(|(_, class, table)| table.may_be_saved(*class));
        let saved = |(key, entry): (&Name, &Entry)| {
            let Origin { server, rank, .. } = entry.origin;
            let resource = entry.to_save()?;
            let resource = match entry.expires {
                Some(at) => Arc::new(resource.with_ttl(Some(at - now))),
                None => resource.clone(),
            };
            Some(SavedResource { key: key.clone(), resource, server, rank })
        };
        let set = |(kind, class, table): (&Type, Class, &ResourceTable)| SavedSet {
            kind: kind.clone(),
            class,
            settled: table.settled_collections().cloned().collect(),
            past: table.past_versions().to_vec(),
            has_expired: table.has_expired,
            resources: table.entries().filter_map(saved).collect(),
        };
        tables.map(set).collect()
    }
}

impl View {
    /// Puts the sets of an earlier process into a new view, and publishes them. All of it is requested as soon as there is a server, and what
    /// no session subscribes to until `until` is forgotten.
    pub fn restore(&mut self, sets: Vec<SavedSet>, until: Moment, now: Moment) {
        for set in &sets {
            self.expect_restored(set, until);
        }
        let known = match self.options.faults.has(Fault::DiskIsComplete) {
            true => Completeness::Complete,
            false => Completeness::Settled,
        };
        for SavedSet { kind, class, settled, past, has_expired, resources } in sets {
            for SavedResource { key, resource, server, rank } in resources {
                self.origin = Origin { server, rank, from_disk: true, ..Origin::default() };
                self.set_resource(&kind, class, key, resource, now);
            }
            match class {
                Class::Wildcard => self.update_completeness(&kind, &Selector::Wildcard, |_| known),
                Class::Named => {}
            }
            for glob in settled {
                self.update_completeness(&kind, &Selector::Name(glob), |_| known);
            }
            let table = self.resources(&kind, class);
            table.restore_past_versions(past);
            table.has_expired = has_expired;
        }
        self.origin = Origin::default();
        self.publish();
    }

    fn expect_restored(&mut self, set: &SavedSet, until: Moment) {
        let kind = &set.kind;
        match set.class {
            Class::Wildcard => self.interest.expect(kind, &Selector::Wildcard, until),
            Class::Named => {
                let globs: BTreeSet<&Name> = set.settled.iter().collect();
                for glob in &globs {
                    self.interest.expect(kind, &Selector::Name((*glob).clone()), until);
                    self.resources(kind, Class::Named).collect(glob);
                }
                let is_member = |name: &Name| name.collection().is_some_and(|glob| globs.contains(&glob));
                let alone = set.resources.iter().map(|saved| &saved.key).filter(|name| !is_member(name));
                alone.for_each(|name| self.interest.expect(kind, &Selector::Name(name.clone()), until));
            }
        }
    }

    /// Returns how many of the present resources were loaded from disk, and not confirmed by a server since.
    pub fn loaded_from_disk(&self) -> usize {
        self.tables.values().map(|table| table.loaded_from_disk()).sum()
    }

    /// Returns the names of an authority that a server gave to an earlier process or configuration, and that no server has confirmed since. What
    /// a server gave that is gone is every server's.
    pub(crate) fn unconfirmed_from_disk(
        &self,
        server: usize,
        authority: &Authority,
    ) -> impl Iterator<Item = (&Type, Class, &Name)> {
        let tables = self.tables.iter().filter(|(_, table)| table.loaded_from_disk() > 0);
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
}

//! What a view had in an earlier process or configuration, put back. It is served, and proves nothing: clients that hold something else wait until a server
//! has spoken (`protocol/session/client_snapshot.rs`), and each server is asked what became of what it gave.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::table_writer::TableWriter;
use super::{Class, Completeness, Origin, ResourceTable, Selector, Snapshot, TableEntry};
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, SetVersion, Type};

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

impl SavedSet {
    /// Returns everything that may be put back into a later view, for callers that save all of it at once.
    pub fn all_of(snapshot: &Snapshot, now: Moment) -> Vec<Self> {
        snapshot.tables().filter_map(|(kind, class, table)| Self::of(kind, class, table, now)).collect()
    }

    /// Returns the part of a table that may be put back into a later view, if there is any. A resource that expires keeps the rest of its
    /// time.
    fn of(kind: &Type, class: Class, table: &ResourceTable, now: Moment) -> Option<Self> {
        let saved = |(key, entry): (&Name, &TableEntry)| {
            let Origin { server, rank, .. } = entry.origin;
            let resource = entry.to_save()?;
            let resource = match entry.expires {
                Some(at) => Arc::new(resource.with_ttl(Some(at - now))),
                None => resource.clone(),
            };
            Some(SavedResource { key: key.clone(), resource, server, rank })
        };
        Self::can_be_of(class, table).then(|| Self {
            kind: kind.clone(),
            class,
            settled: table.collections().settled().cloned().collect(),
            past: table.sums().past_versions().to_vec(),
            has_expired: table.coverage().has_expired(),
            resources: table.entries().filter_map(saved).collect(),
        })
    }

    /// Whether the present resources may be given to clients of a later process: a set that was never settled may be a part of one, and one
    /// with resources that are not to be cached would lack those.
    pub fn can_be_of(class: Class, table: &ResourceTable) -> bool {
        let is_settled = || table.coverage().completeness() >= Completeness::Settled;
        class == Class::Named || is_settled() && table.sums().uncacheable() == 0
    }

    /// Requests what was saved, so that its interest is there before the resources are.
    pub(super) fn expect(&self, until: Moment, to: &mut TableWriter) {
        let kind = &self.kind;
        match self.class {
            Class::Wildcard => to.expect(kind, &Selector::Wildcard, until),
            Class::Named => {
                let globs: BTreeSet<&Name> = self.settled.iter().collect();
                for glob in &globs {
                    to.expect(kind, &Selector::Name((*glob).clone()), until);
                    to.collect(kind, glob);
                }
                let is_member = |name: &Name| name.collection().is_some_and(|glob| globs.contains(&glob));
                let alone = self.resources.iter().map(|saved| &saved.key).filter(|name| !is_member(name));
                alone.for_each(|name| to.expect(kind, &Selector::Name(name.clone()), until));
            }
        }
    }

    /// Puts back what was saved.
    pub(super) fn restore(self, known: Completeness, to: &mut TableWriter) {
        let Self { kind, class, settled, past, has_expired, resources } = self;
        for SavedResource { key, resource, server, rank } in resources {
            to.speak_for(Origin { server, rank, from_disk: true, ..Origin::default() });
            to.set_resource(&kind, class, key, resource);
        }
        if class == Class::Wildcard {
            to.update_completeness(&kind, &Selector::Wildcard, |_| known);
        }
        for glob in settled {
            to.update_completeness(&kind, &Selector::Name(glob), |_| known);
        }
        to.restore_past(&kind, class, past, has_expired);
    }
}

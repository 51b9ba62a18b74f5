//! A published state: every shelf of a unit at one commit mark, never changed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::resource_table::{Presence, ResourceTable};
use crate::xds::{Authority, Name, Resource, Role, Type};

/// A change's number. One sequence per unit, because the order across types matters (ORD-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    pub const ZERO: Self = Self(0);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What upstream said to `*` and what it said to a name may differ, so they are never kept together (XLAT-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Wildcard,
    Named,
}

/// What is wrong with one resource, as upstream reported it (TP3) or as the relay found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedError {
    pub code: i32,
    pub message: String,
}

impl NamedError {
    pub fn not_found() -> Self {
        Self { code: NOT_FOUND, message: "there is no such resource".into() }
    }

    pub fn not_allowed() -> Self {
        Self { code: PERMISSION_DENIED, message: "not for this client".into() }
    }

    /// Whether it speaks of the resource itself, and not of a passing trouble (UP-44).
    pub fn is_about_data(&self) -> bool {
        matches!(self.code, NOT_FOUND | PERMISSION_DENIED)
    }
}

const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;

/// What a state says of a name.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'a> {
    /// Nothing: not asked, not answered, or not complete yet. Never to be told as absent (I3).
    Unknown,
    Present(&'a Arc<Resource>),
    /// Upstream has said so; the last content may still be at hand.
    Absent(Option<&'a Arc<Resource>>),
}

impl Lookup<'_> {
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }
}

#[derive(Debug, Default)]
pub struct Snapshot {
    /// The number of the last change in it, which is the end of a response.
    pub revision: Revision,
    /// Authorities of which no server is in reach.
    pub down: Arc<BTreeSet<Authority>>,
    shelves: BTreeMap<(Type, Class), ResourceTable>,
    /// When the last `*` set was forgotten.
    forgotten: Revision,
}

impl Snapshot {
    pub(super) fn new(
        mark: Revision,
        down: Arc<BTreeSet<Authority>>,
        shelves: BTreeMap<(Type, Class), ResourceTable>,
        forgotten: Revision,
    ) -> Self {
        Self { revision: mark, down, shelves, forgotten }
    }

    /// A session of `*` that was told of removals only up to less than this has missed some. Where there is no set any more that
    /// may be all of them.
    pub fn horizon(&self, kind: &Type) -> Revision {
        self.resources(kind, Class::Wildcard).map_or(self.forgotten, ResourceTable::horizon)
    }

    pub fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// What was last reported wrong with a name, and since which change.
    pub fn error(&self, kind: &Type, name: &Name) -> Option<(Revision, &Arc<NamedError>)> {
        let entry = self.resources(kind, Class::Named)?.get(name)?;
        entry.error.as_ref().map(|(seq, error)| (*seq, error))
    }

    pub fn resources(&self, kind: &Type, class: Class) -> Option<&ResourceTable> {
        self.shelves.get(&(kind.clone(), class))
    }

    /// What is here of types that may lead to clusters.
    pub fn leading(&self) -> impl Iterator<Item = (&Type, &Arc<Resource>)> {
        let leading =
            self.shelves.iter().filter(|((kind, _), _)| matches!(kind.info().role, Role::Routing | Role::Clusters));
        leading.flat_map(|((kind, _), shelf)| {
            shelf.present_names().filter_map(move |name| Some((kind, shelf.get(name)?.resource()?)))
        })
    }

    /// The same, with absence as the error that it is to whoever has no other word for it.
    pub fn error_or_absence(&self, kind: &Type, name: &Name) -> Option<(Revision, Arc<NamedError>)> {
        let entry = self.resources(kind, Class::Named)?.get(name)?;
        match (&entry.error, &entry.presence) {
            (Some((seq, error)), _) => Some((*seq, error.clone())),
            (None, Presence::Absent(_)) => Some((entry.changed, Arc::new(NamedError::not_found()))),
            (None, _) => None,
        }
    }

    pub fn lookup(&self, kind: &Type, class: Class, name: &Name) -> Lookup<'_> {
        match self.resources(kind, class).and_then(|shelf| shelf.get(name)).map(|entry| &entry.presence) {
            None | Some(Presence::Unknown) => Lookup::Unknown,
            Some(Presence::Present(resource)) => Lookup::Present(resource),
            Some(Presence::Absent(last)) => Lookup::Absent(last.as_ref()),
        }
    }
}

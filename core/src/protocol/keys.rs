//! The keys of a view's tables and records: classes, selectors, names in tables, revisions and sessions.

use crate::xds::{Name, Type};

/// How a resource was requested. What the server sends for `*` and for a name may differ, so they are never kept together (XLAT-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// All resources of a type, `*`.
    Wildcard,
    /// Single names.
    Named,
}

/// What a subscription selects of a type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// The wildcard, `*`.
    Wildcard,
    /// A single name, or a collection by its glob.
    Name(Name),
}

/// Stands for all further unusable names of a set, beyond those that are remembered. No resource has this name.
pub(crate) const MORE: &str = "weir.more";

/// A name in a table.
pub(crate) type Key = (Type, Class, Name);

/// A `*` set or a collection.
pub(crate) type SetKey = (Type, Selector);

/// A change's number. One sequence per view, because the order across types matters (ORD-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first change.
    pub const ZERO: Self = Self(0);

    /// Returns the revision after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(crate) fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A session's number within the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

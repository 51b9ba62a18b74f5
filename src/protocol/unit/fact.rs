//! What sources say: the facts that a response comes down to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::interest::Wanted;
use super::state::{Class, NamedError};
use crate::xds::{Name, Resource, Type};

/// What a source says. One response is a list of these, applied together and ended by a commit mark.
#[derive(Debug, Clone)]
pub enum Fact {
    /// `key` is the name under which the resource is wanted: its own, or one of its aliases.
    Set { kind: Type, class: Class, key: Name, resource: Arc<Resource> },
    /// Evidence that a name has no resource (XLAT-15).
    Gone { kind: Type, class: Class, key: Name },
    /// The complete `*` set of a type: what is held and not among these is gone, but for what is kept.
    Whole { kind: Type, resources: Vec<Arc<Resource>>, kept: Kept },
    /// What is held under this name has so much time from now on, or no end (UP-40).
    Refresh { kind: Type, class: Class, key: Name, ttl: Option<Duration> },
    /// Something is wrong with a name that was asked for; what is held of it stays, and so does its absence.
    Error { kind: Type, key: Name, error: Arc<NamedError> },
    /// Part of a set, `*` or a glob, whose end is not marked on the wire (XLAT-12).
    Piece { kind: Type, of: Wanted, part: Part },
    /// The source went away in the middle of that.
    Interrupted { kind: Type, of: Wanted },
}

/// Which part of a set has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// There may be more behind it.
    More,
    /// Something of the set was refused, and what is missing of it is not gone by that (UP-25).
    Flawed,
    /// There is no more, which only a source can say that is no server.
    Last,
}

/// Who says something: a server by its place in the plan, and its rank in the list of the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source {
    pub server: u16,
    pub rank: u8,
    /// What a server of higher rank gave is not deleted because this one lacks it.
    pub holds_missing: bool,
}

/// What a complete set does not delete although it lacks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    These(BTreeSet<Name>),
    /// Deletions of this server are not carried out (XLAT-20).
    Everything,
}

impl Fact {
    /// The type it is about, and the single name if it is about one.
    pub fn subject(&self) -> (&Type, Option<(Class, &Name)>) {
        match self {
            Self::Set { kind, class, key, .. }
            | Self::Gone { kind, class, key }
            | Self::Refresh { kind, class, key, .. } => (kind, Some((*class, key))),
            Self::Error { kind, key, .. } => (kind, Some((Class::Named, key))),
            Self::Piece { kind, of, .. } | Self::Interrupted { kind, of } => match of {
                Wanted::Name(glob) => (kind, Some((Class::Named, glob))),
                Wanted::Star => (kind, None),
            },
            Self::Whole { kind, .. } => (kind, None),
        }
    }
}

impl Kept {
    pub fn nothing() -> Self {
        Self::These(BTreeSet::new())
    }
}

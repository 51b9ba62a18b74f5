//! What sources say: the facts that a response comes down to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::class::Class;
use super::interest::Selector;
use super::named_error::NamedError;
use crate::xds::{Name, Resource, Type};

/// What a source says. One response is a list of these, applied together and ended by a commit mark.
#[derive(Debug, Clone)]
pub enum Update {
    /// `key` is the name under which the resource is wanted: its own, or one of its aliases.
    Upsert { kind: Type, class: Class, key: Name, resource: Arc<Resource> },
    /// A name has no resource (XLAT-15), by the server's word or by its silence.
    Absent { kind: Type, class: Class, key: Name, evidence: Evidence },
    /// The complete `*` set of a type: what is held and not among these is gone, but for what is kept.
    FullSet { kind: Type, resources: Vec<Arc<Resource>>, retain: Retain },
    /// What is held under this name has so much time from now on, or no end (UP-40).
    Refresh { kind: Type, class: Class, key: Name, ttl: Option<Duration> },
    /// Something is wrong with a name that was asked for; what is held of it stays, and so does its absence.
    Error { kind: Type, key: Name, error: Arc<NamedError> },
    /// So much is known of a set, `*` or a glob.
    Progress { kind: Type, of: Selector, completeness: Completeness },
    /// The source went away, or another has taken its place.
    Interrupted { kind: Type, of: Selector },
    /// These came, cannot be read, and nothing is held of them; none of the others of that set is so.
    Unreadable { kind: Type, of: Selector, names: BTreeSet<Name> },
}

/// By what it is known that there is no such resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The server has said so.
    Reported,
    /// It was asked and is there, and says nothing: enough for those who do not hold it.
    Silence,
}

/// How much of a set is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Completeness {
    #[default]
    Unknown,
    /// Something has come, of a server that is known to send its sets in pieces.
    Arriving,
    /// The first response has come.
    FirstResponse,
    /// It was quiet after that for a moment, or its end was known once.
    Settled,
    /// The server whose word counts has come to its end since it was last opened: what is not there does not exist.
    Complete,
}

impl Completeness {
    /// What is known once more was said. That a server sends in pieces may turn out late.
    pub(super) fn raised(self, to: Self) -> Self {
        if (self, to) == (Self::FirstResponse, Self::Arriving) { to } else { self.max(to) }
    }

    /// What is known once the server is another, or opened anew: what has ended once stays ended, and may have grown since.
    pub(super) fn interrupted(self) -> Self {
        match self {
            Self::Settled | Self::Complete => Self::Settled,
            earlier => earlier,
        }
    }
}

/// Who says something: a server by its place in the plan, and its rank in the list of the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    pub(crate) server: u16,
    pub(crate) rank: u8,
    /// What a server of higher rank gave is not deleted because this one lacks it.
    pub(crate) holds_missing: bool,
}

/// What a complete set does not delete although it lacks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retain {
    These(BTreeSet<Name>),
    /// Deletions of this server are not carried out (XLAT-20).
    Everything,
}

impl Update {
    /// The type it is about, and the single name if it is about one.
    pub(crate) fn subject(&self) -> (&Type, Option<(Class, &Name)>) {
        match self {
            Self::Upsert { kind, class, key, .. }
            | Self::Absent { kind, class, key, .. }
            | Self::Refresh { kind, class, key, .. } => (kind, Some((*class, key))),
            Self::Error { kind, key, .. } => (kind, Some((Class::Named, key))),
            Self::Progress { kind, of, .. } | Self::Interrupted { kind, of } | Self::Unreadable { kind, of, .. } => {
                match of {
                    Selector::Name(glob) => (kind, Some((Class::Named, glob))),
                    Selector::Wildcard => (kind, None),
                }
            }
            Self::FullSet { kind, .. } => (kind, None),
        }
    }
}

impl Retain {
    pub fn nothing() -> Self {
        Self::These(BTreeSet::new())
    }
}

//! Updates: what a response of a source changes, and errors of single resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::proto::code::{NOT_FOUND, OK, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNKNOWN};
use crate::protocol::keys::{Class, Selector};
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::xds::{Name, Resource, Type};

/// One change that a source reports. A response is a list of these, applied as a whole.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // of the fields: the docs of each variant cover them
pub enum Update {
    /// `key` is the name under which the resource is wanted: its own, or one of its aliases.
    Upsert { kind: Type, class: Class, key: Name, resource: Arc<Resource> },
    /// A name has no resource (XLAT-15), as the server reported or by its silence.
    Absent { kind: Type, class: Class, key: Name, evidence: Evidence },
    /// The server reports that a name has no resource, and its rules keep what it deletes (XLAT-20): a present resource stays, and is
    /// confirmed by that. Anything else is absent.
    Kept { kind: Type, class: Class, key: Name },
    /// The complete `*` set of a type: cached resources that are not among these are removed, except those to retain.
    FullSet { kind: Type, resources: Vec<Arc<Resource>>, retain: Retain },
    /// The cached resource of this name expires after `ttl` from now on, or never (UP-40).
    Refresh { kind: Type, class: Class, key: Name, ttl: Option<Duration> },
    /// The server reported an error for a requested name. What is cached of it stays, and so does its absence.
    Error { kind: Type, key: Name, error: Arc<NamedError> },
    /// How much is known of a set, which is `*` or a glob.
    Progress { kind: Type, of: Selector, completeness: Completeness },
    /// The source is lost, or another one has become active: a set is no longer known to be complete.
    Interrupted { kind: Type, of: Selector },
    /// A polled server has given the same `*` set again.
    Unchanged { kind: Type },
    /// The TTL of a resource has ended. No server says so.
    Expired { kind: Type, class: Class, key: Name },
    /// The server has removed a resource, and a stage holds that: it is present for now. A stage also says it of a name that is not
    /// present, if it holds a newer form of it than later stages.
    RemovalHeld { kind: Type, class: Class, key: Name },
    /// A stage holds a part of a set. Until it lets go, the set is not complete.
    PartHeld { kind: Type, of: Selector },
    /// The names of a set whose entries arrived and cannot be read, and that have no cached resource. The list replaces the one before.
    Unreadable { kind: Type, of: Selector, names: BTreeSet<Name> },
    /// The server has a resource under this name, and there was no room for it.
    WithoutRoom { kind: Type, class: Class, key: Name },
}

/// How it is known that a resource does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The server has reported it, or removed the resource.
    Reported,
    /// The server is alive, received the request, and is silent: enough for clients that do not hold the resource.
    Silence,
}

/// How much of a set is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Completeness {
    /// Nothing has come.
    #[default]
    Unknown,
    /// Something has come, from a server that is known to send its sets in pieces.
    Arriving,
    /// The first response has come.
    FirstResponse,
    /// The set was quiet for a moment after that, or was complete once.
    Settled,
    /// All of it has come on this opening: what is missing does not exist.
    Complete,
}

impl Completeness {
    /// Returns what is known after a further response. It may turn out late that a server sends its sets in pieces.
    pub(super) fn raised(self, to: Self) -> Self {
        if (self, to) == (Self::FirstResponse, Self::Arriving) { to } else { self.max(to) }
    }

    /// Returns what is known once another server is active, or the same one is opened again: a set that was settled stays so, and
    /// may have grown.
    pub(super) fn interrupted(self) -> Self {
        match self {
            Self::Settled | Self::Complete => Self::Settled,
            earlier => earlier,
        }
    }
}

/// The origin of an update: a server by its place in the plan, and its rank in the list of the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The place of the server in the plan.
    pub server: u16,
    /// Its rank in the authority's list: zero is the first choice.
    pub rank: u8,
    /// Resources from a server of higher rank are not deleted because this one lacks them.
    pub holds_missing: bool,
    /// It was loaded from disk, or comes from the view of an earlier configuration, and no server has confirmed it since.
    pub from_disk: bool,
    /// Like `from_disk`, but a server has removed it since. It stays for now, and the removal confirms nothing.
    pub is_removed: bool,
    /// Brakes do not hold what it removes: it is a local set, or the hub.
    pub skips_brakes: bool,
    /// Each of its full sets is the answer to another poll.
    pub is_polled: bool,
}

impl Origin {
    /// Whether a resource is kept back from a client that may hold a newer one of its set. If a server has removed the resource since, it
    /// is kept back only from clients that may hold it.
    pub(crate) fn is_kept_back(&self, may_hold: impl FnOnce() -> bool) -> bool {
        self.from_disk && (!self.is_removed || may_hold())
    }

    /// Stands for a server that is not in the plan any more.
    pub const GONE: Self = Self {
        server: u16::MAX,
        rank: u8::MAX,
        holds_missing: false,
        from_disk: false,
        is_removed: false,
        skips_brakes: false,
        is_polled: false,
    };
}

/// The servers whose removals are doubted, by their places in the plan. A plain record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovering {
    /// Until when each may still be reading its state after an outage.
    pub until: BTreeMap<u16, Moment>,
    /// Until when an earlier view of the same key holds something of each, at most.
    pub held_until: BTreeMap<u16, Moment>,
    /// There is no client, and servers are shown one that has left.
    pub is_unattended: bool,
}

impl Recovering {
    /// Returns until when a server is doubted, for one reason or the other.
    pub(super) fn end_of(&self, server: u16) -> Option<Moment> {
        self.until.get(&server).max(self.held_until.get(&server)).copied()
    }
}

impl From<BTreeMap<u16, Moment>> for Recovering {
    fn from(until: BTreeMap<u16, Moment>) -> Self {
        Self { until, ..Self::default() }
    }
}

/// One update by itself, with who said it and when that was received.
#[derive(Debug)]
pub(super) struct SourcedUpdate {
    pub(super) update: Update,
    pub(super) origin: Origin,
    pub(super) received: Moment,
}

/// Where the update that is applied came from, if from a server, when it was received, and what time it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct UpdateContext {
    pub(super) origin: Origin,
    pub(super) received: Moment,
    pub(super) now: Moment,
}

/// Resources that a complete set does not delete although it lacks them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retain {
    /// These names, and nothing else.
    These(BTreeSet<Name>),
    /// Deletions of this server are not carried out (XLAT-20).
    Everything,
}

impl Update {
    /// Returns the type that it concerns, and the name if it concerns a single one.
    pub(crate) fn subject(&self) -> (&Type, Option<(Class, &Name)>) {
        match self {
            Self::Upsert { kind, class, key, .. }
            | Self::Absent { kind, class, key, .. }
            | Self::Kept { kind, class, key }
            | Self::Expired { kind, class, key }
            | Self::RemovalHeld { kind, class, key }
            | Self::WithoutRoom { kind, class, key }
            | Self::Refresh { kind, class, key, .. } => (kind, Some((*class, key))),
            Self::Error { kind, key, .. } => (kind, Some((Class::Named, key))),
            Self::Progress { kind, of, .. }
            | Self::PartHeld { kind, of }
            | Self::Interrupted { kind, of }
            | Self::Unreadable { kind, of, .. } => match of {
                Selector::Name(glob) => (kind, Some((Class::Named, glob))),
                Selector::Wildcard => (kind, None),
            },
            Self::FullSet { kind, .. } | Self::Unchanged { kind } => (kind, None),
        }
    }
}

impl Retain {
    /// Keeps nothing: what the set lacks is absent.
    pub fn nothing() -> Self {
        Self::These(BTreeSet::new())
    }
}

/// An error of one resource, as upstream reported it (TP3) or as the relay found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedError {
    /// A gRPC status code.
    pub code: i32,
    /// The text for the client.
    pub message: String,
}

impl NamedError {
    pub(crate) fn not_found() -> Self {
        Self { code: NOT_FOUND, message: "there is no such resource".into() }
    }

    /// Makes the error of a refused type. NOT_FOUND and PERMISSION_DENIED are replaced, because they would mean that there is no such
    /// resource.
    pub(crate) fn of_refusal(status: &ServerStatus) -> Self {
        let code = if matches!(status.code, OK | NOT_FOUND | PERMISSION_DENIED) { UNKNOWN } else { status.code };
        Self { code, message: format!("the control plane ends streams that request this type: {status}") }
    }

    pub(crate) fn not_allowed() -> Self {
        Self { code: PERMISSION_DENIED, message: "not for this client".into() }
    }

    /// Whether it concerns the resource itself, as opposed to a transient error (UP-44).
    pub(crate) fn is_about_data(&self) -> bool {
        matches!(self.code, NOT_FOUND | PERMISSION_DENIED)
    }
}

/// A name of a session for which there is no room.
#[derive(Debug, Clone)]
pub struct RefusedName {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    /// Why the view has no room for the name.
    pub why: NoRoom,
}

/// Why there is no room for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoRoom {
    /// Its view has as many names as it may have.
    InView(usize),
    /// All resources together take as many bytes as they may.
    InCache(usize),
    /// A request to the control plane has as many bytes as it may have.
    InRequest(usize),
}

impl NoRoom {
    pub(crate) fn error(self) -> NamedError {
        let message = match self {
            Self::InView(limit) => {
                format!(
                    "too many names for the clients that share a view: the limit is {limit} (limits.names_per_view)"
                )
            }
            Self::InCache(limit) => {
                format!("too many bytes of resources are cached: the limit is {limit} (limits.cached_bytes)")
            }
            Self::InRequest(limit) => {
                format!("there is no room for the name in a request to the control plane (max_request_bytes: {limit})")
            }
        };
        NamedError { code: RESOURCE_EXHAUSTED, message }
    }
}

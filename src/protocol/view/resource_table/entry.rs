//! What is known of one name.

use std::sync::Arc;

use crate::protocol::moment::Moment;
use crate::protocol::view::history::PresenceHistory;
use crate::protocol::view::named_error::NamedError;
use crate::protocol::view::revision::Revision;
use crate::protocol::view::update::Origin;
use crate::xds::Resource;

/// What is known of one name.
#[derive(Debug, Clone)]
pub enum Presence {
    /// The resource that clients are sent.
    Present(Arc<Resource>),
    /// A tombstone. The body is dropped first, the name later.
    Absent(Option<Arc<Resource>>),
    /// Only an error is known.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) changed: Revision,
    /// The last change of its body, which is all that a SotW client without wrappers sees.
    pub(crate) body_changed: Revision,
    pub(crate) history: PresenceHistory,
    pub presence: Presence,
    /// The last reported error, with its revision (UP-46).
    pub error: Option<(Revision, Arc<NamedError>)>,
    /// When it expires unless the server extends its TTL (UP-40).
    pub(crate) expires: Option<Moment>,
    /// When it was last given a TTL, or none.
    pub(crate) refreshed: Revision,
    /// The server that sent it, and since when; or since when it is absent or in error.
    pub(crate) origin: Origin,
    pub(crate) since: Moment,
    /// Why it is absent, if it is, and when that was last reported on the present opening.
    pub absence: AbsenceEvidence,
    pub(super) reported: Revision,
}

impl Entry {
    /// Returns the entry of a name that changed now, with nothing else known of it.
    pub(super) fn new(presence: Presence, history: PresenceHistory, revision: Revision, now: Moment) -> Self {
        Self {
            changed: revision,
            body_changed: revision,
            history,
            presence,
            error: None,
            expires: None,
            refreshed: Revision::ZERO,
            origin: Origin::default(),
            since: now,
            absence: AbsenceEvidence::Reported,
            reported: Revision::ZERO,
        }
    }

    /// Returns the resource, if it is present.
    pub(crate) fn resource(&self) -> Option<&Arc<Resource>> {
        match &self.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        }
    }

    /// Whether a member of a `*` set that is sent again like this stays as it is.
    pub(in crate::protocol::view) fn is_unchanged_by(&self, sent: &Arc<Resource>, origin: Origin) -> bool {
        let has_no_ttl = |held: &Resource| held.ttl.is_none() && sent.ttl.is_none();
        let is_same = |held: &Arc<Resource>| (Arc::ptr_eq(held, sent) || held.full == sent.full) && has_no_ttl(held);
        self.resource().is_some_and(is_same) && self.error.is_none() && self.origin == origin
    }
}

/// The evidence of an absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceEvidence {
    /// The server removed it, or reported that it does not exist.
    Reported,
    /// A live server was silent about it. That is not enough for clients that hold it.
    Silence,
    /// Its TTL ended, and no server has reported it absent (XLAT-15).
    Expired,
}

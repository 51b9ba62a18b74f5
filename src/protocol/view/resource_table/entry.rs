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
    /// A tombstone. The body goes first, the name later.
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
    /// What was last reported wrong with it, and since when (UP-46).
    pub error: Option<(Revision, Arc<NamedError>)>,
    /// When it dies unless upstream gives it more time (UP-40).
    pub(crate) expires: Option<Moment>,
    /// The last time that it was given a TTL, or none.
    pub(crate) refreshed: Revision,
    /// Who gave it, and since when that is so; or since when it is gone or in error.
    pub(crate) origin: Origin,
    pub(crate) since: Moment,
    /// Why it is gone, if it is, and since when that was last said on the present opening.
    pub absence: AbsenceEvidence,
    pub(super) reported: Revision,
}

impl Entry {
    /// What is here.
    pub(crate) fn resource(&self) -> Option<&Arc<Resource>> {
        match &self.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        }
    }
}

/// By what it is known that something is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceEvidence {
    /// The server removed it, or reported that it does not exist.
    Reported,
    /// A server that is there was silent about it. Whoever holds it is not told so by that.
    Silence,
    /// Its time was over, and nobody has said that there is none (XLAT-15).
    Expired,
}

//! The parts of one type's subscription, lent to the code that applies a response or judges a silence.

use super::end_question::EndQuestion;
use super::given::GivenVersions;
use super::name_states::{NameState, NameStates};
use super::opening::Liveness;
use super::quirks::ServerQuirks;
use super::rejected::Rejected;
use super::request::RequestProgress;
use super::second_request::SecondRequest;
use super::set_progress::{DeliveryRecord, SetProgress};
use super::wanted::Wanted;
use crate::protocol::view::Update;
use crate::xds::{Name, Type};

pub(super) struct SubscriptionParts<'a> {
    pub(crate) wanted: &'a mut Wanted,
    pub(crate) given: &'a mut GivenVersions,
    pub(crate) names: &'a mut NameStates,
    pub(crate) rejected: &'a mut Rejected,
    pub(crate) wire: &'a mut RequestProgress,
    pub(crate) progress: &'a mut SetProgress,
    pub(crate) deliveries: &'a mut DeliveryRecord,
    pub(crate) second_request: &'a mut SecondRequest,
    pub(crate) end_question: &'a mut EndQuestion,
    pub(crate) poll_liveness: &'a mut Liveness,
}

impl SubscriptionParts<'_> {
    /// Whether responses count: something is wanted, and this opening is asked for it.
    pub(crate) fn is_read(&self) -> bool {
        self.wanted.is_any() && !(self.wanted.has_wildcard() && self.wire.waits_for_opening())
    }
}

/// Records that a name has no resource: the server has reported that, or its silence counts as that. Nothing more is due for the name.
pub(super) fn absence(parts: &mut SubscriptionParts, kind: &Type, key: Name, quirks: &ServerQuirks) -> Update {
    parts.given.forget(&key);
    parts.rejected.remove_error(&key);
    parts.rejected.remove(&key);
    parts.second_request.answered(&key);
    parts.end_question.on_absent(&key);
    if parts.wanted.names().contains(&key) {
        parts.names.settle(key.clone(), NameState::Absent);
    }
    if parts.wanted.globs().has(&key) {
        parts.wanted.begin(&key);
        parts.given.forget_members(&key, parts.wanted);
    }
    quirks.reported_absence(kind, parts.wanted.class(), key)
}

/// Whether a name is wanted by itself and the server has given the resource.
pub(super) fn holds_by_name(wanted: &Wanted, names: &NameStates, name: &Name) -> bool {
    wanted.names().contains(name) && names.get(name).is_none()
}

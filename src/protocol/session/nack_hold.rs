//! A client that has NACKed its latest routing continues with the routing from before, which may lead to what is removed now. Its own
//! removals of clusters and endpoints wait for a limited time. Nobody else's do (I8), and neither do other removals of its own.

use std::time::Duration;

use super::Session;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::{Role, Type};

/// Since when removals wait, until none is due any more. Those that become due meanwhile wait no longer than the first.
#[derive(Debug, Default)]
pub(super) struct NackHold {
    since: Option<Moment>,
}

impl NackHold {
    /// Records that something is kept back, and returns until when.
    pub(super) fn keep(&mut self, now: Moment, limits: &Limits) -> Moment {
        *self.since.get_or_insert(now) + longest(limits)
    }

    /// Records that nothing is due that it could keep back.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

/// SotW replies need the body of what stays, which is remembered only for so long.
pub(super) fn longest(limits: &Limits) -> Duration {
    limits.reference_hold.min(limits.history_age)
}

impl Session {
    /// Whether the client uses earlier routing than the latest that it was sent.
    pub(super) fn nacks_routing(&self) -> bool {
        let mut routing = self.subscriptions.iter().filter(|(kind, _)| kind.is(Role::Routing));
        !self.limits.reference_hold.is_zero() && routing.any(|(_, of)| of.wants_anything() && of.acks.is_nacked())
    }
}

/// Whether removals of a type wait: those of clusters and endpoints, and those of secrets while others do, since clusters may need them.
pub(super) fn may_serve_routing(kind: &Type, others_wait: bool) -> bool {
    kind.is(Role::Clusters) || kind.is(Role::Endpoints) || others_wait && kind.is_secret()
}

//! Who subscribes to one name or set, and when the interest in it ends.

use std::collections::BTreeSet;

use crate::protocol::keys::SessionId;
use crate::protocol::moment::Moment;
use crate::protocol::visits::visit;

#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) sessions: BTreeSet<SessionId>,
    /// When the interest ends. Set while there are no sessions.
    pub(super) until: Option<Moment>,
    /// No session has subscribed yet, but one is expected to.
    pub(super) expected: bool,
    /// The last session left with its stream.
    pub(super) may_return: bool,
    /// A server has removed or replaced the last cluster that led to these endpoints.
    pub(super) is_over: bool,
    /// The name is known to be absent.
    pub(super) absent: bool,
    /// It lingers, and nothing was here under the name when its last client left.
    pub(super) is_void: bool,
}

impl Watchers {
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().copied().inspect(|_| visit())
    }
}

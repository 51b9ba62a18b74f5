//! How many replies a stream has sent, and whether the stream ends because no server serves its client.

use super::CloseReason;
use super::reports::SessionReport;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::view::Snapshot;

/// Counts the replies of a stream. The nonce of a reply is its number.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    last_nonce: u64,
    /// The status by which the server refuses the view, until the session has judged what that means for its client.
    refusal: Option<Box<ServerStatus>>,
}

impl Beginning {
    pub(super) fn next_nonce(&mut self) -> u64 {
        self.last_nonce += 1;
        self.last_nonce
    }

    pub(super) fn on_view_refused(&mut self, status: &ServerStatus) {
        self.refusal = Some(Box::new(status.clone()));
    }

    pub(super) fn take_refusal(&mut self) -> Option<Box<ServerStatus>> {
        self.refusal.take()
    }

    /// Returns why the stream ends, if it does. `refusal` is the status by which the server refuses the view: then a client stays if it has had
    /// a response, or holds what is current. A relay is sent the refusal in any case, because it has clients of its own.
    pub(super) fn end(
        &self,
        refusal: Option<Box<ServerStatus>>,
        session: SessionReport,
        state: &Snapshot,
        now: Moment,
    ) -> Option<CloseReason> {
        let has_had_none = self.last_nonce == 0;
        let is_refused = || session.is_of_relay() || has_had_none && !session.holds_what_is_current(state, now);
        match refusal {
            Some(status) if is_refused() => Some(CloseReason::Refused(status)),
            _ => (has_had_none && session.has_no_upstream(state)).then_some(CloseReason::NoUpstream),
        }
    }
}

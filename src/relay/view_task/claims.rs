//! Claims of sessions, and those for which there is no room.

use super::ViewTask;
use crate::protocol::view::{Claim, SessionId};
use crate::relay::limit::Limit;

impl ViewTask {
    /// Seeks what a session claims, and gives back what there is no room for.
    pub(super) fn seek(&mut self, session: SessionId, claims: Vec<Claim>) {
        self.view.seek(session, claims);
        for (session, claims) in self.view.take_refused_claims() {
            self.limits.reached(Limit::SoughtNames);
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_claims_refused(claims);
            }
        }
    }

    /// Wakes sessions whose claims had no room, once there is.
    pub(super) fn admit_claims(&mut self) {
        for session in self.view.take_sessions_to_claim() {
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_claim_room();
            }
        }
    }
}

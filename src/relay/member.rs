//! A session as a member of its view.

use std::sync::Arc;

use super::report::AnswersSource;
use super::session_handle::SessionHandle;
use super::subscriber::Subscriber;
use super::traces::OpenChange;
use super::view_usage::Stay;
use crate::protocol::view::{Claim, NameChanged, RefusedName, SessionId};

/// A session that joins a view, or has joined it.
///
/// Dropping it wakes the session. A view task that panics closes its channel first and then drops its members, joined or about to join, so
/// each session sees that its view has ended.
pub(super) struct Member {
    session: Arc<SessionHandle>,
    _stay: Stay,
}

impl Member {
    pub(crate) fn new(session: Arc<SessionHandle>, stay: Stay) -> Self {
        Self { session, _stay: stay }
    }
}

impl Subscriber for Member {
    fn id(&self) -> SessionId {
        self.session.id
    }

    fn answers(&self) -> Arc<dyn AnswersSource> {
        self.session.clone()
    }

    fn on_names_changed(&self, changes: &[NameChanged]) {
        self.session.on_names_changed(changes);
    }

    fn on_traced_change(&self, change: &Arc<OpenChange>) {
        self.session.traces.concern(change);
    }

    fn answers_replies(&self) -> bool {
        self.session.is_stream
    }

    fn on_names_refused(&self, names: Vec<RefusedName>) {
        self.session.on_names_refused(names);
    }

    fn on_claims_refused(&self, claims: Vec<Claim>) {
        self.session.on_claims_refused(claims);
    }

    fn on_claim_room(&self) {
        self.session.on_claim_room();
    }

    fn on_interest_applied(&self) {
        self.session.on_interest_applied();
    }

    fn wake(&self) {
        self.session.wake();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.session.wake();
    }
}

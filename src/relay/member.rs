//! A session as a member of its view.

use std::sync::Arc;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::SessionId;
use weir_core::xds::MemberNode;

use super::report::AnswersSource;
use super::session_handle::{SessionHandle, wake, wake_with};
use super::subscriber::{Notice, Subscriber};
use super::traces::OpenChange;
use super::view_usage::ViewGuard;
use super::wakes::Wakes;

/// A session that joins a view, or has joined it.
///
/// Dropping it wakes the session. A view task that panics closes its channel first and then drops its members, joined or about to join, so
/// each session sees that its view has ended. What its names take is free then, however long its client takes to notice.
pub(super) struct Member {
    session: Arc<SessionHandle>,
    /// The node, until the view has taken it.
    node: Option<MemberNode>,
    _stay: ViewGuard,
}

impl Member {
    /// With the node that servers may be shown, if they are shown clients.
    pub(crate) fn new(session: Arc<SessionHandle>, node: Option<MemberNode>, stay: ViewGuard) -> Self {
        Self { session, node, _stay: stay }
    }
}

impl Subscriber for Member {
    fn id(&self) -> SessionId {
        self.session.client().id
    }

    fn take_node(&mut self) -> Option<(MemberNode, Moment)> {
        Some((self.node.take()?, self.session.client().connected))
    }

    fn answers(&self) -> Arc<dyn AnswersSource> {
        self.session.clone()
    }

    fn notify(&self, notice: Notice) {
        self.session.notify(notice);
    }

    fn on_traced_change(&self, change: &Arc<OpenChange>) {
        self.session.on_traced_change(change);
    }

    fn answers_replies(&self) -> bool {
        self.session.client().is_stream
    }

    fn wake(&self, others: &mut Wakes) {
        wake_with(&self.session, others);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.session.release_names();
        wake(&self.session);
    }
}

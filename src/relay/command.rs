//! What sessions and reporters send to a view task, and what that task needs of a session.

use tokio::sync::oneshot;

use super::report::{ClientReport, DanglingClusters, ViewMetrics, ViewReport, ViewSnapshot};
use crate::protocol::view::{Claim, InterestChange, NameChanged, SessionId};

/// What sessions and reporters say to the task of a view.
pub(super) enum Command {
    Join(Box<dyn Subscriber>),
    Interest(SessionId, Vec<InterestChange>),
    /// What a client holds and the view does not know.
    Claims(Vec<Claim>),
    /// Whether a client stays with routing that it had, since it rejected what came after.
    RoutingNack(SessionId, bool),
    Leave(SessionId, Vec<InterestChange>),
    Report(oneshot::Sender<(ViewReport, Vec<ClientReport>)>),
    Measure(oneshot::Sender<ViewMetrics>),
    Snapshot(oneshot::Sender<ViewSnapshot>),
    Dangling(oneshot::Sender<DanglingClusters>),
}

/// A session as its view sees it.
pub(super) trait Subscriber: Send {
    fn id(&self) -> SessionId;
    fn report(&self) -> ClientReport;
    fn on_names_changed(&self, changes: &[NameChanged]);
    fn on_interest_applied(&self);
    /// There may be something to send.
    fn wake(&self);
}

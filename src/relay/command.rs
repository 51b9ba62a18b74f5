//! The commands that sessions and reporters send to a view task, and the interface of a session to that task.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::report::{
    AnswersSource, DanglingClusters, ReleaseQuery, Released, SetBrakeReport, ViewBook, ViewMetrics, ViewReport,
    ViewSessions, ViewSnapshot, ViewWaits,
};
use super::traces::OpenChange;
use crate::protocol::view::{Claim, InterestChange, NameChanged, RefusedName, SessionId};
use crate::xds::{Name, Type};

/// A command of a session or a reporter to a view task.
pub(super) enum Command {
    Join(Box<dyn Subscriber>),
    Interest(SessionId, Vec<InterestChange>),
    /// Names and versions that a client holds and the view does not know.
    Claims(SessionId, Vec<Claim>),
    Leave(SessionId, Vec<InterestChange>),
    Report(oneshot::Sender<ViewReport>),
    Explain(Type, Name, oneshot::Sender<ViewBook>),
    Measure(oneshot::Sender<ViewMetrics>),
    Snapshot(oneshot::Sender<ViewSnapshot>),
    Dangling(oneshot::Sender<DanglingClusters>),
    Sessions(oneshot::Sender<ViewSessions>),
    /// Keeps so many of the oldest waits.
    Waits(usize, oneshot::Sender<ViewWaits>),
    Brakes(oneshot::Sender<Vec<SetBrakeReport>>),
    Release(ReleaseQuery, oneshot::Sender<Released>),
}

/// A session, as its view task uses it.
pub(super) trait Subscriber: Send {
    fn id(&self) -> SessionId;
    /// Returns the session, to count its client's answers outside of the task.
    fn answers(&self) -> Arc<dyn AnswersSource>;
    fn on_names_changed(&self, changes: &[NameChanged]);
    /// A traced change concerns it.
    fn on_traced_change(&self, change: &Arc<OpenChange>);
    /// Whether its client is sent replies and answers them.
    fn answers_replies(&self) -> bool;
    /// Notifies it of names that the view has no room for.
    fn on_names_refused(&self, names: Vec<RefusedName>);
    /// Gives back claims that the view has no room for.
    fn on_claims_refused(&self, claims: Vec<Claim>);
    /// The view has room for claims again.
    fn on_claim_room(&self);
    fn on_interest_applied(&self);
    /// Wakes the session: there may be something to send.
    fn wake(&self);
}

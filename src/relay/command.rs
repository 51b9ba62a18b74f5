//! The commands that sessions and reporters send to a view task.

use tokio::sync::{mpsc, oneshot};
use weir_core::protocol::view::{Claim, InterestChange, SessionId};
use weir_core::xds::MemberNode;

use super::inspection::Inspection;
use super::report::{ReleaseQuery, Released};
use super::subscriber::Subscriber;

/// A command of a session or a reporter to a view task.
pub(super) enum Command {
    Join(Box<dyn Subscriber>),
    Interest(SessionId, Vec<InterestChange>),
    /// The client states this node from now on. The node still gives the key of the view.
    Node(SessionId, MemberNode),
    /// Names and versions that a client holds and the view does not know.
    Claims(SessionId, Vec<Claim>),
    /// Some of the changes of a session whose stream has ended.
    Leaving(SessionId, Vec<InterestChange>),
    /// The last interest changes of such a session.
    Leave(SessionId, Vec<InterestChange>),
    Inspect(Box<dyn FnOnce(&Inspection<'_>) + Send>),
    Release(ReleaseQuery, oneshot::Sender<Released>),
}

impl Command {
    /// Returns how many changes of interest it has.
    pub(super) fn changes(&self) -> usize {
        match self {
            Self::Interest(_, changes) | Self::Leaving(_, changes) | Self::Leave(_, changes) => changes.len(),
            _ => 0,
        }
    }
}

/// The most interest changes of one command. A view applies that many in about a millisecond, and then handles the commands of others.
pub(super) const PART: usize = 128;

/// Asks a view a question. Returns `None` if the view has ended.
pub(super) async fn ask<T: Send + 'static>(
    view: &mpsc::Sender<Command>,
    question: impl FnOnce(&Inspection<'_>) -> T + Send + 'static,
) -> Option<T> {
    let (to, from) = oneshot::channel();
    let look = move |of: &Inspection<'_>| drop(to.send(question(of))); // the caller may have dropped the receiver
    view.send(Command::Inspect(Box::new(look))).await.ok()?;
    from.await.ok()
}

//! Forwards changes of a session's subscriptions, and its claims, to the task of its view. Changes are sent in parts, so that commands of other
//! sessions come in between.

use std::sync::atomic::Ordering;

use tokio::sync::mpsc::{self, OwnedPermit};
use weir_core::protocol::view::SessionId;
use weir_core::xds::MemberNode;

use super::SessionHandle;
use super::locked::LockedSession;
use crate::relay::command::{Command, PART};

/// What follows from a request.
pub(crate) struct Applied {
    /// Whether the view needs an update.
    pub(super) has_news: bool,
    /// Whether no reply can follow from the request.
    pub(super) at_rest: bool,
    /// Whether the session has ended, by this request or before it.
    pub(crate) has_ended: bool,
    /// The node that servers may be shown from now on, if it has changed.
    pub(super) node: Option<MemberNode>,
}

pub(super) struct InterestForwarding<'s> {
    pub(super) session: &'s LockedSession,
    pub(super) id: SessionId,
    /// `None` if the session has left.
    pub(super) commands: Option<mpsc::Sender<Command>>,
}

impl InterestForwarding<'_> {
    /// Reserves room before it takes changes: a stream that ends while this waits has not taken any, so none is lost. A change that was
    /// taken and not sent would leave its name subscribed upstream for ever. Returns how many names are newly subscribed to.
    pub(super) async fn send(&self) -> usize {
        let Some(commands) = &self.commands else { return 0 };
        let mut new_names = 0;
        loop {
            self.session.until_free().await;
            let Ok(room) = commands.reserve().await else { return new_names }; // the next poll ends the stream
            let Some(changes) = self.session.try_lock_unread().map(|mut session| session.take_interest_part(PART))
            else {
                drop(room); // heavy work may have begun while this waited
                self.session.look_later().await;
                continue;
            };
            let is_last = changes.len() < PART;
            if changes.is_empty() {
                return new_names; // they were taken while this waited
            }
            new_names += changes.iter().filter(|change| change.on).count();
            room.send(Command::Interest(self.id, changes));
            if is_last {
                return new_names;
            }
        }
    }

    /// Sends the last changes of a session, with which it leaves.
    pub(super) async fn send_last(&self) {
        let Some(commands) = &self.commands else { return };
        loop {
            let changes = self.session.lock_when_free().await.take_interest_part(PART); // a last reply may still be made
            let is_last = changes.len() < PART;
            let command = if is_last { Command::Leave } else { Command::Leaving };
            let sent = commands.send(command(self.id, changes)).await;
            if is_last || sent.is_err() {
                return;
            }
        }
    }
}

/// Sends claims once there is a place for them. Waits in a task of its own: a body whose client does not read would keep the place it is given.
pub(super) fn await_place(handle: &SessionHandle) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return }; // the process is stopping
    let Some(commands) = handle.place.commands.sender() else { return };
    if handle.awaits_place.swap(true, Ordering::AcqRel) {
        return;
    }
    let handle = handle.itself.clone();
    runtime.spawn(async move {
        loop {
            let place = commands.clone().reserve_owned().await;
            let (Some(handle), Ok(place)) = (handle.upgrade(), place) else { return };
            let Some(place) = send_claims(&handle, place) else { return };
            drop(place); // the view's other sessions need not wait for heavy work
            handle.session.look_later().await;
            handle.session.until_free().await;
        }
    });
}

/// Sends claims, unless another thread has the session locked: returns the place then.
fn send_claims(handle: &SessionHandle, place: OwnedPermit<Command>) -> Option<OwnedPermit<Command>> {
    let Some(mut session) = handle.session.try_lock_unread() else { return Some(place) };
    handle.awaits_place.store(false, Ordering::Release);
    let claims = session.take_claims();
    if !claims.is_empty() {
        place.send(Command::Claims(handle.client.id, claims)); // before the session can leave
    }
    None
}

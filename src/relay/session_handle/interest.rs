//! Forwards changes of a session's subscriptions to the task of its view. They are sent in parts, so that commands of other sessions come in
//! between.

use tokio::sync::mpsc;
use weir_core::protocol::view::SessionId;

use super::locked::LockedSession;
use crate::relay::command::{Command, PART};

pub(super) struct InterestForwarding<'s> {
    pub(super) session: &'s LockedSession,
    pub(super) id: SessionId,
    pub(super) commands: &'s mpsc::Sender<Command>,
}

impl InterestForwarding<'_> {
    /// Reserves room before it takes changes: a stream that ends while this waits has not taken any, so none is lost. A change that was
    /// taken and not sent would leave its name subscribed upstream for ever. Returns how many names are newly subscribed to.
    pub(super) async fn send(&self) -> usize {
        let mut new_names = 0;
        loop {
            let Ok(room) = self.commands.reserve().await else { return new_names }; // the next poll ends the stream
            let changes = self.session.lock().take_interest_part(PART);
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
        loop {
            let changes = self.session.lock().take_interest_part(PART);
            let is_last = changes.len() < PART;
            let command = if is_last { Command::Leave } else { Command::Leaving };
            let sent = self.commands.send(command(self.id, changes)).await;
            if is_last || sent.is_err() {
                return;
            }
        }
    }
}

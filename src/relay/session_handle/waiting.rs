//! Waiting for something new of a session. If the future may be dropped at any await, a guard ends the session.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::sleep;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Step;

use super::Notice;
use super::SessionHandle;
use super::transit::Blocker;

/// Waits until there is something to send beyond what the client has received.
pub(crate) async fn session_changed(handle: &SessionHandle) {
    let mut sleep = pin!(sleep(Duration::ZERO));
    std::future::poll_fn(|cx| {
        loop {
            match handle.poll(cx.waker()) {
                Step::Reply(_) | Step::End(_) => return Poll::Ready(()),
                Step::Idle(None) => return Poll::Pending,
                Step::Idle(Some(moment)) => {
                    sleep.as_mut().reset(handle.clock().instant(moment));
                    ready!(sleep.as_mut().poll(cx));
                }
            }
        }
    })
    .await;
}

/// Notes that a finished reply waits for this.
pub(crate) fn reply_waits(handle: &SessionHandle, obstruction: Blocker) {
    handle.transit.set(Some(obstruction), handle.clock().now());
}

/// Notes that a reply is sent now, so long after it was made.
pub(crate) fn reply_is_late(handle: &SessionHandle, by: Duration) {
    reply_waits(handle, Blocker::Unread);
    handle.notify(Notice::ReplyLate(by));
}

/// Notes that the connection has taken the last reply, before the session is polled for the next one.
pub(super) fn reply_is_taken(handle: &SessionHandle, now: Moment) {
    if let Some(by) = handle.transit.take_lateness(now) {
        handle.notify(Notice::ReplyLate(by));
    }
}

/// Whether the next reply has to wait until the connection has taken all of the last one. Otherwise a change of routing could be made behind
/// clusters that the client was not sent yet.
pub(crate) fn replies_go_one_by_one(handle: &SessionHandle) -> bool {
    handle.transit.is_one_by_one()
}

/// Lets a test decide that.
#[cfg(test)]
pub(crate) fn send_one_by_one(handle: &SessionHandle, one_by_one: bool) {
    handle.transit.set_one_by_one(one_by_one);
}

/// Ends the session when dropped.
pub(crate) struct SessionGuard(Arc<SessionHandle>);

impl SessionGuard {
    pub(crate) fn new(handle: Arc<SessionHandle>) -> Self {
        Self(handle)
    }
}

impl std::ops::Deref for SessionGuard {
    type Target = SessionHandle;

    fn deref(&self) -> &SessionHandle {
        &self.0
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let handle = self.0.clone();
        // Without a runtime the process is stopping, and there is no view left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { handle.leave().await });
        }
    }
}

//! Futures that wait for a session: for its one reply, or for something new. If such a future may be dropped at any await, a guard ends the
//! session.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker, ready};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use weir_core::protocol::session::{CloseReason, FetchResult, Step};

use super::Notice;
use super::SessionHandle;
use super::apart::fetch_apart;
use super::transit::Blocker;
use crate::relay::heavy::HEAVY;

/// Keeps in mind that a session was woken, also while another thread works with it.
#[derive(Default)]
struct News(Notify);

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Returns one reply to the request once everything in it is known, and at the latest when `timeout` is over. If it has many names, another thread
/// makes it.
pub(crate) async fn fetch_reply(handle: &SessionHandle, timeout: Duration) -> FetchResult {
    let (last, news) = (Instant::now() + timeout, Arc::<News>::default());
    let waker = Waker::from(news.clone());
    loop {
        let fetched = match fetch_below(handle, HEAVY, &waker, Instant::now() >= last) {
            Ok(fetched) => fetched,
            Err(names) => Box::pin(fetch_apart(handle, names, waker.clone(), last)).await,
        };
        let FetchResult::Waiting(until) = fetched else { return fetched };
        let until = until.map_or(last, |until| handle.clock().instant(until).min(last));
        let _ = timeout_at(until, news.0.notified()).await; // in both cases it is time to fetch again
    }
}

/// Like [`SessionHandle::poll`], for a client that is sent one reply. `at_last`: the reply is made of what is known. `Err`: nothing is done, since the
/// session has so many names, at least `many`.
pub(super) fn fetch_below(
    handle: &SessionHandle,
    many: usize,
    waker: &Waker,
    at_last: bool,
) -> Result<FetchResult, usize> {
    handle.waker.register(waker);
    if handle.place.commands.is_closed() {
        return Ok(FetchResult::End(CloseReason::ViewFailed));
    }
    let now = handle.place.clock.now();
    let newest = handle.place.published.newest();
    let unread = handle.session.unread_names();
    if unread >= many {
        return Err(unread);
    }
    let mut session = handle.session.lock();
    let names = session.report().kept_names().names; // all of them are visited, pending or not
    if names >= many {
        return Err(names);
    }
    let fetched = session.fetch(&newest, &mut &*handle.place.published, now, at_last);
    handle.forward_claims(&mut session);
    Ok(fetched)
}

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

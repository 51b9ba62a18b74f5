//! The one reply to a request, for a client that does not stay.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use weir_core::protocol::session::{CloseReason, FetchResult};

use super::SessionHandle;
use super::apart::SessionThread;
use crate::relay::heavy::{HEAVY, HeavyKind};

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
fn fetch_below(handle: &SessionHandle, many: usize, waker: &Waker, at_last: bool) -> Result<FetchResult, usize> {
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

/// Lets another thread fetch for a session with so many names; see [`fetch_below`]. From `last` on the reply is made of what is known.
async fn fetch_apart(handle: &SessionHandle, names: usize, waker: Waker, last: Instant) -> FetchResult {
    let Some(handle) = handle.itself.upgrade() else { return FetchResult::End(CloseReason::ViewFailed) }; // it is being dropped
    let thread = SessionThread::free(&handle, HeavyKind::Reply, names).await;
    let fetch = move |handle: &SessionHandle| fetch_below(handle, usize::MAX, &waker, Instant::now() >= last);
    thread.begin(fetch).await.unwrap_or(FetchResult::Unknown) // no session has so many names
}

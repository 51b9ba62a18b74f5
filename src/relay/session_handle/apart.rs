//! Work with many names of a session. Another thread does it, so that no other connection is held up. Meanwhile the reader of requests and the
//! body wait for the session without keeping their thread.

use std::future::Future;
use std::sync::Arc;
use std::task::Waker;

use weir_core::protocol::session::{Estimate, Step};
use weir_core::protocol::view::LeaseAccess as _;

use super::SessionHandle;
use crate::relay::heavy::{HEAVY, HeavyTurn, ThreadApart};

/// Why no step was made.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// The reply is of about so many bytes.
    Large(Estimate),
    /// It concerns about so many names, so that [`step_apart`] is to make it.
    ManyNames(usize),
}

/// A session that another thread works with, until this is dropped.
struct Apart(Arc<SessionHandle>);

impl Apart {
    fn begin(handle: Arc<SessionHandle>) -> Self {
        handle.session.begin_apart();
        Self(handle)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.session.end_apart();
    }
}

/// Lets another thread do work on so many names of a session. Then its body is woken.
pub(crate) async fn work_apart<T: Send + 'static>(
    handle: Arc<SessionHandle>,
    names: usize,
    turn: Option<HeavyTurn>,
    work: impl FnOnce(&SessionHandle) -> T + Send + 'static,
) -> T {
    let done = run(handle.clone(), names, turn, work).await;
    handle.waker.wake();
    done
}

/// Lets another thread make the next step of a session with so many names. From the call of `begins` on, the waker is woken if anything comes that
/// the step may not know.
pub(crate) fn step_apart<B: FnOnce() + Send + 'static>(
    handle: Arc<SessionHandle>,
    names: usize,
    waker: &Waker,
    begins: B,
) -> impl Future<Output = Step> + Send + use<B> {
    handle.waker.register(waker);
    run(handle, names, None, move |handle| {
        begins();
        handle.step()
    })
}

/// While this waits for a thread, others may work with the session.
async fn run<T: Send + 'static>(
    handle: Arc<SessionHandle>,
    names: usize,
    turn: Option<HeavyTurn>,
    work: impl FnOnce(&SessionHandle) -> T + Send + 'static,
) -> T {
    let thread = ThreadApart::free(names).await;
    let apart = Apart::begin(handle);
    let work = move || {
        let apart = apart;
        work(&apart.0)
    };
    thread.run(turn, work).await
}

/// Waits until no other thread works with a session.
pub(crate) async fn until_session_is_free(handle: &SessionHandle) {
    handle.session.until_free().await;
}

impl SessionHandle {
    /// Ends the session when its stream has ended. Its subscriptions end with it.
    pub(crate) async fn leave(&self) {
        self.session.until_free().await;
        let names = self.session.lock().report().kept_names().names;
        match self.itself.upgrade().filter(|_| names >= HEAVY) {
            Some(handle) => Box::pin(work_apart(handle, names, None, Self::close)).await,
            None => self.close(),
        }
        // The names stay charged until the view, which still has them, releases them.
        self.interest().send_last().await;
        self.place.clients.leave(self.client.id);
        self.place.log.stream_ended(&self.client);
        self.traces.end(&self.client, &self.place.counters.traces);
    }

    fn close(&self) {
        let mut session = self.session.lock();
        session.report().unanswered().for_each(|(of, since)| self.deliveries().given_up(of, since));
        session.close();
        // Sweeps leases now: no other session may take one for a long time, and the lease keeps a snapshot.
        (&*self.place.published).access(|leases| leases.sweep(self.place.clock.now()));
        self.note_nacks(session.take_nack_changes());
    }
}

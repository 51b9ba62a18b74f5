//! Work with many names of a session. Another thread does it, so that no other connection is held up. Meanwhile the reader of requests and the
//! body wait for the session without keeping their thread.

use std::future::Future;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use tokio::sync::oneshot;
use weir_core::protocol::session::{Estimate, Session, Step};
use weir_core::protocol::view::LeaseAccess as _;

use super::SessionHandle;
use super::locked::NotLocked;
use super::transit::Blocker;
use super::waiting::{reply_is_late, reply_waits};
use crate::relay::heavy::{HEAVY, HeavyKind, ThreadApart, beside_others};
use crate::shared_runtime;

/// Why no step was made.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// The reply is of about so many bytes.
    Large(Estimate),
    /// It concerns about so many names, so that [`step_apart`] is to make it.
    ManyNames(usize),
    /// Another thread has the session locked. After heavy work the waker is woken, otherwise it is worthwhile to look again in a moment.
    Busy,
}

/// A session that another thread works with, until this is dropped.
struct Apart(Arc<SessionHandle>);

impl Apart {
    /// Waits until no other thread works with the session.
    async fn begin(handle: &Arc<SessionHandle>) -> Self {
        handle.session.begin_apart().await;
        Self(handle.clone())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.session.end_apart();
    }
}

/// A thread for work on a session, with which no other thread works until this is dropped.
pub(crate) struct SessionThread {
    thread: ThreadApart,
    apart: Apart,
}

impl SessionThread {
    /// Waits until one is free for work on so many names. Meanwhile others may work with the session. If they still do when its turn has come, the
    /// thread waits for them: work that lined up again behind that of other sessions could be overtaken for ever.
    pub(crate) async fn free(handle: &Arc<SessionHandle>, kind: HeavyKind, names: usize) -> Self {
        handle.session.until_free().await;
        let thread = ThreadApart::free(kind, names).await;
        let apart = Apart::begin(handle).await;
        Self { thread, apart }
    }

    /// Does the work on it. Then the body of the session is woken.
    pub(crate) async fn run<T: Send + 'static>(self, work: impl FnOnce(&SessionHandle) -> T + Send + 'static) -> T {
        let handle = self.apart.0.clone();
        let done = self.begin(work).await;
        handle.waker.wake();
        done
    }

    pub(super) fn begin<T: Send + 'static, W: FnOnce(&SessionHandle) -> T + Send + 'static>(
        self,
        work: W,
    ) -> impl Future<Output = T> + Send + use<T, W> {
        let Self { thread, apart } = self;
        thread.run(move || {
            let apart = apart;
            work(&apart.0)
        })
    }
}

/// Lets another thread make the next step of a session with so many names, but no reply of about `limit` bytes or more. `begins` is called just
/// before. From then on the waker is woken if anything comes that the step may not know. Returns what `then` makes of the step on that thread; `None`
/// if that has panicked.
///
/// A task waits for the thread, because a body is not polled while its client takes nothing, and would keep the turn from all others.
pub(crate) async fn step_apart<T: Send + 'static>(
    handle: Arc<SessionHandle>,
    names: usize,
    limit: usize,
    waker: Waker,
    begins: impl FnOnce() + Send + 'static,
    then: impl FnOnce(&SessionHandle, Result<Step, Unmade>) -> T + Send + 'static,
) -> Option<T> {
    let shard = handle.place.shard.clone();
    let step = move |handle: &SessionHandle| {
        begins();
        handle.waker.register(&waker); // what came before is in the snapshot or the inbox, which the step reads
        let begun = handle.clock().now();
        let step = handle.step_below(limit, usize::MAX);
        let is_reply = matches!(step, Ok(Step::Reply(_)));
        if is_reply {
            reply_waits(handle, Blocker::Turn); // its client has nothing of it to read yet
        }
        let made = then(handle, step);
        if is_reply {
            reply_is_late(handle, handle.clock().now() - begun);
        }
        made
    };
    let (mut tell, told) = oneshot::channel();
    let making = async move {
        let thread = tokio::select! {
            biased;
            () = tell.closed() => return, // the body is gone
            thread = SessionThread::free(&handle, HeavyKind::Reply, names) => thread,
        };
        let _ = tell.send(thread.begin(step).await);
    };
    match shard {
        Some(shard) => shard.spawn(making),
        None => drop(shared_runtime::spawn(making)),
    }
    told.await.ok()
}

/// Locks a session and reads its inbox. If heavy work has begun with it just now, this thread runs other tasks meanwhile.
pub(super) fn lock(handle: &SessionHandle) -> MutexGuard<'_, Session> {
    handle.session.try_lock().unwrap_or_else(|| {
        let names = if handle.session.is_apart() { HEAVY } else { 0 };
        beside_others(names, || handle.session.lock())
    })
}

/// Returns how many names are in the session's inbox. A step or a request notes them all first.
pub(crate) fn unread_names(handle: &SessionHandle) -> usize {
    handle.session.unread_names()
}

/// Waits until no other thread works with a session.
pub(crate) async fn until_session_is_free(handle: &SessionHandle) {
    handle.session.until_free().await;
}

/// Ends a session, as [`SessionHandle::leave`] does.
pub(super) async fn leave(handle: &SessionHandle) {
    let many = loop {
        handle.session.until_free().await; // a last request may still be applied
        let few = handle.session.lock_below(HEAVY).map(|session| close_few(handle, session));
        match few {
            Ok(many) => break many,
            Err(NotLocked::Unread(names)) => break Some(names),
            Err(NotLocked::Taken) => handle.session.look_later().await,
        }
    };
    if let Some((itself, names)) = handle.itself.upgrade().zip(many) {
        let thread = Box::pin(SessionThread::free(&itself, HeavyKind::Reply, names)).await;
        Box::pin(thread.run(close)).await;
    }
    // The names stay charged until the view, which still has them, releases them.
    handle.interest().send_last().await;
    handle.place.commands.give_up();
    handle.place.clients.leave(handle.client.id);
    handle.place.log.stream_ended(&handle.client);
    handle.traces.end(&handle.client, &handle.place.counters.traces);
}

/// Closes a session, or returns how many names it has if they are many.
fn close_few(handle: &SessionHandle, session: MutexGuard<'_, Session>) -> Option<usize> {
    let names = session.report().kept_names().names;
    if names >= HEAVY {
        return Some(names);
    }
    close_locked(handle, session);
    None
}

fn close(handle: &SessionHandle) {
    close_locked(handle, handle.session.lock());
}

fn close_locked(handle: &SessionHandle, mut session: MutexGuard<'_, Session>) {
    session.report().unanswered().for_each(|(of, since)| handle.deliveries().given_up(of, since));
    session.close();
    // Sweeps leases now: no other session may take one for a long time, and the lease keeps a snapshot.
    let unused = (&*handle.place.published).access(|leases| leases.sweep(handle.place.clock.now()));
    drop(unused); // leases are not locked any more
    handle.note_nacks(session.take_nack_changes());
}

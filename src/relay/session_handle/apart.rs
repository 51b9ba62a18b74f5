//! Work with many names of a session whose connection lives on a thread of its own. Another thread does it, so that no other connection is held up.
//! Meanwhile the reader of requests and the body wait for the session without keeping their thread.

use std::future::Future;
use std::sync::Arc;
use std::task::Waker;

use weir_core::protocol::session::{Estimate, Step};

use super::SessionHandle;
use crate::relay::heavy::{self, HeavyTurn};

/// Why no step was made.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// The reply is of about so many bytes.
    Large(Estimate),
    /// It concerns so many names that [`step_apart`] is to make it.
    ManyNames,
}

/// A session that another thread works with, until this is dropped.
struct Apart(Arc<SessionHandle>);

impl Apart {
    fn begin(handle: Arc<SessionHandle>) -> Self {
        handle.session.set_apart(true);
        Self(handle)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.session.set_apart(false);
    }
}

/// Lets another thread work with a session that is free. Then its body is woken.
pub(crate) async fn work_apart<T: Send + 'static>(
    handle: Arc<SessionHandle>,
    turn: Option<HeavyTurn>,
    work: impl FnOnce(&SessionHandle) -> T + Send + 'static,
) -> T {
    let done = run(handle.clone(), turn, work).await;
    handle.waker.wake();
    done
}

/// Lets another thread make the next step of a session that is free. The waker is woken if anything comes that the step may not know.
pub(crate) fn step_apart(handle: Arc<SessionHandle>, waker: &Waker) -> impl Future<Output = Step> + Send + use<> {
    handle.waker.register(waker);
    run(handle, None, SessionHandle::step)
}

fn run<T: Send + 'static, W: FnOnce(&SessionHandle) -> T + Send + 'static>(
    handle: Arc<SessionHandle>,
    turn: Option<HeavyTurn>,
    work: W,
) -> impl Future<Output = T> + Send + use<T, W> {
    let apart = Apart::begin(handle);
    heavy::apart(turn, move || {
        let apart = apart;
        work(&apart.0)
    })
}

/// Waits until no other thread works with a session. Until the next await none begins.
pub(crate) async fn until_session_is_free(handle: &SessionHandle) {
    handle.session.until_free().await;
}

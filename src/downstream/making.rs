//! A reply with many names: another thread makes and encodes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use weir_core::protocol::session::{CloseReason, Step};

use super::encode::SharedMessages;
use super::encoded::Encoded;
use crate::relay::{SessionHandle, Unmade, step_apart};

/// The next step of a session, while another thread makes it.
pub(super) struct Making {
    step: Pin<Box<dyn Future<Output = Result<NextStep, Unmade>> + Send>>,
    news: Arc<News>,
}

/// The next step of a session.
pub(super) enum NextStep {
    Made(Step),
    /// A reply that is encoded already.
    Encoded(Box<Encoded>),
}

/// Wakes the body when something new comes, and notes that it has come since the step was begun.
struct News {
    body: Waker,
    has_come: AtomicBool,
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.body.wake_by_ref();
    }
}

impl Making {
    /// Begins the next step of a session with so many names, but makes no reply of about `limit` bytes or more.
    pub(super) fn begin(
        handle: &Arc<SessionHandle>,
        messages: &Arc<SharedMessages>,
        names: usize,
        limit: usize,
        cx: &Context<'_>,
    ) -> Self {
        let news = News::for_body(cx);
        let (waker, known) = (Waker::from(news.clone()), news.clone());
        let begins = move || known.has_come.store(false, Ordering::Release); // the step will know it
        let (handle, messages) = (handle.clone(), messages.clone());
        let encode = move |handle: &SessionHandle, step: Result<Step, Unmade>| {
            step.map(|step| match step {
                Step::Reply(reply) => {
                    let variant = handle.client().variant;
                    NextStep::Encoded(Box::new(Encoded::of(*reply, variant, Some(handle), &messages)))
                }
                other => NextStep::Made(other),
            })
        };
        let step = async move {
            let made = step_apart(handle, names, limit, waker, begins, encode).await;
            made.unwrap_or(Ok(NextStep::Made(Step::End(CloseReason::ViewFailed)))) // making it has panicked
        };
        Self { step: Box::pin(step), news }
    }

    /// Returns the step; `None` if there was nothing to send, and something new has come since.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<NextStep, Unmade>>> {
        let step = ready!(self.step.as_mut().poll(cx));
        let is_old = matches!(step, Ok(NextStep::Made(Step::Idle(_)))) && self.news.has_come.load(Ordering::Acquire);
        Poll::Ready((!is_old).then_some(step))
    }
}

impl News {
    fn for_body(cx: &Context<'_>) -> Arc<Self> {
        Arc::new(Self { body: cx.waker().clone(), has_come: AtomicBool::new(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::body::tests::Woken;

    #[test]
    fn a_session_with_nothing_to_send_is_polled_again_if_something_has_come_meanwhile() {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut polled = |step: Step, comes: bool| {
            let news = News::for_body(&cx);
            if comes {
                Waker::from(news.clone()).wake();
            }
            let step = Box::pin(async move { Ok(NextStep::Made(step)) });
            let Poll::Ready(step) = Making { step, news }.poll(&mut cx) else { panic!("it waits") };
            step
        };
        assert!(matches!(polled(Step::Idle(None), false), Some(Ok(NextStep::Made(Step::Idle(None))))));
        assert!(polled(Step::Idle(None), true).is_none());
        assert!(matches!(polled(Step::End(CloseReason::ViewFailed), true), Some(Ok(NextStep::Made(Step::End(_))))));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }
}

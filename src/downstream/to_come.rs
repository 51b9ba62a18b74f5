//! A reply that waits for its compressed form and then, if it is large, for a turn. Its client gives up its own turn meanwhile: nothing is sent.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Estimate, ReplyLag};

use super::encode::{CompressedForms, FormToCome, Outgoing};
use super::turns::{LARGE, Turn, Turns};
use crate::relay::taps::ReplyGlance;
use crate::relay::{Blocker, SessionHandle, TypePlace, reply_waits};

/// What is counted for a reply, and shown of it to those who tap its session, once its form is decided.
pub(super) struct Count {
    pub(super) place: TypePlace,
    pub(super) lag: ReplyLag,
    pub(super) tapped: Option<Box<ReplyGlance>>,
}

pub(super) struct ToCome {
    stage: Stage,
    pub(super) count: Option<Count>,
    /// When the wait began.
    since: Moment,
    /// Whether the reply brings something that the client lacks.
    is_first: bool,
}

enum Stage {
    Form(Box<FormToCome>),
    Turn(Box<Outgoing>, Turn),
    Over,
}

/// A reply that is sent now, with its turn if it is large.
pub(super) struct Come {
    pub(super) outgoing: Outgoing,
    pub(super) turn: Option<Turn>,
}

impl Count {
    /// Counts the reply as sent after this wait.
    pub(super) fn add(&mut self, waited: Duration) {
        self.lag = later(self.lag, waited);
    }
}

impl ToCome {
    pub(super) fn new(form: Box<FormToCome>, count: Option<Count>, since: Moment, is_first: bool) -> Self {
        Self { stage: Stage::Form(form), count, since, is_first }
    }

    /// Waits for the form, and then for a turn. When the stream ends, the reply is sent as it is.
    pub(super) fn poll(
        &mut self,
        forms: &CompressedForms,
        turns: &Arc<Turns>,
        has_ended: bool,
        handle: Option<&SessionHandle>,
        cx: &mut Context<'_>,
    ) -> Poll<Come> {
        loop {
            match &mut self.stage {
                Stage::Form(form) => {
                    let made = form.poll(cx);
                    if !has_ended {
                        ready!(made);
                    }
                }
                Stage::Turn(_, turn) if !has_ended => ready!(turn.poll_granted(cx)),
                Stage::Turn(..) => {}
                Stage::Over => return Poll::Pending, // already returned
            }
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Form(form) => {
                    let outgoing = form.reply(forms);
                    if outgoing.bytes() < LARGE || has_ended {
                        return Poll::Ready(Come { outgoing, turn: None });
                    }
                    let estimate = Estimate { bytes: outgoing.bytes(), is_first: self.is_first };
                    handle.iter().for_each(|handle| reply_waits(handle, Blocker::Turn));
                    self.stage = Stage::Turn(Box::new(outgoing), turns.enter(estimate));
                }
                Stage::Turn(outgoing, turn) => {
                    return Poll::Ready(Come { outgoing: *outgoing, turn: Some(turn) });
                }
                Stage::Over => return Poll::Pending,
            }
        }
    }

    /// Returns how long it has waited.
    pub(super) fn waited(&self, now: Moment) -> Duration {
        now - self.since
    }
}

fn later(ReplyLag { change, request }: ReplyLag, by: Duration) -> ReplyLag {
    ReplyLag { change: change.map(|lag| lag + by), request: request.map(|lag| lag + by) }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use weir_core::protocol::session::Variant;

    use super::*;
    use crate::compression::Compression;
    use crate::downstream::body::tests::{Woken, reply_of_text};
    use crate::downstream::encode::{CompressionClient, SharedMessages};
    use crate::memory::{Budget, Memory};

    /// Returns a reply of so many bytes that waits for its form, and the maker of the form.
    fn to_come(bytes: usize) -> (ToCome, Arc<CompressedForms>) {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let (forms, messages) = (CompressedForms::new(memory, Arc::default()), SharedMessages::new("weir"));
        let outgoing = Outgoing::new(reply_of_text(bytes), Variant::Delta, &messages);
        let form =
            forms.compress(outgoing, CompressionClient::new(Compression::Always, "view")).expect_err("it is to come");
        (ToCome::new(form, None, Moment::START, true), forms)
    }

    #[tokio::test]
    async fn a_large_reply_whose_form_has_come_takes_a_turn_again_and_a_small_one_needs_none() {
        for (bytes, is_large) in [(4 << 20, true), (100 << 10, false)] {
            let (mut waits, forms) = to_come(bytes);
            let turns = Turns::with_places(1, Arc::default());
            let served = turns.enter(Estimate::default());
            let polled = |waits: &mut ToCome, cx: &mut Context<'_>| waits.poll(&forms, &turns, false, None, cx);
            let come = std::future::poll_fn(|cx| match polled(&mut waits, cx) {
                Poll::Pending if !matches!(waits.stage, Stage::Turn(..)) => Poll::Pending,
                come => Poll::Ready(come),
            });
            let come = come.await;
            assert_eq!(come.is_pending(), is_large, "{bytes} bytes");
            if let Poll::Ready(come) = come {
                assert!(come.turn.is_none());
                continue;
            }
            let woken = Arc::<Woken>::default();
            let waker = Waker::from(woken.clone());
            assert!(polled(&mut waits, &mut Context::from_waker(&waker)).is_pending());
            drop(served);
            assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed) > 0, "its turn wakes it");
            let Poll::Ready(come) = polled(&mut waits, &mut Context::from_waker(&waker)) else { panic!("its turn") };
            assert!(come.turn.is_some() && come.outgoing.bytes() >= LARGE);
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_waits_for_neither_form_nor_turn() {
        let (mut waits, forms) = to_come(4 << 20);
        let (turns, mut cx) = (Turns::with_places(1, Arc::default()), Context::from_waker(Waker::noop()));
        let _served = turns.enter(Estimate::default());
        let come = waits.poll(&forms, &turns, true, None, &mut cx);
        assert!(matches!(come, Poll::Ready(come) if come.outgoing.form().is_none()));
    }

    #[test]
    fn what_a_reply_has_waited_is_a_part_of_its_lag() {
        let [before, waited] = [5, 150].map(Duration::from_millis);
        let lag = later(ReplyLag { change: Some(before), request: None }, waited);
        assert_eq!((lag.change, lag.request), (Some(before + waited), None));
        let lag = later(ReplyLag { change: None, request: Some(before) }, waited);
        assert_eq!((lag.change, lag.request), (None, Some(before + waited)));
    }
}

//! Liveness calls of the streams' own methods, on one connection. A server counts each call as a stream, so a healthy server gets few.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The state of such calls, by method. Results on other connections do not count: they may lead to other servers.
#[derive(Debug, Default)]
pub(super) struct MethodCalls(Mutex<HashMap<&'static str, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// When the last one began.
    begun: Option<Instant>,
    /// When the last answered call began.
    answered: Option<Instant>,
    under_way: usize,
    /// Since when calls are under way.
    under_way_since: Option<Instant>,
    /// The last one was not answered.
    is_missed: bool,
}

/// Whether a stream may make a call.
#[derive(Debug)]
pub(super) enum CallDecision<'a> {
    Call(MethodCall<'a>),
    /// A call of another stream was answered, and had begun after this stream asked.
    Answered,
    /// No call before this time.
    TooEarly(Instant),
}

/// A call that is under way.
#[derive(Debug)]
pub(super) struct MethodCall<'a> {
    calls: &'a MethodCalls,
    method: &'static str,
    begun: Instant,
    /// When the call before this one began.
    earlier: Option<Instant>,
    has_ended: bool,
}

impl MethodCalls {
    /// Decides whether a stream makes a call. The stream has wanted a sign of life since `asked`. If calls are answered within `prompt`, one call
    /// in each interval counts for all streams.
    pub(super) fn leave(&self, method: &'static str, asked: Instant, prompt: Duration) -> CallDecision<'_> {
        let now = Instant::now();
        let mut all = self.lock();
        let known = all.entry(method).or_default();
        if known.answered.is_some_and(|begun| begun >= asked) {
            return CallDecision::Answered;
        }
        let is_late = known.under_way_since.map(|since| since + prompt);
        let from = is_late.or(known.begun.map(|begun| begun + INTERVAL)).filter(|from| now < *from);
        if let Some(from) = from
            && !known.is_missed
        {
            return CallDecision::TooEarly(from);
        }
        let earlier = known.begun.replace(now);
        known.under_way += 1;
        known.under_way_since.get_or_insert(now);
        CallDecision::Call(MethodCall { calls: self, method, begun: now, earlier, has_ended: false })
    }

    /// Whether no stream has made such a call.
    pub(super) fn is_untried(&self, method: &'static str) -> bool {
        self.lock().get(method).is_none_or(|known| known.begun.is_none())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MethodCall<'_> {
    pub(super) fn answered(mut self) {
        self.end(|known, begun| (known.answered, known.is_missed) = (known.answered.max(Some(begun)), false));
    }

    /// Records that the call was refused, which says nothing about the server.
    pub(super) fn refused(mut self) {
        self.end(|_, _| ());
    }

    /// Records that the server has not answered. Returns whether that is a sign of a dead server. It is one if `evidence` is set, or if such a call
    /// was answered before on this connection. Without an earlier answer it is none, since some handlers do not notice that a client has closed its
    /// side.
    pub(super) fn missed(mut self, evidence: bool) -> bool {
        self.end(|known, _| {
            known.is_missed = evidence || known.answered.is_some();
            known.is_missed
        })
    }

    fn end<T>(&mut self, change: impl FnOnce(&mut Known, Instant) -> T) -> T {
        self.has_ended = true;
        change(self.calls.lock().entry(self.method).or_default(), self.begun)
    }
}

/// A call that was given up counts as if it had not begun, so that no stream waits for it.
impl Drop for MethodCall<'_> {
    fn drop(&mut self) {
        let mut all = self.calls.lock();
        let known = all.entry(self.method).or_default();
        known.under_way -= 1;
        known.under_way_since = known.under_way_since.filter(|_| known.under_way > 0);
        if !self.has_ended && known.begun == Some(self.begun) {
            known.begun = self.earlier;
        }
    }
}

/// The time between two answered calls.
const INTERVAL: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(calls: &'a MethodCalls, asked: Instant) -> Option<MethodCall<'a>> {
        match calls.leave("/a", asked, PROMPT) {
            CallDecision::Call(call) => Some(call),
            _ => None,
        }
    }

    fn too_early(calls: &MethodCalls, asked: Instant) -> Option<Instant> {
        match calls.leave("/a", asked, PROMPT) {
            CallDecision::TooEarly(until) => Some(until),
            _ => None,
        }
    }

    const PROMPT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn one_answer_is_for_all_who_asked_before_its_call_and_the_next_call_comes_later() {
        let (calls, asked) = (MethodCalls::default(), Instant::now());
        let first = call(&calls, asked).unwrap();
        assert_eq!(too_early(&calls, asked), Some(asked + PROMPT), "one at a time");
        assert!(calls.is_untried("/b"));
        let CallDecision::Call(other) = calls.leave("/b", asked, PROMPT) else { panic!("each method by itself") };
        other.refused();
        assert!(!calls.is_untried("/b"));
        first.answered();
        assert!(matches!(calls.leave("/a", asked, PROMPT), CallDecision::Answered));
        tokio::time::advance(Duration::from_millis(1)).await;
        let later = Instant::now();
        assert_eq!(too_early(&calls, later), Some(asked + INTERVAL));
        tokio::time::advance(INTERVAL).await;
        drop(call(&calls, later).unwrap());
        call(&calls, later).expect("one that was given up keeps none waiting").refused();
        assert_eq!(too_early(&calls, later), Some(Instant::now() + INTERVAL), "one that was refused counts");
        tokio::time::advance(INTERVAL).await;
        assert!(call(&calls, later).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn when_one_is_missed_that_was_answered_before_each_stream_asks_by_itself() {
        let (calls, asked) = (MethodCalls::default(), Instant::now());
        assert!(!call(&calls, asked).unwrap().missed(false), "none was ever answered");
        assert!(too_early(&calls, asked).is_some());
        tokio::time::advance(INTERVAL).await;
        call(&calls, asked).unwrap().answered();
        tokio::time::advance(INTERVAL).await;
        let asked = Instant::now();
        assert!(call(&calls, asked).unwrap().missed(false));
        let both = [call(&calls, asked).unwrap(), call(&calls, asked).unwrap()];
        let [one, two] = both;
        assert!(one.missed(false));
        two.answered();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(too_early(&calls, Instant::now()).is_some(), "the server is there again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missed_for_a_reason_of_its_own_lets_each_stream_ask_although_none_was_ever_answered() {
        let (calls, asked) = (MethodCalls::default(), Instant::now());
        assert!(call(&calls, asked).unwrap().missed(true));
        let both = [call(&calls, asked).unwrap(), call(&calls, asked).unwrap()];
        assert!(both.into_iter().all(|call| call.missed(true)));
    }

    #[tokio::test(start_paused = true)]
    async fn when_one_is_late_the_others_do_not_wait_for_its_end() {
        let (calls, asked) = (MethodCalls::default(), Instant::now());
        let first = call(&calls, asked).unwrap();
        tokio::time::advance(PROMPT).await;
        let both = [call(&calls, asked).unwrap(), call(&calls, asked).unwrap()];
        drop(both);
        assert!(call(&calls, asked).is_some(), "it is still late");
        first.answered();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(too_early(&calls, Instant::now()), Some(asked + INTERVAL), "of the others nothing is left");
    }
}

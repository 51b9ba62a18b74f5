//! The state that the two halves of a stream share: the task that reads requests fills it, and the body that writes replies waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures_util::task::AtomicWaker;
use http::{HeaderMap, HeaderValue};
use tokio::sync::Notify;
use weir_core::proto::code;
use weir_core::protocol::session::{BadRequest, CloseReason, Reply};
use weir_core::xds::Denied;

use super::unfinished_replies::Unfinished;
use crate::grpc_message;
use crate::memory::GivesWay;
use crate::relay::{AdmissionError, SessionHandle};

/// How a stream ends, as a gRPC status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(crate) code: i32,
    pub(crate) message: String,
}

#[derive(Default)]
pub(super) struct Slot {
    session: OnceLock<Arc<SessionHandle>>,
    /// The only response of a unary call.
    answer: Mutex<Option<Reply>>,
    last: Mutex<LastReply>,
    /// Whether its session has left, or none will come.
    has_left: AtomicBool,
    replied: Signal,
    end: Mutex<Option<End>>,
    body: AtomicWaker,
    /// Notified when replies have ended, so that the reading task may stop.
    over: Notify,
}

struct End {
    status: Status,
    /// Whether the client is sent a reply first that is made already.
    is_after_reply: bool,
}

/// What is to be given up when the stream gives way.
#[derive(Default)]
struct LastReply {
    /// The last reply of several pieces, until all are sent.
    unfinished: Weak<Unfinished>,
    /// Whether the stream gives way, and with it a reply that begins only now.
    gives_way: bool,
}

/// Whether the stream has had a reply, with a way to wait for the first one.
#[derive(Default)]
struct Signal {
    yes: AtomicBool,
    now: Notify,
}

impl Slot {
    pub(crate) fn attach(&self, handle: Arc<SessionHandle>) {
        let _ = self.session.set(handle); // once per stream
        self.body.wake();
    }

    pub(crate) fn answer(&self, reply: Reply) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
    }

    pub(crate) fn take_answer(&self) -> Option<Reply> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records a reply that is sent in pieces. It gives way if its stream does.
    pub(super) fn send(&self, reply: &Arc<Unfinished>) {
        let mut last = self.lock_last();
        last.unfinished = Arc::downgrade(reply);
        let gives_way = last.gives_way;
        drop(last);
        if gives_way {
            reply.give_way();
        }
    }

    /// Records that the session has left, or that none will come.
    pub(super) fn note_left(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    fn lock_last(&self) -> MutexGuard<'_, LastReply> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a reply is being sent.
    pub(crate) fn signal(&self) {
        if !self.replied.yes.swap(true, Ordering::AcqRel) {
            self.replied.now.notify_one();
        }
    }

    /// Waits until the stream has had a reply.
    pub(crate) async fn answered(&self) {
        if !self.replied.yes.load(Ordering::Acquire) {
            self.replied.now.notified().await;
        }
    }

    pub(crate) fn handle(&self) -> Option<&Arc<SessionHandle>> {
        self.session.get()
    }

    /// Ends the stream without another reply: it gives way to others, or its client may have nothing more. An earlier end stays.
    pub(crate) fn end(&self, status: Status) {
        self.end_with(End { status, is_after_reply: false });
    }

    /// Ends the stream after a reply that is made already: its client goes elsewhere, or has half-closed. An earlier end stays.
    pub(crate) fn end_after_reply(&self, status: Status) {
        self.end_with(End { status, is_after_reply: true });
    }

    fn end_with(&self, end: End) {
        self.lock_end().get_or_insert(end);
        self.body.wake();
    }

    pub(crate) fn ended(&self) -> Option<Status> {
        self.lock_end().as_ref().map(|end| end.status.clone())
    }

    /// Returns the status of a stream that ends without another reply.
    pub(crate) fn ended_at_once(&self) -> Option<Status> {
        self.lock_end().as_ref().filter(|end| !end.is_after_reply).map(|end| end.status.clone())
    }

    fn lock_end(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the task that reads requests that the replies have ended.
    pub(crate) fn finish(&self) {
        self.over.notify_one();
    }

    /// Waits until the replies have ended.
    pub(crate) async fn finished(&self) {
        self.over.notified().await;
    }

    pub(crate) fn wait(&self, waker: &std::task::Waker) {
        self.body.register(waker);
    }
}

impl GivesWay for Slot {
    /// The reading task ends the session, even if the client reads nothing of the reply on its way. That reply gives way too.
    fn give_way(&self, why: &str) -> bool {
        self.end(Status::exhausted(why));
        self.finish();
        let mut last = self.lock_last();
        let ends_session = !std::mem::replace(&mut last.gives_way, true) && !self.has_left.load(Ordering::Acquire);
        let reply = last.unfinished.upgrade();
        drop(last);
        reply.is_some_and(|reply| reply.give_way()) || ends_session
    }
}

impl Status {
    /// Returns the headers that end a call with it.
    pub(crate) fn trailers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(self.code));
        if let Some(message) = grpc_message::header(&self.message) {
            headers.insert("grpc-message", message);
        }
        headers
    }

    pub(crate) fn ok() -> Self {
        Self { code: code::OK, message: String::new() }
    }

    /// The end of a stream whose client has left. No status is sent.
    pub(crate) fn cancelled() -> Self {
        Self { code: CANCELLED, message: "the client has left".into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { code: code::INVALID_ARGUMENT, message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { code: code::NOT_FOUND, message: message.into() }
    }

    pub(crate) fn exhausted(message: impl Into<String>) -> Self {
        Self { code: code::RESOURCE_EXHAUSTED, message: message.into() }
    }

    pub(crate) fn unimplemented(message: impl Into<String>) -> Self {
        Self { code: code::UNIMPLEMENTED, message: message.into() }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { code: code::INTERNAL, message: message.into() }
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self { code: code::PERMISSION_DENIED, message: message.into() }
    }

    pub(crate) fn unauthenticated(message: impl Into<String>) -> Self {
        Self { code: code::UNAUTHENTICATED, message: message.into() }
    }

    /// Returns the status that a control plane sent. A code that is not an error becomes UNKNOWN.
    fn of_server(server: i32, message: String) -> Self {
        let code = if (1..=16).contains(&server) { server } else { code::UNKNOWN };
        Self { code, message }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: code::UNAVAILABLE, message: message.into() }
    }
}

impl From<CloseReason> for Status {
    fn from(reason: CloseReason) -> Self {
        let text = reason.to_string();
        match reason {
            CloseReason::HistoryExpired
            | CloseReason::KeyChanged
            | CloseReason::NoUpstream
            | CloseReason::ViewFailed => Self::unavailable(text),
            CloseReason::TypeRefused(status) | CloseReason::Refused(status) => Self::of_server(status.code, text),
            CloseReason::BadRequest(
                BadRequest::TooManyTypes(_)
                | BadRequest::TooManyNames(_)
                | BadRequest::TooManyNamesOnStream(_)
                | BadRequest::TooManyStatedVersions(_),
            ) => Self::exhausted(text),
            CloseReason::BadRequest(BadRequest::TypeNotPermitted { .. }) => Self::denied(text),
            CloseReason::Denied(denied) => denial(&denied, text),
            CloseReason::BadRequest(_) => Self::invalid(text),
        }
    }
}

impl From<AdmissionError> for Status {
    fn from(rejected: AdmissionError) -> Self {
        let text = rejected.to_string();
        match rejected {
            AdmissionError::NoNode | AdmissionError::BadNode => Self::invalid(text),
            AdmissionError::TooManyViews { .. }
            | AdmissionError::TooManyViewsOfConnection { .. }
            | AdmissionError::TooManyViewsOfIdentity { .. }
            | AdmissionError::TooManyViewsOfTenant { .. }
            | AdmissionError::TooManyStreamsOfTenant { .. }
            | AdmissionError::NoMemory(_) => Self::exhausted(text),
            AdmissionError::Denied(denied) => denial(&denied, text),
            AdmissionError::RefusedByServer(status) => Self::of_server(status.code, text),
            AdmissionError::Stopping | AdmissionError::ConfigurationChanged => Self::unavailable(text),
        }
    }
}

/// A client without a proven identity is unauthenticated. Any other is denied.
fn denial(denied: &Denied, text: String) -> Status {
    match denied {
        Denied::NoRule { proved: false, .. } => Status { code: code::UNAUTHENTICATED, message: text },
        _ => Status::denied(text),
    }
}

/// The status that gRPC clients see for a call that they cancelled.
const CANCELLED: i32 = 1;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use futures_util::FutureExt;

    use super::*;
    use crate::downstream::body::tests::Woken;

    #[test]
    fn the_end_of_a_stream_wakes_its_body_and_the_first_reply_those_who_wait_for_it() {
        let (slot, woken) = (Slot::default(), Arc::<Woken>::default());
        slot.wait(&Waker::from(woken.clone()));
        slot.end(Status::ok());
        assert_eq!((woken.0.load(Ordering::Relaxed), slot.ended()), (1, Some(Status::ok())));

        let mut answered = pin!(slot.answered());
        assert!(answered.as_mut().now_or_never().is_none());
        slot.signal();
        assert!(answered.now_or_never().is_some() && slot.answered().now_or_never().is_some());
    }

    #[test]
    fn a_stream_gives_way_once_and_not_if_its_session_has_left_before() {
        let (open, half_closed) = (Slot::default(), Slot::default());
        half_closed.note_left();
        assert_eq!([&open, &open, &half_closed].map(|slot| slot.give_way("no memory")), [true, false, false]);
    }
}

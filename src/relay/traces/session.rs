//! The spans that one client stream takes part in: its own until its first complete set, and those of changes that it is being sent.
//!
//! A stream without any costs a look at one flag for each reply and each answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::{OpenChange, Outcome};
use super::span::{SpanIds, SpanTime};
use crate::protocol::view::Revision;
use crate::xds::Type;

#[derive(Debug, Default)]
pub(crate) struct SessionTraces {
    /// Whether there is anything to note.
    is_active: AtomicBool,
    /// Used by the task of the stream and by that of its view, each for a short time. There is no second client behind it.
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    start: Option<StreamStart>,
    /// Changes that the client has not been sent.
    due: Vec<Arc<OpenChange>>,
    /// Changes that it has not answered, by the number of the reply.
    sent: Vec<(u64, Arc<OpenChange>)>,
    has_left: bool,
}

/// The open span of a stream's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamStart {
    pub(crate) ids: SpanIds,
    pub(crate) time: SpanTime,
    pub(crate) replies: u64,
}

impl SessionTraces {
    /// Begins with the span of the stream's start, if it is sampled.
    pub(crate) fn of_stream(ids: Option<SpanIds>) -> Self {
        let start = ids.map(|ids| StreamStart { ids, time: SpanTime::now(), replies: 0 });
        let is_active = AtomicBool::new(start.is_some());
        Self { is_active, noted: Mutex::new(Noted { start, ..Noted::default() }) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Returns the span of the stream's start while it is open.
    pub(crate) fn stream_ids(&self) -> Option<SpanIds> {
        self.lock().start.map(|start| start.ids)
    }

    /// A change concerns the client.
    pub(crate) fn concern(&self, change: &Arc<OpenChange>) {
        let mut noted = self.lock();
        if noted.has_left {
            return change.count(Outcome::Left);
        }
        noted.forget_ended(); // so that there are no more than open changes, however long the client stalls
        noted.due.push(change.clone());
        self.is_active.store(true, Ordering::Release);
    }

    /// A reply of a type, made from a snapshot, is handed to the transport.
    pub(crate) fn on_reply(&self, kind: &Type, nonce: u64, revision: Revision) {
        let noted = &mut *self.lock();
        noted.start.iter_mut().for_each(|start| start.replies += 1);
        for change in noted.due.extract_if(.., |change| change.is_in(kind, revision)) {
            change.count(Outcome::Sent);
            noted.sent.push((nonce, change));
        }
    }

    /// The client has answered a reply of a type, and with it earlier ones of the type that it did not answer. Returns a span of those.
    pub(crate) fn on_answer(&self, kind: &Type, nonce: u64, is_ack: bool) -> Option<SpanIds> {
        let mut noted = self.lock();
        let mut of = None;
        for (_, change) in noted.sent.extract_if(.., |(sent, change)| *sent <= nonce && change.is_of(kind)) {
            change.count(if is_ack { Outcome::Acked } else { Outcome::Nacked });
            of = Some(change.ids);
        }
        self.note_activity(&mut noted);
        of
    }

    /// Takes the span of the stream's start, which ends.
    pub(crate) fn take_start(&self) -> Option<StreamStart> {
        let mut noted = self.lock();
        let start = noted.start.take();
        self.note_activity(&mut noted);
        start
    }

    /// The stream ends, and answers nothing any more.
    pub(crate) fn leave(&self) {
        let noted = &mut *self.lock();
        noted.has_left = true;
        let unanswered = noted.due.drain(..).chain(noted.sent.drain(..).map(|(_, change)| change));
        unanswered.for_each(|change| change.count(Outcome::Left));
    }

    fn note_activity(&self, noted: &mut Noted) {
        noted.forget_ended();
        let is_active = noted.start.is_some() || !noted.due.is_empty() || !noted.sent.is_empty();
        self.is_active.store(is_active, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn forget_ended(&mut self) {
        self.due.retain(|change| !change.has_ended());
        self.sent.retain(|(_, change)| !change.has_ended());
    }
}

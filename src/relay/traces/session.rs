//! The spans of one client stream: its own until its first complete set, and those of changes that it is being sent.
//!
//! A stream without spans only reads one flag for each reply and each answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_core::protocol::view::Revision;
use weir_core::xds::Type;

use super::change::{OpenChange, Outcome};
use super::span::{STREAM, SpanIds, SpanRecord, SpanTime};
use super::tracer::Traces;
use crate::relay::clients::ClientFacts;

#[derive(Debug, Default)]
pub(crate) struct SessionTraces {
    /// Whether there is anything to note.
    is_active: AtomicBool,
    /// The stream has ended. Written while `noted` is locked.
    has_left: AtomicBool,
    /// Used by the tasks of the stream and by that of its view, each for a short time; other clients never wait for it. Most streams have none.
    noted: Mutex<Option<Box<Noted>>>,
}

#[derive(Debug, Default)]
struct Noted {
    start: Option<StreamStart>,
    /// Changes that the client has not been sent.
    due: Vec<Weak<OpenChange>>,
    /// Changes that it has not answered, by the number of the reply.
    sent: Vec<(u64, Weak<OpenChange>)>,
}

/// The open span of a stream's start.
#[derive(Debug, Clone, Copy)]
struct StreamStart {
    ids: SpanIds,
    time: SpanTime,
    replies: u64,
}

impl SessionTraces {
    /// Begins with the span of the stream's start, if it is sampled.
    pub(crate) fn of_stream(ids: Option<SpanIds>) -> Self {
        let start = ids.map(|ids| StreamStart { ids, time: SpanTime::now(), replies: 0 });
        let noted = start.map(|start| Box::new(Noted { start: Some(start), ..Noted::default() }));
        Self { is_active: noted.is_some().into(), has_left: false.into(), noted: Mutex::new(noted) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Returns the span of the stream's start while it is open.
    pub(crate) fn stream_ids(&self) -> Option<SpanIds> {
        Some(self.lock().as_ref()?.start?.ids)
    }

    /// A change concerns the client.
    pub(crate) fn concern(&self, change: &Arc<OpenChange>) {
        let mut noted = self.lock();
        if self.has_left.load(Ordering::Relaxed) {
            return change.count(Outcome::Left);
        }
        let noted = noted.get_or_insert_default();
        noted.forget_ended(); // so that there are no more than open changes, however long the client stalls
        noted.due.push(Arc::downgrade(change));
        self.is_active.store(true, Ordering::Release);
    }

    /// A reply of a type, made from a snapshot, is handed to the transport.
    pub(crate) fn on_reply(&self, kind: &Type, nonce: u64, revision: Revision) {
        let mut noted = self.lock();
        let Some(noted) = &mut *noted else { return };
        noted.start.iter_mut().for_each(|start| start.replies += 1);
        noted.forget_ended();
        let is_in = |change: &mut Weak<OpenChange>| change.upgrade().is_some_and(|change| change.is_in(kind, revision));
        for change in noted.due.extract_if(.., is_in) {
            count(&change, Outcome::Sent);
            noted.sent.push((nonce, change));
        }
    }

    /// Records an answer to a reply of a type. It also answers earlier replies of the type that were not answered. Returns one of their spans.
    pub(crate) fn on_answer(&self, kind: &Type, nonce: u64, is_ack: bool) -> Option<SpanIds> {
        let outcome = if is_ack { Outcome::Acked } else { Outcome::Nacked };
        self.change(|noted| {
            let is_of = |change: &Weak<OpenChange>| change.upgrade().is_some_and(|change| change.is_of(kind));
            let settled = noted.sent.extract_if(.., |(sent, change)| *sent <= nonce && is_of(change));
            settled.filter_map(|(_, change)| count(&change, outcome)).last()
        })
    }

    /// Ends the span of the stream's start, if it is open: the client has been sent all that it requested, or the stream ends before.
    pub(crate) fn end_start(&self, is_complete: bool, client: &ClientFacts, traces: &Traces) {
        let Some(start) = self.change(|noted| noted.start.take()) else { return };
        let values = [
            client.id.0.into(),
            client.node_id.as_str().into(),
            client.peer.to_string().as_str().into(),
            client.key.as_str().into(),
            client.variant.name().into(),
            start.replies.into(),
            is_complete.into(),
        ];
        let time = (start.time, start.time.elapsed());
        traces.take(SpanRecord::new(&STREAM, start.ids, time, values));
    }

    /// The stream ends, and answers nothing any more.
    pub(crate) fn end(&self, client: &ClientFacts, traces: &Traces) {
        if self.is_active() {
            self.end_start(false, client, traces);
        }
        self.leave();
    }

    pub(super) fn leave(&self) {
        let mut noted = self.lock();
        self.has_left.store(true, Ordering::Relaxed);
        let Some(noted) = noted.take() else { return };
        let unanswered = noted.due.into_iter().chain(noted.sent.into_iter().map(|(_, change)| change));
        for change in unanswered {
            let _ = count(&change, Outcome::Left); // its span is not needed
        }
    }

    /// Changes what is noted, and drops it if nothing is left.
    fn change<T>(&self, change: impl FnOnce(&mut Noted) -> Option<T>) -> Option<T> {
        let mut locked = self.lock();
        let noted = locked.as_mut()?;
        let result = change(noted);
        noted.forget_ended();
        if noted.start.is_none() && noted.due.is_empty() && noted.sent.is_empty() {
            *locked = None;
            self.is_active.store(false, Ordering::Release);
        }
        result
    }

    /// Returns how many open changes the client has not been sent.
    #[cfg(test)]
    pub(super) fn due(&self) -> usize {
        let noted = self.lock();
        noted.iter().flat_map(|noted| &noted.due).filter(|change| change.strong_count() > 0).count()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Noted>>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn forget_ended(&mut self) {
        self.due.retain(|change| change.strong_count() > 0);
        self.sent.retain(|(_, change)| change.strong_count() > 0);
    }
}

/// Counts the result of a change, unless the change has ended. Returns its span.
fn count(change: &Weak<OpenChange>, outcome: Outcome) -> Option<SpanIds> {
    let change = change.upgrade()?;
    change.count(outcome);
    Some(change.ids)
}

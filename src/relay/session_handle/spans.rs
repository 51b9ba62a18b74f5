//! The spans that a session takes part in.

use super::SessionHandle;
use crate::protocol::moment::Moment;
use crate::protocol::session::{Ack, Answered, Session, Step};
use crate::protocol::view::Snapshot;
use crate::relay::traces::{STREAM, SpanIds, SpanRecord};

impl SessionHandle {
    /// Notes what a poll of the session has given.
    pub(super) fn trace_step(&self, step: &Step, session: &Session, newest: &Snapshot, now: Moment) {
        match step {
            Step::Reply(reply) => self.traces.on_reply(&reply.kind, reply.nonce, reply.revision),
            // Most streams that take part in a span have begun long ago.
            Step::Idle(_)
                if self.traces.stream_ids().is_some() && session.report().has_sent_all_requested(newest, now) =>
            {
                self.end_stream_start(true);
            }
            Step::Idle(_) | Step::End(_) => {}
        }
    }

    /// Notes an answer of the client. Returns the span of a change that it is about.
    pub(super) fn trace_answer(&self, answer: Option<Ack>, answered: Option<&Answered>) -> Option<SpanIds> {
        if !self.traces.is_active() {
            return None;
        }
        let (Some(Ack::Ack { nonce, .. } | Ack::Nack { nonce, .. }), Some(answered)) = (answer, answered) else {
            return None;
        };
        self.traces.on_answer(&answered.kind, nonce, answered.is_ack)
    }

    /// The stream takes part in no span any more.
    pub(super) fn end_traces(&self) {
        if self.traces.is_active() {
            self.end_stream_start(false);
        }
        self.traces.leave();
    }

    fn end_stream_start(&self, is_complete: bool) {
        let Some(start) = self.traces.take_start() else { return };
        let values = [
            self.id.0.into(),
            self.node_id.as_str().into(),
            self.peer.to_string().as_str().into(),
            self.key.as_str().into(),
            self.variant.name().into(),
            start.replies.into(),
            is_complete.into(),
        ];
        let time = (start.time, start.time.elapsed());
        self.counters.traces.take(SpanRecord::new(&STREAM, start.ids, time, values));
    }
}

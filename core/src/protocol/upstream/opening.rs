//! One opening of a stream: which messages belong to it, and what has shown whether the server is alive. The clock alone proves nothing: a
//! silence counts only if the server could have responded.

use std::collections::BTreeMap;

use super::quirks::{OnResourceTimeout, ServerQuirks};
use super::recovery::Recovery;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::xds::Type;

/// The number of an opening of a stream. It shows whether a message belongs to an earlier opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// The last opening of a stream.
#[derive(Debug)]
pub(super) struct Opening {
    epoch: Epoch,
    open: bool,
    liveness: Liveness,
    /// A response has come.
    answered: bool,
    /// When the first request was made, and when the first response came.
    asked_at: Option<Moment>,
    answered_at: Option<Moment>,
    /// A message is coming in.
    receiving: bool,
    /// The server is a relay.
    is_relay: bool,
    /// The opening has stated a version that is no longer valid.
    is_outdated: bool,
    /// How many bytes of new resources were rejected for want of room, by type: in the response with most, or in the last set.
    lacked_room: BTreeMap<Type, usize>,
    /// Whether the server was away before this opening.
    recovery: Recovery,
}

impl Opening {
    /// Returns the state before the first opening.
    pub(crate) fn none() -> Self {
        let (answered, asked_at, answered_at, receiving, is_relay, is_outdated) = Default::default();
        let (epoch, open, liveness, lacked_room) = (Epoch::default(), false, Liveness::default(), BTreeMap::new());
        let recovery = Recovery::default();
        Self {
            epoch,
            open,
            liveness,
            answered,
            asked_at,
            answered_at,
            receiving,
            is_relay,
            is_outdated,
            lacked_room,
            recovery,
        }
    }

    /// Returns the next opening, which takes over what is known of the server's recovery.
    pub(crate) fn next(&self) -> Self {
        let (epoch, recovery) = (self.epoch.next(), self.recovery);
        Self { epoch, open: true, recovery, ..Self::none() }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether messages of this epoch still count.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && self.open
    }

    pub(crate) fn end(&mut self) {
        self.open = false;
    }

    pub(crate) fn on_request(&mut self, now: Moment) {
        self.asked_at.get_or_insert(now);
        self.recovery.on_request(now);
    }

    /// Records that the server, or the connection to it, was lost. Requests that were made before this was known count as made after the loss.
    pub(crate) fn note_lost(&mut self, now: Moment) {
        if self.open && self.is_relay {
            return; // another stream was lost, and a relay waits for its own servers by itself
        }
        self.recovery.note_lost();
        if self.open && self.asked_at.is_some() {
            self.recovery.on_request(now);
        }
    }

    /// Returns what is known of the last outage of the server.
    pub(crate) fn recovery(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    pub(crate) fn on_response(&mut self, now: Moment) {
        (self.answered, self.receiving) = (true, false);
        self.answered_at.get_or_insert(now);
    }

    /// Records that a message has begun to come in.
    pub(crate) fn on_receiving(&mut self, epoch: Epoch) {
        self.receiving |= self.is_current(epoch);
    }

    /// Records that the server is a relay, which waits for its own servers by itself.
    pub(crate) fn on_relay(&mut self, epoch: Epoch) {
        if self.is_current(epoch) {
            self.is_relay = true;
            self.recovery.note_relay();
        }
    }

    pub(crate) fn on_liveness_answer(&mut self, epoch: Epoch) {
        if self.is_current(epoch) {
            self.liveness.answered();
        }
    }

    /// Records that a version which this opening has stated, if it is open, is no longer valid.
    pub(crate) fn outdate(&mut self) {
        self.is_outdated |= self.open;
    }

    /// Records how many bytes of a response were rejected. A complete set replaces what was recorded for the type.
    pub(crate) fn note_lacked_room(&mut self, kind: &Type, bytes: usize, is_set: bool) {
        let before = self.lacked_room.remove(kind).filter(|_| !is_set).unwrap_or_default();
        let lacked = before.max(bytes);
        if lacked > 0 {
            self.lacked_room.insert(kind.clone(), lacked);
        }
    }

    pub(crate) fn lacked_room(&self) -> usize {
        self.lacked_room.values().sum()
    }

    /// Records that there is room: the next opening requests the rejected resources.
    pub(crate) fn on_room(&mut self) {
        if !std::mem::take(&mut self.lacked_room).is_empty() {
            self.outdate();
        }
    }

    /// Returns when a server that has sent nothing yet is due for a liveness call: after it has had time to respond.
    pub(crate) fn proof_due(&self, quirks: &ServerQuirks, options: &UpstreamOptions) -> Option<Moment> {
        let silent =
            !self.answered && !quirks.per_type_liveness && quirks.on_resource_timeout != OnResourceTimeout::Unknown;
        self.first_request().filter(|_| silent).map(|requested| requested + options.resource_timer)
    }

    /// Judges a silence that is long enough if it lasts until `end`.
    pub(crate) fn judge(&mut self, end: Moment, now: Moment) -> SilenceVerdict {
        self.liveness.judge(end, now)
    }

    /// Returns whether to make a liveness call on this connection.
    pub(crate) fn take_liveness_call(&mut self) -> bool {
        self.open && self.liveness.take_question()
    }

    /// Whether the server has answered the last liveness call; `None` if there was none.
    pub(crate) fn has_answered_call(&self) -> Option<bool> {
        if self.liveness.is_asked() { Some(false) } else { self.liveness.is_proven().then_some(true) }
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Whether the server has answered anything, a liveness call included.
    pub(crate) fn shows_life(&self) -> bool {
        self.answered || self.liveness.is_proven()
    }

    pub(crate) fn first_request(&self) -> Option<Moment> {
        self.asked_at
    }

    pub(crate) fn first_response(&self) -> Option<Moment> {
        self.answered_at
    }

    /// Whether a message is coming in. Until the message is complete, the server does not count as silent.
    pub(crate) fn is_receiving(&self) -> bool {
        self.receiving
    }

    pub(crate) fn is_relay(&self) -> bool {
        self.is_relay
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated
    }
}

/// Evidence that the server behind one stream is alive: answers to calls on the same connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// When the current call was requested.
    requested: Option<Moment>,
    /// When the last call that was answered was requested.
    proven: Option<Moment>,
    /// The edge has not made the requested call yet.
    unsent: bool,
}

/// Why a poll has brought no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollFailure {
    /// The type cannot be polled, so nothing else will be reported of it.
    NoPath,
    /// The poll is made when the server has answered an earlier one.
    Waits,
    /// The server has not answered, or reports that it cannot.
    Silent,
    /// The answer cannot be used. This concerns the polled type alone.
    Refused,
}

/// What a silence proves at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SilenceVerdict {
    /// The silence is too short to mean anything before this time.
    UntilThen(Moment),
    /// A message is coming in, or it is not known whether the server is alive.
    Unproven,
    /// The server was silent for long enough, and was alive after that.
    Proven,
}

impl Liveness {
    /// Judges a silence that is long enough if it lasts until `end`. Requests a liveness call if only the proof of life is missing.
    pub(crate) fn judge(&mut self, end: Moment, now: Moment) -> SilenceVerdict {
        if now < end {
            return SilenceVerdict::UntilThen(end);
        }
        if self.proven.is_some_and(|begun| begun >= end) {
            return SilenceVerdict::Proven;
        }
        if self.requested.is_none() {
            (self.requested, self.unsent) = (Some(now), true);
        }
        SilenceVerdict::Unproven
    }

    /// Records that the server has answered the call.
    pub(crate) fn answered(&mut self) {
        self.proven = self.requested.take().or(self.proven);
        self.unsent = false;
    }

    /// Records the answer to a poll. It proves each silence that has lasted long enough by now.
    pub(crate) fn answered_at(&mut self, now: Moment) {
        (self.requested, self.unsent, self.proven) = (None, false, Some(now));
    }

    /// Whether a call is under way.
    pub(crate) fn is_asked(&self) -> bool {
        self.requested.is_some()
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven.is_some()
    }

    /// Returns whether the edge has to make a call, once for each call.
    pub(crate) fn take_question(&mut self) -> bool {
        std::mem::take(&mut self.unsent)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn up_36_only_an_answer_to_a_call_that_was_begun_after_the_silence_proves_it() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let mut liveness = Liveness::default();
        assert_eq!(liveness.judge(at(1), at(0)), SilenceVerdict::UntilThen(at(1)));
        assert!(!liveness.take_question(), "nothing is asked before its time");
        assert_eq!(liveness.judge(at(1), at(1)), SilenceVerdict::Unproven);
        assert!(liveness.take_question() && !liveness.take_question(), "once");
        assert_eq!(liveness.judge(at(3), at(5)), SilenceVerdict::Unproven);
        liveness.answered();
        assert_eq!(liveness.judge(at(1), at(5)), SilenceVerdict::Proven);
        assert_eq!(liveness.judge(at(3), at(5)), SilenceVerdict::Unproven, "that call was begun before");
        assert!(liveness.take_question());
        liveness.answered();
        assert_eq!(liveness.judge(at(3), at(5)), SilenceVerdict::Proven);
    }
}

//! What a server's silence means. A clock alone proves nothing: the server has to be alive, so that it could have responded.

use crate::protocol::faults::{Fault, Faults};
use crate::protocol::moment::Moment;

/// Evidence that the server behind one stream is alive: answers to calls on the same connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// When the current call was requested.
    requested: Option<Moment>,
    /// When the last call that was answered was requested.
    proven: Option<Moment>,
    /// The edge has not made the requested call yet.
    unsent: bool,
    faults: Faults,
}

/// Why a poll has brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollFailure {
    /// It is made when an earlier one is answered.
    Waits,
    /// The server has not answered, or reports that it cannot.
    Silent,
    /// The answer cannot be used. It concerns this type alone.
    Refused,
}

/// What a silence proves so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SilenceVerdict {
    /// It is too short to mean anything before this.
    UntilThen(Moment),
    /// A message is coming in, or it is not known whether the server is alive.
    Unproven,
    /// The server was silent for long enough, and was alive after that.
    Proven,
}

impl Liveness {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Judges a silence that is long enough at `end`. Requests a liveness call if only the proof of life is missing.
    pub(crate) fn judge(&mut self, end: Moment, now: Moment) -> SilenceVerdict {
        if now < end {
            return SilenceVerdict::UntilThen(end);
        }
        if self.proven.is_some_and(|begun| begun >= end) || self.faults.has(Fault::ClockIsLife) {
            return SilenceVerdict::Proven;
        }
        if self.requested.is_none() {
            (self.requested, self.unsent) = (Some(now), true);
        }
        SilenceVerdict::Unproven
    }

    /// The server has answered the call.
    pub(crate) fn answered(&mut self) {
        self.proven = self.requested.take().or(self.proven);
        self.unsent = false;
    }

    /// A poll was answered: it was made after everything that is in question now.
    pub(crate) fn answered_at(&mut self, now: Moment) {
        (self.requested, self.unsent, self.proven) = (None, false, Some(now));
    }

    /// A call is under way.
    pub(crate) fn is_asked(&self) -> bool {
        self.requested.is_some()
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.proven.is_some()
    }

    /// Returns whether the edge has to make a call, once for each.
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

//! What the silence of a server means. A clock alone proves nothing: the server has to be alive, so that it could have responded.

use crate::protocol::faults::{Fault, Faults};
use crate::protocol::moment::Moment;

/// Signs of life of the server behind one stream, each the answer to a call on the same connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// When the call that is under way was requested.
    requested: Option<Moment>,
    /// When the last one that was answered was requested.
    proven: Option<Moment>,
    /// The edge has not been told of the one that is requested.
    unsent: bool,
    faults: Faults,
}

/// How far a silence has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SilenceVerdict {
    /// It may mean something from then on.
    UntilThen(Moment),
    /// Something is on its way, or nobody knows whether the server is there.
    Unproven,
    /// The server has been silent for so long, and was there after that.
    Proven,
}

impl Liveness {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// Judges a silence that has lasted for long enough at `end`, and asks whether the server is there if that is all that is
    /// missing.
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

    /// The server has answered the call that was requested.
    pub(crate) fn answered(&mut self) {
        self.proven = self.requested.take().or(self.proven);
        self.unsent = false;
    }

    /// Something was answered that was asked after all that is in question now: a poll.
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

    /// Whether a call is to be made that was not requested before.
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
        let mut life = Liveness::default();
        assert_eq!(life.judge(at(1), at(0)), SilenceVerdict::UntilThen(at(1)));
        assert!(!life.take_question(), "nothing is asked before its time");
        assert_eq!(life.judge(at(1), at(1)), SilenceVerdict::Unproven);
        assert!(life.take_question() && !life.take_question(), "once");
        assert_eq!(life.judge(at(3), at(5)), SilenceVerdict::Unproven);
        life.answered();
        assert_eq!(life.judge(at(1), at(5)), SilenceVerdict::Proven);
        assert_eq!(life.judge(at(3), at(5)), SilenceVerdict::Unproven, "that call was begun before");
        assert!(life.take_question());
        life.answered();
        assert_eq!(life.judge(at(3), at(5)), SilenceVerdict::Proven);
    }
}

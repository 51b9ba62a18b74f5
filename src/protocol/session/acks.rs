//! Which replies of one type are unanswered, and how the client answered the others.

use std::collections::VecDeque;

use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;

/// How a request answers a reply. It counts for its own reply, stale or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The client accepted a reply.
    Ack {
        /// The reply's number.
        nonce: u64,
        /// A later reply of the type had been sent by then.
        stale: bool,
    },
    /// The client rejected a reply.
    Nack {
        /// The reply's number.
        nonce: u64,
        /// A later reply of the type had been sent by then.
        stale: bool,
    },
    /// A nonce that this stream never used, or used so long ago that it is forgotten (SOTW-2).
    UnknownNonce,
}

/// The latest NACK, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nack {
    pub(crate) nonce: u64,
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) at: Moment,
}

#[derive(Debug, Default)]
pub(super) struct AckTracker {
    /// The nonces of the latest unanswered replies, oldest first.
    sent: VecDeque<u64>,
    last: Option<u64>,
    /// Until when the next reply waits for the ACK or NACK of the last one.
    deadline: Option<Moment>,
    last_nack: Option<Nack>,
    accepted: Option<u64>,
}

impl AckTracker {
    pub(crate) fn sent(&mut self, nonce: u64, now: Moment, limits: &Limits) {
        if self.sent.len() >= limits.answers && !limits.faults.has(Fault::KeepEveryNonce) {
            self.sent.pop_front();
        }
        self.sent.push_back(nonce);
        self.last = Some(nonce);
        // The time runs from the first unanswered reply: an ACK in between does not delay a change again.
        let running = self.deadline.filter(|until| now < *until);
        self.deadline = Some(running.unwrap_or(now + limits.ack_patience));
    }

    /// Records the ACK or NACK of `nonce`. Earlier nonces stay: some are never answered (SOTW-16), others late, and operators
    /// want to see a late NACK too.
    pub(crate) fn answer(&mut self, nonce: &str, nack: Option<(i32, String)>, now: Moment) -> Ack {
        let known = nonce.parse().ok().filter(|nonce| self.sent.contains(nonce) || self.last == Some(*nonce));
        let Some(nonce) = known else { return Ack::UnknownNonce };
        self.sent.retain(|sent| *sent != nonce);
        let stale = self.last != Some(nonce);
        if !stale {
            self.deadline = None;
        }
        match nack {
            None => {
                self.accepted = self.accepted.max(Some(nonce));
                Ack::Ack { nonce, stale }
            }
            Some((code, message)) => {
                self.last_nack = Some(Nack { nonce, code, message, at: now });
                Ack::Nack { nonce, stale }
            }
        }
    }

    /// Whether a nonce is from an earlier reply than the last.
    pub(crate) fn is_stale(&self, nonce: &str) -> bool {
        nonce.parse().is_ok_and(|nonce: u64| self.last.is_some_and(|last| nonce < last))
    }

    /// Until when a change has to wait for the ACK or NACK of the last reply.
    pub(crate) fn waiting(&self, now: Moment) -> Option<Moment> {
        self.deadline.filter(|until| now < *until)
    }

    pub(crate) fn last_nack(&self) -> Option<&Nack> {
        self.last_nack.as_ref()
    }

    /// Whether the latest NACK still counts: the client has ACKed nothing that was sent after it.
    pub(crate) fn is_nacked(&self) -> bool {
        self.last_nack.as_ref().is_some_and(|verdict| self.accepted < Some(verdict.nonce))
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_own_reply() {
        let (mut answers, limits, now) = (AckTracker::default(), Limits::default(), Moment::START);
        for nonce in 1..=3 {
            answers.sent(nonce, now, &limits);
        }
        let rejected = Some((3, "no".to_owned()));
        assert_eq!(answers.answer("2", rejected, now), Ack::Nack { nonce: 2, stale: true });
        assert!(answers.waiting(now).is_some(), "the last one is still out");
        assert_eq!(answers.answer("3", None, now), Ack::Ack { nonce: 3, stale: false });
        assert_eq!(answers.waiting(now), None);
        assert_eq!(answers.last_nack().unwrap().nonce, 2);
        assert!(!answers.is_nacked(), "the next one was accepted");
        answers.sent(4, now, &limits);
        answers.answer("4", Some((3, "no".to_owned())), now);
        assert!(answers.is_nacked());
    }

    #[test]
    fn sotw_2_a_nonce_never_given_out_is_foreign() {
        let mut answers = AckTracker::default();
        assert_eq!(answers.answer("77", None, Moment::START), Ack::UnknownNonce);
        assert_eq!(answers.answer("x", None, Moment::START), Ack::UnknownNonce);
    }

    #[test]
    fn what_is_remembered_of_a_silent_client_is_bounded() {
        let (mut answers, limits) = (AckTracker::default(), Limits::default());
        (1..1000).for_each(|nonce| answers.sent(nonce, Moment::START, &limits));
        assert_eq!(answers.len(), limits.answers);
    }
}

//! Which replies of one type are unanswered, how the client answered the others, and what operators are shown of that.
//!
//! [`StandingNack`] is the NACK that stands, and knows until when. [`Rejections`] tells of one resource whether it was rejected, even after the NACK
//! has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use super::carried::ReplyLag;
use super::rejections::{RejectedIn, Rejections, SentResource};
use super::reply::{Reply, SentReply};
use super::standing_nack::{InRejected, Nacked, StandingNack};
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::Revision;
use crate::xds::{Name, Type};

/// How a request answers a reply. It counts for the reply of its nonce, even if a later reply has been sent.
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
    /// A nonce that this stream never used for the type (SOTW-2), or an ACK of a reply that is forgotten.
    UnknownNonce,
}

/// The latest NACK, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    pub nonce: u64,
    pub(crate) code: i32,
    /// Redacted and escaped.
    pub message: Arc<str>,
    pub(crate) at: Moment,
}

/// How a client has answered the replies of one type.
#[derive(Debug)]
pub struct TypeAnswers<'a> {
    /// The type.
    pub kind: &'a Type,
    /// The newest reply.
    pub newest: SentReply,
    /// The newest reply is unanswered.
    pub is_pending: bool,
    /// The newest reply that the client accepted.
    pub accepted: Option<SentReply>,
    /// The NACK that stands, if one does.
    pub nack: Option<&'a StandingNack>,
}

/// What an answer of the client, or the end of its subscription, settled for one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerEffect {
    /// The type.
    pub kind: Type,
    /// Whether it is an ACK, and the first for its reply.
    pub is_ack: bool,
    /// For an ACK: how old the content of the reply was when the ACK came.
    pub lag: ReplyLag,
    /// Since when the type's oldest unanswered reply waited before, if that changed.
    pub waited_since: Option<Moment>,
    /// Since when the oldest unanswered reply waits now, if that changed.
    pub waits_since: Option<Moment>,
}

/// A NACK of one type that ceased to stand, one that began to, or one in place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NackChange {
    /// The type.
    pub kind: Type,
    /// The NACK that stands no longer.
    pub ended: Option<Nacked>,
    /// The NACK that stands from now on.
    pub began: Option<Nacked>,
}

#[derive(Debug, Default)]
pub(super) struct AckTracker {
    /// The latest unanswered replies, oldest first.
    sent: VecDeque<Unanswered>,
    /// The replies that were forgotten without an answer. Boxed, because few clients have any.
    forgotten: Option<Box<Forgotten>>,
    last: Option<SentReply>,
    /// Since when replies are unanswered, forgotten ones included. An answer settles all earlier replies.
    unanswered_since: Option<Moment>,
    /// Until when the next reply waits for the ACK or NACK of the last one.
    deadline: Option<Moment>,
    last_nack: Option<Nack>,
    accepted: Option<SentReply>,
    standing: Option<Box<StandingNack>>,
    rejections: Rejections,
}

/// What is known of replies that were forgotten without an answer.
#[derive(Debug)]
struct Forgotten {
    newest: SentReply,
    /// The nonces of the latest ones, oldest first, and the snapshots that they were made from.
    latest: VecDeque<(u64, Revision)>,
}

/// A reply without an answer.
#[derive(Debug)]
struct Unanswered {
    reply: SentReply,
    /// The names that it has. `None` for a full set, which has everything.
    names: Option<ReplyNames>,
    /// The only resource in the reply, whatever the reply removes. If it has no resource, its only name.
    only: Option<Name>,
}

impl Forgotten {
    fn new(newest: SentReply) -> Self {
        Self { newest, latest: VecDeque::new() }
    }

    fn add(&mut self, reply: SentReply) {
        if self.latest.len() == REVISIONS {
            self.latest.pop_front();
        }
        self.latest.push_back((reply.nonce, reply.revision));
        self.newest = reply;
    }

    /// Returns the reply of a nonce, as far as it is known. One that is older than all that are known counts as made before everything, so that its
    /// NACK ends with the next reply that the client accepts.
    fn reply(&self, nonce: u64) -> SentReply {
        let known = self.latest.iter().find(|(of, _)| *of == nonce);
        SentReply { nonce, revision: known.map_or(Revision::ZERO, |(_, revision)| *revision), ..self.newest }
    }
}

/// Of so many forgotten replies of a type the snapshot is known.
const REVISIONS: usize = 16;

impl Unanswered {
    fn new(reply: SentReply) -> Self {
        Self { reply, names: None, only: None }
    }
}

impl AckTracker {
    pub(crate) fn sent(&mut self, reply: SentReply, now: Moment, options: &SessionOptions) {
        if self.sent.len() >= options.answers
            && let Some(Unanswered { reply: oldest, .. }) = self.sent.pop_front()
        {
            let forgotten = self.forgotten.get_or_insert_with(|| Box::new(Forgotten::new(oldest)));
            forgotten.add(oldest);
        }
        self.sent.push_back(Unanswered::new(reply));
        self.unanswered_since.get_or_insert(now);
        self.last = Some(reply);
        // The time runs from the first unanswered reply: an ACK of a later one does not prolong it.
        let running = self.deadline.filter(|until| now < *until);
        self.deadline = Some(running.unwrap_or(now + options.ack_patience));
    }

    /// Records the ACK or NACK of `nonce`. Earlier nonces stay: clients never answer some (SOTW-16) and answer others late, and operators want
    /// to see a late NACK too, even of a forgotten reply.
    pub(crate) fn answer(&mut self, nonce: &str, nack: Option<(i32, Arc<str>)>, now: Moment) -> Ack {
        let nonce: Option<u64> = nonce.parse().ok();
        let place = self.sent.iter().position(|sent| Some(sent.reply.nonce) == nonce);
        let known = place.and_then(|place| self.sent.remove(place));
        let is_first = known.is_some();
        let again = || self.last.filter(|last| Some(last.nonce) == nonce).map(Unanswered::new);
        let forgotten = || self.nacked_late(nonce.filter(|_| nack.is_some())?).map(Unanswered::new);
        let Some(Unanswered { reply, names, only }) = known.or_else(again).or_else(forgotten) else {
            if let Some(nonce) = nonce.filter(|nonce| self.is_forgotten(*nonce)) {
                self.settle_to(nonce);
            }
            return Ack::UnknownNonce;
        };
        let nonce = reply.nonce;
        self.settle_to(nonce);
        let stale = self.last != Some(reply);
        if !stale {
            self.deadline = None;
        }
        match nack {
            None => {
                // Envoy changes its names with the nonce of its last answer, also after a NACK: such a request accepts nothing (SOTW-12).
                if is_first {
                    self.accepted = self.accepted.filter(|accepted| accepted.nonce > nonce).or(Some(reply));
                    self.standing.take_if(|nack| !nack.stands_after(reply, names.as_ref()));
                    self.rejections.accept(reply, names.as_ref());
                }
                Ack::Ack { nonce, stale }
            }
            Some((code, message)) => {
                let newer = self.accepted.filter(|accepted| accepted.nonce > nonce);
                // What was in a forgotten reply is not known, nor what was accepted since.
                if !self.is_forgotten(nonce) && newer.is_none_or(|newer| !newer.is_full_set) {
                    let words = (message.clone(), now);
                    self.rejections.reject(reply, names.clone(), only.clone(), words, self.accepted);
                }
                if newer.is_none() {
                    let nack = StandingNack::new(reply, names, message.clone(), now);
                    let mut nack = match self.standing.take() {
                        Some(earlier) => nack.after(*earlier),
                        None => nack,
                    };
                    if let Some(only) = only {
                        let again = self.sent_with(&only).collect();
                        nack.suspect_only(only, again);
                    }
                    self.standing = Some(Box::new(nack));
                }
                self.last_nack = Some(Nack { nonce, code, message, at: now });
                Ack::Nack { nonce, stale }
            }
        }
    }

    /// Settles a reply and all before it. A client that has ended its subscription need not answer the others either.
    fn settle_to(&mut self, nonce: u64) {
        let nacked = self.last_nack.as_ref().map(|nack| nack.nonce);
        let newest = self.accepted.map(|accepted| accepted.nonce).max(nacked);
        if newest.is_none_or(|newest| newest < nonce) {
            let next = self.replies().find(|sent| sent.nonce > nonce);
            self.unanswered_since = self.unanswered_since.zip(next).map(|(since, next)| since.max(next.sent));
        }
    }

    /// Whether the reply of a nonce may be forgotten. Nonces count the replies of all types, so it may also be that of another type.
    fn is_forgotten(&self, nonce: u64) -> bool {
        self.forgotten.as_ref().is_some_and(|forgotten| (1..=forgotten.newest.nonce).contains(&nonce))
    }

    /// Returns a forgotten reply whose NACK comes only now. Clients answer in order, so a NACK that is not newer than the last one is a repeated one.
    fn nacked_late(&self, nonce: u64) -> Option<SentReply> {
        let is_repeated = self.last_nack.as_ref().is_some_and(|last| nonce <= last.nonce);
        let forgotten = self.forgotten.as_deref().filter(|_| self.is_forgotten(nonce) && !is_repeated)?;
        Some(forgotten.reply(nonce))
    }

    /// Whether a nonce is that of a remembered reply.
    pub(super) fn remembers(&self, nonce: &str) -> bool {
        let nonce = nonce.parse().ok();
        self.replies().chain(self.last).chain(self.accepted).any(|sent| Some(sent.nonce) == nonce)
    }

    /// Returns the reply of a nonce, if it is remembered and has no answer yet.
    pub(super) fn unanswered(&self, nonce: &str) -> Option<SentReply> {
        let nonce: u64 = nonce.parse().ok()?;
        self.replies().find(|sent| sent.nonce == nonce)
    }

    /// Stops waiting for answers, and returns since when one was missing. A client that has ended its subscription need not answer.
    pub(super) fn stop_waiting(&mut self) -> Option<Moment> {
        self.unanswered_since.take()
    }

    /// Returns since when replies are unanswered. A reply counts as answered if a later one is.
    pub(crate) fn unanswered_since(&self) -> Option<Moment> {
        self.unanswered_since
    }

    /// Suspects a resource that the reason of the standing NACK quotes, unless the rejected reply is known not to have it.
    pub(super) fn suspect(&mut self, of: &SentResource) {
        if let Some(nack) = &mut self.standing
            && self.rejections.quote(nack.reply.nonce, of)
        {
            nack.suspect(of.name, of.changed, self.sent.iter().map(|sent| sent.reply));
        }
    }

    /// Notes which names the last reply has: a NACK of it may be about them, and its ACK may end the standing NACK.
    pub(crate) fn note_content(&mut self, sent: SentReply, names: ReplyNames, reply: &Reply, options: &SessionOptions) {
        if let Some(last) = self.sent.back_mut().filter(|_| !sent.is_full_set) {
            last.only = match &*reply.resources {
                [] => names.only().cloned(),
                [one] => Some(one.name.clone()),
                _ => None,
            };
            last.names = Some(names);
        }
        if let Some(nack) = &mut self.standing {
            nack.note_sent(sent, reply, options.answers);
        }
    }

    /// Ends the standing NACK if the client wants nothing any more that it may be about. With `aliases`, it may want resources by other names.
    pub(crate) fn settle(&mut self, wants_any: bool, aliases: bool, wants: impl Fn(&Name) -> bool) {
        if !wants_any {
            self.rejections.forget_all();
        }
        self.standing.take_if(|nack| !wants_any || !nack.stands_for(aliases, wants));
    }

    /// Returns the NACK that stands: the client has accepted nothing that would end it.
    pub(crate) fn standing(&self) -> Option<&StandingNack> {
        self.standing.as_deref()
    }

    fn replies(&self) -> impl DoubleEndedIterator<Item = SentReply> {
        self.sent.iter().map(|sent| sent.reply)
    }

    /// Returns the nonces of unanswered replies that are known to have a resource, full sets included.
    fn sent_with(&self, name: &Name) -> impl Iterator<Item = u64> {
        let has = |sent: &&Unanswered| sent.names.as_ref().is_none_or(|names| names.has(name) == Some(true));
        self.sent.iter().filter(has).map(|sent| sent.reply.nonce)
    }

    /// Returns how a resource that the client was sent relates to what the client rejects. `None` if it was in no rejected reply and no NACK stands.
    pub(super) fn in_rejected(&self, of: &SentResource) -> Option<RejectedIn<'_>> {
        if let Some(found) = self.rejections.of(of) {
            return Some(found);
        }
        let nack = self.standing.as_ref()?;
        // An unanswered reply may have it, unless the reply is known not to.
        let may_have = |sent: &Unanswered| sent.names.as_ref().is_none_or(|names| of.is_in(names) != Some(false));
        let is_pending = self.sent.iter().any(may_have);
        // An answer settles all earlier replies. How the client took a reply that was forgotten unanswered is not known.
        let has_answered = self.accepted.is_some_and(|accepted| !self.is_forgotten(accepted.nonce));
        let of = match is_pending || has_answered {
            // The rejected reply may be a forgotten one, which is not among the rejections.
            _ if nack.suspects().any(|name| name == of.name) => InRejected::Quoted,
            true => InRejected::Not { is_pending },
            false => InRejected::Unknown,
        };
        Some(RejectedIn { of, reason: &nack.reason, since: nack.since })
    }

    /// Returns the rejected replies, also when no NACK stands any more.
    pub(super) fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    pub(super) fn end_standing(&mut self) -> Option<Box<StandingNack>> {
        self.standing.take()
    }

    /// Returns the last reply, and whether it is unanswered.
    pub(crate) fn newest(&self) -> Option<(SentReply, bool)> {
        self.last.map(|last| (last, self.replies().any(|sent| sent == last)))
    }

    /// Returns the newest reply that the client accepted.
    pub(crate) fn accepted(&self) -> Option<SentReply> {
        self.accepted
    }

    /// Until when a change has to wait for the ACK or NACK of the last reply.
    pub(crate) fn waiting(&self, now: Moment) -> Option<Moment> {
        self.deadline.filter(|until| now < *until)
    }

    pub(crate) fn last_nack(&self) -> Option<&Nack> {
        self.last_nack.as_ref()
    }

    /// Whether the latest NACK still counts: the client has accepted no reply that is newer than the rejected one.
    pub(crate) fn is_nacked(&self) -> bool {
        self.last_nack.as_ref().is_some_and(|nack| self.accepted.is_none_or(|accepted| accepted.nonce < nack.nonce))
    }

    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::session::carried::ReplyAge;
    use crate::protocol::view::Revision;
    use crate::xds::SetVersion;

    fn reply(nonce: u64) -> SentReply {
        SentReply {
            nonce,
            version: SetVersion::EMPTY,
            revision: Revision::ZERO,
            is_full_set: false,
            sent: at(nonce),
            carried: ReplyAge::default(),
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn no() -> Option<(i32, Arc<str>)> {
        Some((3, "no".into()))
    }

    #[test]
    fn an_answer_counts_for_its_own_reply() {
        let (mut answers, options, now) = (AckTracker::default(), SessionOptions::default(), Moment::START);
        for nonce in 1..=3 {
            answers.sent(reply(nonce), now, &options);
        }
        assert_eq!(answers.answer("2", no(), now), Ack::Nack { nonce: 2, stale: true });
        assert!(answers.waiting(now).is_some(), "the last one is still out");
        assert_eq!(answers.answer("3", None, now), Ack::Ack { nonce: 3, stale: false });
        assert_eq!(answers.waiting(now), None);
        assert_eq!(answers.last_nack().unwrap().nonce, 2);
        assert!(!answers.is_nacked() && answers.standing().is_none(), "the next one was accepted");
        answers.sent(reply(4), now, &options);
        answers.answer("4", no(), now);
        assert!(answers.is_nacked() && answers.standing().is_some());
        assert_eq!(answers.answer("4", None, now), Ack::Ack { nonce: 4, stale: false });
        assert!(answers.is_nacked() && answers.standing().is_some(), "SotW repeats the nonce to change names");
        assert_eq!(answers.accepted(), Some(reply(3)));
        answers.end_standing();
        answers.answer("4", None, now);
        assert!(answers.is_nacked() && answers.accepted() == Some(reply(3)), "also when the NACK stands no more");
    }

    #[test]
    fn sotw_16_a_late_answer_does_not_make_an_older_reply_the_accepted_one() {
        let (mut answers, options, now) = (AckTracker::default(), SessionOptions::default(), Moment::START);
        (1..=3).for_each(|nonce| answers.sent(reply(nonce), now, &options));
        for (nonce, accepted) in [("2", 2), ("1", 2), ("3", 3)] {
            answers.answer(nonce, None, now);
            assert_eq!(answers.accepted(), Some(reply(accepted)), "after {nonce}");
        }
    }

    #[test]
    fn a_nack_ends_the_wait_of_the_next_reply_as_an_ack_does() {
        for verdict in [None, no()] {
            let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
            for nonce in 1..=2 {
                answers.sent(reply(nonce), at(nonce), &options);
                assert!(answers.waiting(at(nonce)).is_some());
                answers.answer(&nonce.to_string(), verdict.clone(), at(nonce));
                assert_eq!((answers.waiting(at(nonce)), answers.unanswered_since()), (None, None), "{verdict:?}");
            }
        }
    }

    #[test]
    fn a_reply_waits_for_its_answer_until_it_or_a_later_one_is_answered() {
        let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
        (1..=3).for_each(|nonce| answers.sent(reply(nonce), at(nonce), &options));
        assert_eq!(answers.unanswered_since(), Some(at(1)));
        assert_eq!(answers.unanswered("2"), Some(reply(2)));
        answers.answer("2", None, at(4));
        assert_eq!((answers.unanswered_since(), answers.unanswered("2")), (Some(at(3)), None));
        answers.answer("1", no(), at(4));
        assert_eq!(answers.unanswered_since(), Some(at(3)), "a late answer changes nothing");
        answers.answer("3", no(), at(5));
        assert_eq!(answers.unanswered_since(), None, "a NACK is an answer");
        (4..100).for_each(|nonce| answers.sent(reply(nonce), at(nonce), &options));
        assert_eq!(answers.unanswered_since(), Some(at(4)), "also of what is forgotten");
        answers.answer("50", None, at(100));
        assert_eq!(answers.unanswered_since(), Some(at(92)), "a client with many replies on their way answers");
    }

    #[test]
    fn i7_the_nack_of_a_forgotten_reply_counts_once_and_stands_until_a_newer_reply_is_accepted() {
        let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
        (1..=20).for_each(|nonce| answers.sent(reply(nonce), at(nonce), &options));
        assert_eq!(answers.answer("3", no(), at(21)), Ack::Nack { nonce: 3, stale: true });
        assert_eq!(answers.unanswered_since(), Some(at(13)));
        for (nonce, nack) in [("3", no()), ("4", None), ("0", no()), ("21", no())] {
            assert_eq!(answers.answer(nonce, nack, at(22)), Ack::UnknownNonce, "{nonce}");
            assert!(answers.is_nacked() && answers.standing().is_some_and(|nack| nack.reply.nonce == 3), "{nonce}");
        }
        assert_eq!(answers.answer("13", None, at(23)), Ack::Ack { nonce: 13, stale: true });
        assert!(!answers.is_nacked() && answers.standing().is_none());
        assert_eq!(answers.answer("5", no(), at(24)), Ack::Nack { nonce: 5, stale: true });
        assert!(!answers.is_nacked() && answers.standing().is_none(), "the client has accepted a newer one");
    }

    #[test]
    fn answers_that_come_after_the_end_of_a_subscription_begin_no_wait() {
        let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
        (1..=3).for_each(|nonce| answers.sent(reply(nonce), at(nonce), &options));
        assert_eq!(answers.stop_waiting(), Some(at(1)));
        answers.answer("1", None, at(4));
        assert_eq!(answers.unanswered_since(), None);
        answers.sent(reply(4), at(5), &options);
        answers.answer("2", None, at(6));
        assert_eq!(answers.unanswered_since(), Some(at(5)), "it waits for the new one alone");
    }

    #[test]
    fn sotw_2_a_nonce_never_given_out_is_foreign() {
        let mut answers = AckTracker::default();
        assert_eq!(answers.answer("77", None, Moment::START), Ack::UnknownNonce);
        assert_eq!(answers.answer("x", None, Moment::START), Ack::UnknownNonce);
    }

    #[test]
    fn what_is_remembered_of_a_silent_client_is_bounded() {
        let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
        (1..1000).for_each(|nonce| answers.sent(reply(nonce), Moment::START, &options));
        assert_eq!(answers.len(), options.answers);
    }

    #[test]
    fn sotw_46_the_wait_for_an_answer_runs_from_the_first_reply_that_has_none_whatever_is_sent_meanwhile() {
        let (mut answers, options) = (AckTracker::default(), SessionOptions::default());
        let half = |number: u32| Moment::START + number * (options.ack_patience / 2);
        answers.sent(reply(1), half(0), &options);
        answers.sent(reply(2), half(1), &options);
        assert_eq!(answers.waiting(half(1)), Some(half(2)), "a reply to a request does not delay changes");
        answers.answer("1", None, half(1));
        assert_eq!(answers.waiting(half(1)), Some(half(2)), "nor does an answer to an earlier one release them");
        assert_eq!(answers.waiting(half(2)), None);
        answers.sent(reply(3), half(3), &options);
        assert_eq!(answers.waiting(half(3)), Some(half(5)), "what is over begins again");
    }
}

//! How far a server has answered for the single names of one type on this opening, and which names were unsubscribed a short while ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::given::GivenVersions;
use super::opening::{PollFailure, SilenceVerdict};
use super::rejected::Rejected;
use super::wanted::Wanted;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::visits::visit;
use crate::xds::Name;

/// Names that were requested and that the server has not sent on this opening. Other names are not kept here.
#[derive(Debug, Default)]
pub(super) struct NameStates {
    open: BTreeMap<Name, NameState>,
    /// How many of them the server has to answer.
    waiting: usize,
    timers: BTreeSet<(Moment, Name)>,
    /// Names in requests that are made and not written yet.
    handed_out: BTreeSet<Name>,
    /// Names of the first request of this opening that the server has neither answered nor been silent about. Of routing types only.
    due: BTreeSet<Name>,
    first_answer: FirstAnswer,
    left: RecentlyLeft,
    /// More timers may have ended than were handled.
    is_behind: bool,
}

/// The state of a name that the server has not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameState {
    /// Its timer runs from when the request is written.
    Waiting {
        until: Option<Moment>,
        /// It was in the first request for the type on this opening, so that no response is older than the request (UP-24).
        first: bool,
    },
    /// The server is alive and was silent for the resource timer.
    Silent,
    /// The server has reported that the name does not exist.
    Absent,
}

impl NameState {
    fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. })
    }
}

/// What a server has answered to the first request for the type on this opening. Until it has answered, it may have other routing than what is
/// cached, so no wait for that routing runs out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FirstAnswer {
    #[default]
    None,
    /// The server has refused polls for the type since then.
    Refused(Moment),
    /// A response for the type. Answers to some names may still be missing.
    Given,
    /// Nothing more: the server is alive and had enough time, or it cannot be asked for the type.
    Silence,
}

impl NameStates {
    pub(crate) fn get(&self, name: &Name) -> Option<NameState> {
        self.open.get(name).copied()
    }

    pub(crate) fn is_waiting(&self, name: &Name) -> bool {
        self.get(name).is_some_and(NameState::is_waiting)
    }

    pub(crate) fn is_any_waiting(&self) -> bool {
        self.waiting > 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, NameState)> {
        self.open.iter().inspect(|_| visit()).map(|(name, state)| (name, *state))
    }

    /// Records the names of the first request of a routing type: an answer is due to each of them, also to those that had no room in the first
    /// request and follow in another. A name that is stated under its version needs no answer, since the server sends it only if it has changed.
    /// Polled names need none either: a poll answers all names at once.
    pub(crate) fn expect(&mut self, variant: Variant, wanted: &Wanted, given: &GivenVersions) {
        let due = |name: &&Name| match wanted.globs().has(name) {
            true => variant == Variant::Delta && self.is_waiting(name),
            false => !given.is_to_state(name),
        };
        self.due = wanted.names().iter().inspect(|_| visit()).filter(due).cloned().collect();
    }

    /// Requests names again on the next opening that came on this one, could not be read, and have no cached value. Until now they counted as
    /// given.
    pub(crate) fn request_rejected(&mut self, wanted: &Wanted, given: &GivenVersions, rejected: &Rejected) {
        let unheld = |name: &&Name| !given.has_own(name) && !wanted.globs().has(name);
        let rejected = |name: &&Name| rejected.may_be(name) && self.get(name).is_none();
        let names: Vec<_> = wanted.names().iter().filter(rejected).filter(unheld).cloned().collect();
        names.into_iter().for_each(|name| self.request(name));
    }

    /// Whether the server has answered the first request of this opening: for the type, and for each of its names. Silence about a name for its
    /// timer is an answer. Names that are requested later do not count.
    pub(crate) fn has_answered_first(&self) -> bool {
        match self.first_answer {
            FirstAnswer::Silence => true,
            FirstAnswer::Given => self.due.is_empty(),
            FirstAnswer::None | FirstAnswer::Refused(_) => false,
        }
    }

    /// Records that the server was alive, and silent about what it has not answered of the first request.
    pub(crate) fn end_first_answer(&mut self) {
        self.first_answer = FirstAnswer::Silence;
    }

    /// Records that a response for the type came.
    pub(crate) fn on_response(&mut self) {
        if self.first_answer != FirstAnswer::Silence {
            self.first_answer = FirstAnswer::Given;
        }
    }

    /// Records that a poll for the type was not answered: timers that ran start over when a poll is answered (UP-35). A server that refuses
    /// every poll for the resource timer is alive and has nothing of the type. Nor will it send anything of a type that cannot be polled.
    pub(crate) fn on_poll_failed(&mut self, failure: PollFailure, now: Moment, options: &UpstreamOptions) {
        self.first_answer = match (failure, self.first_answer) {
            (PollFailure::NoPath, _) => FirstAnswer::Silence,
            (PollFailure::Waits, before) | (PollFailure::Refused, before @ FirstAnswer::Silence) => before,
            (PollFailure::Silent, _) => FirstAnswer::None,
            (PollFailure::Refused, FirstAnswer::Refused(since)) if now >= since + options.resource_timer => {
                FirstAnswer::Silence
            }
            (PollFailure::Refused, before @ FirstAnswer::Refused(_)) => before,
            (PollFailure::Refused, FirstAnswer::None | FirstAnswer::Given) => FirstAnswer::Refused(now),
        };
        self.timers.clear();
        for (name, state) in &mut self.open {
            if let NameState::Waiting { until, .. } = state
                && until.take().is_some()
            {
                self.handed_out.insert(name.clone());
            }
        }
    }

    /// Records that the server has sent something for the name.
    pub(crate) fn answered(&mut self, name: &Name) {
        self.due.remove(name);
    }

    pub(crate) fn request(&mut self, name: Name) {
        self.answered(&name);
        self.stop_timer(&name);
        self.enter(name, NameState::Waiting { until: None, first: false });
    }

    /// Records that the server has sent the resource, or something under its name that counts as present.
    pub(crate) fn given(&mut self, name: &Name) {
        self.answered(name);
        self.stop_timer(name);
        let before = self.open.remove(name);
        self.waiting -= usize::from(before.is_some_and(NameState::is_waiting));
    }

    pub(crate) fn forget(&mut self, name: &Name) {
        self.given(name);
        self.handed_out.remove(name);
    }

    pub(crate) fn settle(&mut self, name: Name, state: NameState) {
        self.answered(&name);
        self.stop_timer(&name);
        self.enter(name, state);
    }

    pub(crate) fn hand_out(&mut self, names: impl IntoIterator<Item = Name>, in_first_request: bool) {
        for name in names {
            if let Some(NameState::Waiting { first, .. }) = self.open.get_mut(&name) {
                *first |= in_first_request;
            }
            self.handed_out.insert(name);
        }
    }

    pub(crate) fn written(&mut self, now: Moment, lasting: Duration, has_timer: impl Fn(&Name) -> bool) {
        for name in std::mem::take(&mut self.handed_out).into_iter().filter(has_timer) {
            if let Some(NameState::Waiting { until: until @ None, .. }) = self.open.get_mut(&name) {
                *until = Some(now + lasting);
                self.timers.insert((now + lasting, name));
            }
        }
    }

    /// Handles the end of the stream: every name is requested again. What the server reported for names no longer counts.
    pub(crate) fn disconnect(&mut self) {
        self.timers.clear();
        self.handed_out.clear();
        self.due.clear();
        (self.first_answer, self.left, self.is_behind) = Default::default();
        self.open.values_mut().for_each(|state| *state = NameState::Waiting { until: None, first: false });
        self.waiting = self.open.len();
    }

    /// Returns when the next timer after a moment ends.
    pub(crate) fn next_deadline(&self, after: Moment) -> Option<Moment> {
        let later = (after + Duration::from_micros(1), Name::from(""));
        self.timers.range(later..).next().map(|(until, _)| *until)
    }

    /// Returns the next name about which a live server was silent for the resource timer, and marks the name as silent.
    pub(crate) fn next_silent(&mut self, now: Moment, mut judge: impl FnMut(Moment) -> SilenceVerdict) -> Option<Name> {
        let (until, _) = self.timers.first().filter(|(until, _)| *until <= now)?;
        if judge(*until) != SilenceVerdict::Proven {
            return None;
        }
        let (_, name) = self.timers.pop_first()?;
        self.due.remove(&name);
        self.enter(name.clone(), NameState::Silent);
        Some(name)
    }

    /// Records whether more timers may have ended than were handled.
    pub(crate) fn note_behind(&mut self, is_behind: bool) {
        self.is_behind = is_behind;
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the names whose timers run, with the end of each, the earliest end first.
    pub(crate) fn timers(&self) -> impl ExactSizeIterator<Item = (Moment, &Name)> {
        self.timers.iter().map(|(until, name)| (*until, name))
    }

    /// Returns the names that the server has to answer and whose timers do not run.
    pub(crate) fn untimed(&self) -> impl Iterator<Item = &Name> {
        let untimed = |state: NameState| matches!(state, NameState::Waiting { until: None, .. });
        self.iter().filter(move |(_, state)| untimed(*state)).map(|(name, _)| name)
    }

    /// Records names that are unsubscribed by a request that is not written yet.
    pub(crate) fn leave(&mut self, names: BTreeSet<Name>) {
        self.left.leave(names);
    }

    /// Records that requests were written. The server answers them within `lasting`.
    pub(crate) fn left_written(&mut self, now: Moment, lasting: Duration) {
        self.left.written(now, lasting);
    }

    /// Whether a name was unsubscribed a short while ago: a response may lack it that was made before it was subscribed again.
    pub(crate) fn is_recently_left(&self, name: &Name, now: Moment) -> bool {
        self.left.is_recent(name, now)
    }

    fn enter(&mut self, name: Name, state: NameState) {
        self.waiting += usize::from(state.is_waiting());
        let before = self.open.insert(name, state);
        self.waiting -= usize::from(before.is_some_and(NameState::is_waiting));
    }

    fn stop_timer(&mut self, name: &Name) {
        if let Some(NameState::Waiting { until: Some(until), .. }) = self.open.get(name) {
            self.timers.remove(&(*until, name.clone()));
        }
    }
}

/// Names that were unsubscribed on this opening a short while ago. When one of them is subscribed again, a response from the time between may
/// lack it: that is no evidence of whether it exists.
#[derive(Debug, Default)]
struct RecentlyLeft {
    /// Names that a request unsubscribes which is made and not written yet.
    leaving: BTreeSet<Name>,
    /// Until when a response may come that was made while the name was not subscribed.
    until: BTreeMap<Name, Moment>,
    deadlines: VecDeque<(Moment, Name)>,
}

impl RecentlyLeft {
    fn leave(&mut self, mut names: BTreeSet<Name>) {
        self.leaving.append(&mut names);
    }

    /// Records that requests were written. The server answers them within `lasting`.
    fn written(&mut self, now: Moment, lasting: Duration) {
        let over = self.deadlines.iter().take_while(|(until, _)| *until <= now).count();
        for (at, name) in self.deadlines.drain(..over) {
            if self.until.get(&name) == Some(&at) {
                self.until.remove(&name);
            }
        }
        for name in std::mem::take(&mut self.leaving) {
            self.until.insert(name.clone(), now + lasting);
            self.deadlines.push_back((now + lasting, name));
        }
    }

    fn is_recent(&self, name: &Name, now: Moment) -> bool {
        self.leaving.contains(name) || self.until.get(name).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the silence would begin before the server has the request.
    #[test]
    fn up_35_the_timer_of_a_name_that_was_given_up_and_is_wanted_again_begins_with_its_own_request() {
        let (mut requested, a) = (NameStates::default(), Name::from("a"));
        let written = |requested: &mut NameStates| {
            requested.written(Moment::START, Duration::from_secs(15), |_| true);
            requested.next_deadline(Moment::START)
        };
        requested.request(a.clone());
        requested.hand_out([a.clone()], false);
        requested.forget(&a);
        requested.request(a.clone());
        assert_eq!(written(&mut requested), None, "another request was written");
        requested.hand_out([a.clone()], false);
        assert_eq!(written(&mut requested), Some(Moment::START + Duration::from_secs(15)));
    }

    #[test]
    fn it_is_known_without_a_look_at_each_name_whether_one_waits() {
        let mut requested = NameStates::default();
        let counts = |requested: &NameStates| {
            let waiting = requested.iter().filter(|(_, state)| state.is_waiting()).count();
            assert_eq!((requested.waiting, requested.is_any_waiting()), (waiting, waiting > 0));
            waiting
        };
        for name in ["a", "b", "c", "d", "a"] {
            requested.request(name.into());
        }
        assert_eq!(counts(&requested), 4);
        requested.given(&"a".into());
        requested.given(&"a".into());
        requested.settle("b".into(), NameState::Absent);
        requested.forget(&"c".into());
        assert_eq!(counts(&requested), 1);
        requested.hand_out(["d".into()], true);
        requested.written(Moment::START, Duration::ZERO, |_| true);
        assert_eq!(requested.next_silent(Moment::START, |_| SilenceVerdict::Proven), Some("d".into()));
        assert_eq!(counts(&requested), 0);
        requested.disconnect();
        assert_eq!(counts(&requested), 2, "both are requested again");
    }

    #[test]
    fn a_name_that_is_left_again_is_recent_for_the_whole_time_again() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let (mut left, lasting, name) = (RecentlyLeft::default(), Duration::from_secs(10), Name::from("a"));
        left.leave([name.clone()].into());
        assert!(left.is_recent(&name, at(0)), "the request is not written yet");
        left.written(at(0), lasting);
        left.written(at(4), lasting);
        assert!(left.is_recent(&name, at(9)) && !left.is_recent(&name, at(10)), "other requests do not lengthen it");
        left.leave([name.clone()].into());
        left.written(at(5), lasting);
        left.written(at(12), lasting);
        assert!(left.is_recent(&name, at(14)), "the end of the first time is not that of the second");
        left.written(at(15), lasting);
        assert!(!left.is_recent(&name, at(15)) && left.until.is_empty() && left.deadlines.is_empty());
    }
}

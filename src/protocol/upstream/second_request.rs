//! What is requested of a server a second time, since a client holds it and the server was silent the first time.
//!
//! The second request is a new opening of the stream, which states those names under a version that no server gives: a server
//! that has them sends them, and one that does not removes them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct SecondRequest {
    /// Asked for a second time on this opening, and not answered.
    pub(crate) names: BTreeSet<Name>,
    /// Somebody holds a set of which nobody knows what is in it.
    pub(crate) set: bool,
    /// How often the set was requested.
    times: u8,
    since: Option<Moment>,
    /// To be asked on the next opening.
    next: OpenQuestion,
    /// It was seen what has to be asked, of so much that is sought.
    looked: Option<u64>,
}

/// What is held and was not answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OpenQuestion {
    pub(crate) names: BTreeSet<Name>,
    pub(crate) set: bool,
}

impl OpenQuestion {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.set
    }
}

impl SecondRequest {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.set
    }

    /// Whether it was not seen yet on this opening, or not since more is sought, what there is to ask.
    pub(crate) fn is_to_look(&mut self, generation: u64) -> bool {
        self.looked = self.looked.filter(|looked| *looked == generation);
        self.looked.is_none()
    }

    pub(crate) fn looked(&mut self, generation: u64) {
        self.looked = Some(generation);
    }

    pub(crate) fn has_looked(&self) -> bool {
        self.looked.is_some()
    }

    /// There may be more to ask than was seen.
    pub(crate) fn look_anew(&mut self) {
        self.looked = None;
    }

    /// The rest of a question, of which this was not asked yet on this opening.
    pub(crate) fn without_asked(&self, mut question: OpenQuestion) -> OpenQuestion {
        question.names.retain(|name| !self.names.contains(name));
        question
    }

    /// Whether there is something to ask that needs a new opening.
    pub(crate) fn is_to_ask(&self) -> bool {
        !self.next.is_empty()
    }

    pub(crate) fn ask_next(&mut self, question: OpenQuestion) {
        self.next.names.extend(question.names);
        self.next.set |= question.set;
        self.times = self.times.saturating_add(u8::from(question.set));
    }

    /// Something is known of a name.
    pub(crate) fn answered(&mut self, name: &Name) {
        self.names.remove(name);
        self.next.names.remove(name);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Name) -> bool) {
        self.names.retain(&keep);
        self.next.names.retain(&keep);
    }

    /// What was not answered when the stream ended is asked on the next opening.
    pub(crate) fn disconnect(&mut self) {
        let OpenQuestion { names, set } = std::mem::take(&mut self.next);
        self.names.extend(names);
        self.set |= set;
        (self.since, self.looked) = (None, None);
    }

    pub(crate) fn written(&mut self, now: Moment) {
        if !self.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    /// When a server that stays silent on this opening has said by that what there is not. One that is still saying what somebody
    /// holds is not silent, and neither is one that says anything new of any type, for a while: what nobody holds may come without
    /// end.
    pub(crate) fn ends_at(&self, growth: Option<Moment>, news: Option<Moment>, limits: &Limits) -> Option<Moment> {
        let since = self.since.filter(|_| !self.is_empty())?;
        let news = news.unwrap_or(since).min(since + WHILES * limits.second_silence);
        Some(since.max(news).max(growth.unwrap_or(since)) + limits.second_silence)
    }

    /// Whether to request a set once more would only make a server begin again that sends it slowly.
    pub(crate) fn has_asked_enough(&self) -> bool {
        self.times >= ENOUGH
    }

    pub(crate) fn conclude(&mut self) -> OpenQuestion {
        (self.since, self.times) = (None, 0);
        OpenQuestion { names: std::mem::take(&mut self.names), set: std::mem::take(&mut self.set) }
    }

    /// All there is has been said: of this opening's questions, and of those that were to be asked on the next.
    pub(crate) fn conclude_all(&mut self) -> BTreeSet<Name> {
        let OpenQuestion { mut names, .. } = self.conclude();
        names.append(&mut std::mem::take(&mut self.next).names);
        names
    }
}

/// How often a stream may be opened again to ask again: each time twice as long after the last as before, so that whoever states
/// things that do not exist costs the server little.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReopenPace {
    last: Option<Moment>,
    times: u32,
}

impl ReopenPace {
    pub(crate) fn next_at(&self, limits: &Limits) -> Option<Moment> {
        self.last.map(|last| last + Self::pause(self.times, limits))
    }

    pub(crate) fn note(&mut self, now: Moment, limits: &Limits) {
        let calm = self.last.is_some_and(|last| now >= last + 2 * Self::pause(LONGEST_AFTER, limits));
        self.times = if calm { 0 } else { (self.times + 1).min(LONGEST_AFTER) };
        self.last = Some(now);
    }

    fn pause(times: u32, limits: &Limits) -> Duration {
        limits.resource_timer * 2_u32.pow(times.saturating_sub(1))
    }
}

/// For so many times as long as a silence has to last it may be put off by things that nobody holds.
const WHILES: u32 = 10;
/// Times that a set is requested before silence has to do.
const ENOUGH: u8 = 3;
/// With a resource timer of 15 seconds, every four minutes.
const LONGEST_AFTER: u32 = 5;

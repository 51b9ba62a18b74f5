//! What is requested from a server a second time, because a client holds it and the server was silent about it after the first request.
//!
//! The second request is a new opening of the stream. It states those names under a version that no server gives: a server that has them sends
//! them, and one that does not removes them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct SecondRequest {
    /// Names that were requested a second time on this opening, and that the server has not answered.
    names: BTreeSet<Name>,
    /// A set was requested a second time, because a client holds a set whose content is not known.
    set: bool,
    /// How often the set was requested again.
    times: u8,
    since: Option<Moment>,
    /// What is to be requested on the next opening.
    next: OpenQuestion,
    /// The next opening does not wait for its pace, because a client needs the end of the set.
    at_once: bool,
    /// The generation of claims when the open questions were last collected.
    looked: Option<u64>,
    /// The generation up to which all claims were checked, together with everything that is cached.
    seen: Option<u64>,
    /// Names about which the server has been silent since then, and that may be cached.
    silent: BTreeSet<Name>,
    /// The end of a silence after which questions are open, while the server has yet to show that it was alive.
    unproven: Option<Moment>,
}

/// What clients hold and the server has not answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OpenQuestion {
    pub(crate) names: BTreeSet<Name>,
    pub(crate) set: bool,
}

/// Where to look for open questions that were not checked yet.
pub(super) struct Unseen<'a> {
    /// The generation up to which claims were checked: only names claimed since may be open questions.
    pub(crate) since: u64,
    /// Names about which the server has been silent since then.
    pub(crate) silent: &'a BTreeSet<Name>,
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

    /// Returns the names that were requested a second time on this opening, and that the server has not answered.
    pub(crate) fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    /// Whether the set was requested a second time on this opening, and its end is not known.
    pub(crate) fn has_set(&self) -> bool {
        self.set
    }

    /// Adds names that the first request of this opening requests too.
    pub(crate) fn insert(&mut self, names: Vec<Name>) {
        self.names.extend(names);
    }

    /// Whether open questions have to be collected: they were not yet on this opening, or clients have claimed more since.
    pub(crate) fn is_to_look(&mut self, generation: u64) -> bool {
        self.looked = self.looked.filter(|looked| *looked == generation);
        !self.has_looked()
    }

    pub(crate) fn looked(&mut self, generation: u64) {
        (self.looked, self.seen, self.unproven) = (Some(generation), Some(generation), None);
        self.silent.clear();
    }

    /// Records that questions are open, but the server has not shown since the end of a silence that it is alive. They are collected again when it
    /// has shown that.
    pub(crate) fn await_life(&mut self, end: Moment) {
        self.unproven = Some(end);
    }

    /// Whether it is known already that questions are open after the silence that ended at this time.
    pub(crate) fn awaits_life(&self, end: Moment) -> bool {
        self.unproven == Some(end)
    }

    pub(crate) fn has_looked(&self) -> bool {
        self.looked.is_some() && self.silent.is_empty()
    }

    /// Records that there may be more open questions than were collected.
    pub(crate) fn recheck(&mut self) {
        (self.looked, self.seen, self.unproven) = (None, None, None);
    }

    /// Records that the server has been silent about a name, which may be an open question.
    pub(crate) fn recheck_name(&mut self, name: &Name) {
        self.silent.insert(name.clone());
    }

    /// Returns what was not checked yet on this opening. `None` means everything.
    pub(crate) fn unseen(&self) -> Option<Unseen<'_>> {
        self.seen.map(|since| Unseen { since, silent: &self.silent })
    }

    /// Removes from a question the names that were requested a second time on this opening.
    pub(crate) fn without_asked(&self, mut question: OpenQuestion) -> OpenQuestion {
        question.names.retain(|name| !self.names.contains(name));
        question
    }

    /// Whether a question waits for a new opening.
    pub(crate) fn is_to_ask(&self) -> bool {
        !self.next.is_empty()
    }

    /// Whether a set is to be requested again on a new opening.
    pub(crate) fn is_to_ask_for_set(&self) -> bool {
        self.next.set
    }

    /// Whether the end of the set may be asked for without the pause between openings: the first time, and the second time if the set has grown
    /// since, because more is stated then.
    pub(crate) fn may_ask_at_once(&self, has_grown: bool) -> bool {
        self.times == 0 || self.times == 1 && has_grown
    }

    /// Whether the stream is to be opened again without a pause.
    pub(crate) fn is_to_ask_at_once(&self) -> bool {
        self.at_once && self.is_to_ask()
    }

    pub(crate) fn ask_next(&mut self, question: OpenQuestion, at_once: bool) {
        self.at_once |= at_once;
        self.next.names.extend(question.names);
        self.next.set |= question.set;
        self.times = self.times.saturating_add(u8::from(question.set));
    }

    /// Records that the server has answered for a name.
    pub(crate) fn answered(&mut self, name: &Name) {
        self.unproven = None; // perhaps no question is open any more
        self.names.remove(name);
        self.next.names.remove(name);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Name) -> bool) {
        self.names.retain(&keep);
        self.next.names.retain(&keep);
    }

    /// Moves what was not answered when the stream ended to the next opening.
    pub(crate) fn disconnect(&mut self) {
        let OpenQuestion { names, set } = std::mem::take(&mut self.next);
        self.names.extend(names);
        self.set |= set;
        (self.since, self.at_once) = (None, false);
        self.recheck();
        self.silent.clear();
    }

    pub(crate) fn written(&mut self, now: Moment) {
        if !self.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    /// Returns when the second silence has lasted long enough to count as absence. A server that still confirms what clients hold is not silent.
    /// Neither is one that sends anything new of any type, up to a limit, because content that no client holds may come without end.
    pub(crate) fn ends_at(
        &self,
        growth: Option<Moment>,
        news: Option<Moment>,
        options: &UpstreamOptions,
    ) -> Option<Moment> {
        let since = self.since.filter(|_| !self.is_empty())?;
        let news = news.unwrap_or(since).min(since + WHILES * options.second_silence);
        Some(since.max(news).max(growth.unwrap_or(since)) + options.second_silence)
    }

    /// Returns since when the server has been silent about what was requested a second time on this opening.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.since.filter(|_| !self.is_empty())
    }

    /// Returns how long that silence lasts at most, if the server confirms nothing meanwhile.
    pub(crate) fn longest(options: &UpstreamOptions) -> Duration {
        (1 + WHILES) * options.second_silence
    }

    /// Whether a set was requested so often that one more request would only make a slow server start over.
    pub(crate) fn has_requested_enough(&self) -> bool {
        self.times >= ENOUGH
    }

    pub(crate) fn conclude(&mut self) -> OpenQuestion {
        (self.since, self.times) = (None, 0);
        OpenQuestion { names: std::mem::take(&mut self.names), set: std::mem::take(&mut self.set) }
    }

    /// Records that the complete set was sent, which ends the questions of this opening and those for the next. Returns their names.
    pub(crate) fn conclude_all(&mut self) -> BTreeSet<Name> {
        let OpenQuestion { mut names, .. } = self.conclude();
        names.append(&mut std::mem::take(&mut self.next).names);
        names
    }
}

/// Limits how often a stream is opened again for a second request. Each pause is twice as long as the one before, so that a client that states names
/// which do not exist costs the server little. To request `*` again, for which clients wait, pauses begin at 2 s and end at two resource timers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReopenPace {
    last: Option<Moment>,
    times: u32,
    /// When the stream was last opened again because clients waited for a type that was not requested.
    last_awaited: Option<Moment>,
    /// How often in a row that was.
    times_awaited: u32,
}

impl ReopenPace {
    /// Returns when the pause is over. If the next opening `is_awaited`, because clients wait for a type that is not requested until then, it is over
    /// sooner, and at once if there was none of that kind.
    pub(crate) fn next_at(&self, is_awaited: bool, options: &UpstreamOptions) -> Option<Moment> {
        let paced = self.last? + Self::pause(self.times, options);
        match is_awaited {
            true => self.last_awaited.map(|last| paced.min(last + self.awaited_pause(options))),
            false => Some(paced),
        }
    }

    /// When the stream was last opened again for a second request.
    pub(crate) fn last(&self) -> Option<Moment> {
        self.last
    }

    /// Returns the longest pause between two such openings.
    pub(crate) fn longest(options: &UpstreamOptions) -> Duration {
        Self::pause(LONGEST_AFTER, options)
    }

    pub(crate) fn note(&mut self, now: Moment, is_awaited: bool, options: &UpstreamOptions) {
        let calm = self.last.is_some_and(|last| now >= last + 2 * Self::pause(LONGEST_AFTER, options));
        self.times = if calm { 0 } else { (self.times + 1).min(LONGEST_AFTER) };
        self.last = Some(now);
        if is_awaited {
            let calm = self.last_awaited.is_none_or(|last| now >= last + 4 * options.resource_timer);
            self.times_awaited = if calm { 0 } else { (self.times_awaited + 1).min(LONGEST_AFTER) };
            self.last_awaited = Some(now);
        }
    }

    fn awaited_pause(&self, options: &UpstreamOptions) -> Duration {
        (FIRST_AWAITED * 2_u32.pow(self.times_awaited)).min(2 * options.resource_timer)
    }

    fn pause(times: u32, options: &UpstreamOptions) -> Duration {
        options.resource_timer * 2_u32.pow(times.saturating_sub(1))
    }
}

/// Content that no client holds delays the end of a silence by at most this many times its length.
const WHILES: u32 = 10;
/// After this many requests of a set, silence has to suffice.
const ENOUGH: u8 = 3;
/// The pause after the first opening for which clients waited.
const FIRST_AWAITED: Duration = Duration::from_secs(2);
/// After this many openings in a row the pause grows no more. With a resource timer of 15 seconds it is four minutes then.
const LONGEST_AFTER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    /// One name was requested a second time, on an opening whose requests were written at this time.
    fn requested_at(second: &mut SecondRequest, seconds: u64) {
        second.ask_next(OpenQuestion { names: ["a".into()].into(), set: true }, false);
        second.disconnect();
        second.written(at(seconds));
    }

    #[test]
    fn the_second_silence_begins_with_its_request_and_again_with_each_confirmed_name_and_each_opening() {
        let options = UpstreamOptions::default();
        let ends = |second: &SecondRequest, growth| second.ends_at(growth, None, &options);
        let mut second = SecondRequest::default();
        requested_at(&mut second, 10);
        second.written(at(12));
        assert_eq!(ends(&second, None), Some(at(10) + options.second_silence));
        assert_eq!(ends(&second, Some(at(20))), Some(at(20) + options.second_silence));
        second.disconnect();
        assert_eq!(ends(&second, None), None, "nothing is requested yet on the next opening");
        second.written(at(30));
        assert_eq!(ends(&second, None), Some(at(30) + options.second_silence));
        second.conclude();
        requested_at(&mut second, 50);
        assert_eq!(ends(&second, None), Some(at(50) + options.second_silence));
    }

    #[test]
    fn a_set_that_was_concluded_may_be_requested_as_often_again() {
        let mut second = SecondRequest::default();
        for round in 0..3 {
            for times in 1..=ENOUGH {
                assert!(!second.has_requested_enough(), "{times} in round {round}");
                requested_at(&mut second, 10);
            }
            assert!(second.has_requested_enough());
            second.conclude();
        }
    }

    #[test]
    fn the_pause_between_openings_grows_and_is_short_again_after_a_calm_time() {
        let options = UpstreamOptions::default();
        let (mut pace, mut now) = (ReopenPace::default(), at(10));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pace.note(now, false, &options);
            let next = pace.next_at(false, &options).unwrap();
            pauses.push((next - now).as_secs() / options.resource_timer.as_secs());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16, 16]);
        now = now + 2 * ReopenPace::pause(LONGEST_AFTER, &options);
        pace.note(now, false, &options);
        assert_eq!(pace.next_at(false, &options), Some(now + options.resource_timer));
    }

    #[test]
    fn an_opening_for_which_clients_wait_is_due_at_once_and_then_less_and_less_often() {
        let (mut pace, options) = (ReopenPace::default(), UpstreamOptions::default());
        (0..5).for_each(|_| pace.note(at(10), false, &options));
        assert_eq!(pace.next_at(false, &options), Some(at(10) + 16 * options.resource_timer));
        assert_eq!(pace.next_at(true, &options), None, "the others were not for that");
        for pause in [2, 4, 8, 16, 30, 30] {
            pace.note(at(20), true, &options);
            assert_eq!(pace.next_at(true, &options), Some(at(20 + pause)));
        }
        assert_eq!(pace.next_at(false, &options), Some(at(20) + 16 * options.resource_timer));
        pace.note(at(80), true, &options);
        assert_eq!(pace.next_at(true, &options), Some(at(82)), "it was calm");
    }
}

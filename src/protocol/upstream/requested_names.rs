//! What is requested from one server: names that it has not sent on this opening, collections, and names that were left a short while ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::liveness::SilenceVerdict;
use crate::protocol::moment::Moment;
use crate::protocol::visits::visit;
use crate::xds::Name;

/// Names that were requested and that the server has not sent on this opening. Other names are not kept here.
#[derive(Debug, Default)]
pub(super) struct RequestedNames {
    open: BTreeMap<Name, NameState>,
    timers: BTreeSet<(Moment, Name)>,
    /// Names in requests that are made and not yet written.
    handed_out: BTreeSet<Name>,
    /// Names of the first request of this opening that the server has neither answered nor been silent about. Only of routing types.
    due: BTreeSet<Name>,
}

/// The state of a name that the server has not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameState {
    /// Its timer runs once the request is written.
    Waiting {
        until: Option<Moment>,
        /// It was in the first request for the type on this opening, so that no response is older than the request (UP-24).
        first: bool,
    },
    /// The server is alive and was silent for the resource timer.
    Silent,
    /// The server has reported that it does not exist.
    Absent,
}

impl RequestedNames {
    pub(crate) fn get(&self, name: &Name) -> Option<NameState> {
        self.open.get(name).copied()
    }

    pub(crate) fn is_waiting(&self, name: &Name) -> bool {
        matches!(self.open.get(name), Some(NameState::Waiting { .. }))
    }

    pub(crate) fn is_any_waiting(&self) -> bool {
        self.iter().any(|(_, question)| matches!(question, NameState::Waiting { .. }))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, NameState)> {
        self.open.iter().inspect(|_| visit()).map(|(name, question)| (name, *question))
    }

    /// Names of the first request of this opening, to each of which an answer is due.
    pub(crate) fn expect(&mut self, names: BTreeSet<Name>) {
        self.due = names;
    }

    pub(crate) fn is_any_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The server has sent something of the name.
    pub(crate) fn answered(&mut self, name: &Name) {
        self.due.remove(name);
    }

    pub(crate) fn request(&mut self, name: Name) {
        self.answered(&name);
        self.stop_timer(&name);
        self.open.insert(name, NameState::Waiting { until: None, first: false });
    }

    /// The server has sent the resource, or something under its name that counts as present.
    pub(crate) fn given(&mut self, name: &Name) {
        self.answered(name);
        self.stop_timer(name);
        self.open.remove(name);
    }

    pub(crate) fn forget(&mut self, name: &Name) {
        self.given(name);
        self.handed_out.remove(name);
    }

    pub(crate) fn settle(&mut self, name: Name, question: NameState) {
        self.answered(&name);
        self.stop_timer(&name);
        self.open.insert(name, question);
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

    /// The server cannot answer now: timers that ran start over when it can (UP-35).
    pub(crate) fn pause(&mut self) {
        self.timers.clear();
        for (name, question) in &mut self.open {
            if let NameState::Waiting { until, .. } = question
                && until.take().is_some()
            {
                self.handed_out.insert(name.clone());
            }
        }
    }

    /// The stream has ended: every name is requested again. What the server reported of names no longer counts.
    pub(crate) fn disconnect(&mut self) {
        self.timers.clear();
        self.handed_out.clear();
        self.due.clear();
        self.open.values_mut().for_each(|question| *question = NameState::Waiting { until: None, first: false });
    }

    /// When the next timer after a moment ends.
    pub(crate) fn next_deadline(&self, after: Moment) -> Option<Moment> {
        let later = (after + Duration::from_micros(1), Name::from(""));
        self.timers.range(later..).next().map(|(until, _)| *until)
    }

    /// Returns the next name about which a server that is alive was silent for the resource timer, and marks it as silent.
    pub(crate) fn next_silent(&mut self, now: Moment, mut judge: impl FnMut(Moment) -> SilenceVerdict) -> Option<Name> {
        let (until, _) = self.timers.first().filter(|(until, _)| *until <= now)?;
        if judge(*until) != SilenceVerdict::Proven {
            return None;
        }
        let (_, name) = self.timers.pop_first()?;
        self.due.remove(&name);
        self.open.insert(name.clone(), NameState::Silent);
        Some(name)
    }

    /// Returns the names whose timers run, with the end of each, the first end first.
    pub(crate) fn timers(&self) -> impl ExactSizeIterator<Item = (Moment, &Name)> {
        self.timers.iter().map(|(until, name)| (*until, name))
    }

    /// Returns the names that the server is to answer and whose timers do not run.
    pub(crate) fn untimed(&self) -> impl Iterator<Item = &Name> {
        let untimed = |state: NameState| matches!(state, NameState::Waiting { until: None, .. });
        self.iter().filter(move |(_, state)| untimed(*state)).map(|(name, _)| name)
    }

    fn stop_timer(&mut self, name: &Name) {
        if let Some(NameState::Waiting { until: Some(until), .. }) = self.open.get(name) {
            self.timers.remove(&(*until, name.clone()));
        }
    }
}

/// Names that were unsubscribed on this opening a short while ago. When one is subscribed again, a response to the time between may lack it:
/// that is no evidence of whether it exists.
#[derive(Debug, Default)]
pub(super) struct RecentlyLeft {
    /// In a request that is made and not yet written.
    leaving: BTreeSet<Name>,
    /// Until when a response may come that was made while the name was not subscribed.
    until: BTreeMap<Name, Moment>,
    deadlines: VecDeque<(Moment, Name)>,
}

impl RecentlyLeft {
    pub(crate) fn leave(&mut self, mut names: BTreeSet<Name>) {
        self.leaving.append(&mut names);
    }

    /// Requests were written. They are answered within `lasting`.
    pub(crate) fn written(&mut self, now: Moment, lasting: Duration) {
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

    pub(crate) fn is_recent(&self, name: &Name, now: Moment) -> bool {
        self.leaving.contains(name) || self.until.get(name).is_some_and(|until| now < *until)
    }
}

/// The collections that are requested.
#[derive(Debug, Default)]
pub(super) struct Globs(BTreeMap<Name, GlobState>);

#[derive(Debug, Default)]
struct GlobState {
    /// An error was reported: this server cannot serve it.
    rejected: bool,
    /// The server has sent something of it on this opening.
    begun: bool,
}

impl Globs {
    pub(crate) fn insert(&mut self, name: &Name) {
        if name.is_glob() {
            self.0.insert(name.clone(), GlobState::default());
        }
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.0.remove(name).is_some()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.0.keys()
    }

    /// The collection that a name is in.
    pub(crate) fn of(&self, name: &Name) -> Option<&Name> {
        if self.0.is_empty() {
            return None; // the usual case; a look-up costs time
        }
        self.0.get_key_value(&name.collection()?).map(|(glob, _)| glob)
    }

    /// Notes that the server has sent something of it. Returns whether that is the first time.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        self.0.get_mut(glob).is_some_and(|standing| !std::mem::replace(&mut standing.begun, true))
    }

    /// Returns those that the server has sent something of.
    pub(crate) fn begun(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, standing)| standing.begun).map(|(name, _)| name)
    }

    /// Returns those for which an error was reported.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().filter(|(_, standing)| standing.rejected).map(|(name, _)| name)
    }

    pub(crate) fn any_unasked(&self) -> bool {
        self.0.values().any(|standing| !standing.rejected)
    }

    pub(crate) fn take_unasked(&mut self) -> Vec<Name> {
        let unasked = self.0.iter_mut().filter(|(_, standing)| !standing.rejected);
        let refuse = |(name, standing): (&Name, &mut GlobState)| {
            standing.rejected = true;
            name.clone()
        };
        unasked.map(refuse).collect()
    }

    /// Another server may answer next, or the same one in another variant.
    pub(crate) fn disconnect(&mut self) {
        self.0.values_mut().for_each(|standing| *standing = GlobState::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the silence would begin before the server has the request.
    #[test]
    fn up_35_the_timer_of_a_name_that_was_given_up_and_is_wanted_again_begins_with_its_own_request() {
        let (mut requested, a) = (RequestedNames::default(), Name::from("a"));
        let written = |requested: &mut RequestedNames| {
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

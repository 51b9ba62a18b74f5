//! Types for which a server may end the stream: they are kept off the view's stream, and tried apart.
//!
//! A trial is a stream of its own, and says one thing: whether the server takes a type. Nothing that is sent on it counts for anything else. A
//! server that takes no second stream of a node has no trials: there, types are put back on the view's stream one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::first_requests::{FirstRequests, PROOF, Suspicion};
use super::trial_pace::{LONGEST_PAUSE, TrialPace, pause_after};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::server_status::ServerStatus;
use crate::xds::Type;

/// Which types of one stream are kept off it, and their trials.
#[derive(Debug, Default)]
pub(super) struct TypeTrials {
    apart: BTreeMap<Type, Apart>,
    /// Wanted types that the server takes.
    taken: BTreeSet<Type>,
    /// Those that other views were not told of yet.
    unshared: Vec<Type>,
    taken_in_others: Arc<BTreeSet<Type>>,
    first_requests: FirstRequests,
    trial: Option<TrialOf>,
    /// The stream of a type was ended by this status. From then on it may be seen whether second streams are taken at all.
    unproven: Option<(Type, ServerStatus, Moment)>,
    /// Until then the server is taken for one that does not take a second stream of a node.
    one_stream_until: Option<Moment>,
    /// Trials in a row that have shown nothing.
    failures: u32,
    pace: TrialPace,
}

/// A type that is kept off the stream.
#[derive(Debug, Default)]
struct Apart {
    /// It is tried from then on.
    next: Option<Moment>,
    /// The view's stream was ended so when the type was new on it.
    suspected: Option<ServerStatus>,
    /// It is tried by itself, since others were not why.
    is_alone: bool,
    /// The status by which the server refuses it.
    refusal: Option<ServerStatus>,
    refusals: u32,
    /// It is on the view's stream, to be tried there.
    is_back: bool,
}

/// What is being tried.
#[derive(Debug)]
enum TrialOf {
    Types(Vec<Type>, Moment),
    /// A type that the server takes on the first stream.
    SecondStream(Moment),
}

/// What a trial has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialEnd {
    /// The server has answered, or has left the stream open for long enough.
    Taken,
    /// The server has ended it by this status.
    Ended(ServerStatus),
    /// There was no such stream, or it was lost.
    Lost,
}

/// What is to be requested on a stream of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DueTrial {
    pub(crate) kinds: Vec<Type>,
    /// It is about the stream: any name of the type will do.
    pub(crate) is_of_second_stream: bool,
}

/// How many types are tried together.
const TOGETHER: usize = 8;
/// The pause after a trial that has shown nothing, and how many of them there are before the view's stream is used instead.
const SHORT_PAUSE: Duration = Duration::from_secs(2);
const FAILURES: u32 = 3;
/// How many refused types are remembered that nobody wants.
const REMEMBERED: usize = 64;

impl TypeTrials {
    /// Whether a type must not be requested on the view's stream.
    pub(crate) fn is_apart(&self, kind: &Type) -> bool {
        self.apart.get(kind).is_some_and(|of| !of.is_back)
    }

    /// Returns the status by which the server refuses a type.
    pub(crate) fn refusal(&self, kind: &Type) -> Option<&ServerStatus> {
        self.apart.get(kind)?.refusal.as_ref()
    }

    /// Returns the types that are kept off, with the status by which the server refuses one.
    pub(crate) fn all_apart(&self) -> impl Iterator<Item = (&Type, Option<&ServerStatus>)> {
        self.apart.iter().filter(|(_, of)| !of.is_back).map(|(kind, of)| (kind, of.refusal.as_ref()))
    }

    fn is_taken(&self, kind: &Type) -> bool {
        self.taken.contains(kind) || self.taken_in_others.contains(kind)
    }

    /// Decides which of the wanted types may be requested, that were not or were `opened` already. One that nothing is known of is tried
    /// first, unless the stream would have nothing else.
    pub(crate) fn sort<'a>(
        &mut self,
        wanted: impl Iterator<Item = (&'a Type, bool)> + Clone,
        is_in_table: impl Fn(&Type) -> bool,
    ) {
        let is_unknown = |kind: &Type| !is_in_table(kind) && !self.is_taken(kind) && !self.apart.contains_key(kind);
        let is_other = |(kind, opened): (&Type, bool)| opened || !self.is_apart(kind) && !is_unknown(kind);
        if wanted.clone().any(is_other) {
            let unknown = wanted.filter(|(kind, opened)| !opened && is_unknown(kind));
            let unknown: Vec<_> = unknown.map(|(kind, _)| kind.clone()).collect();
            self.apart.extend(unknown.into_iter().map(|kind| (kind, Apart::default())));
        } else if let Some((kind, _)) = wanted.clone().next() {
            self.apart.get_mut(kind).into_iter().for_each(|of| of.is_back = true);
        }
    }

    /// A type was requested for the first time on this opening.
    pub(crate) fn on_requested(&mut self, kind: &Type, now: Moment) {
        self.first_requests.note(kind, now);
    }

    /// The server has sent a response of the type.
    pub(crate) fn on_response(&mut self, kind: &Type) {
        if self.first_requests.on_answer(kind) {
            self.on_taken_here(kind);
        }
    }

    fn on_taken_here(&mut self, kind: &Type) {
        self.first_requests.on_lived();
        if self.apart.get(kind).is_some_and(|of| of.is_back) {
            self.pace.on_put_back();
        }
        self.on_taken(kind);
    }

    fn on_taken(&mut self, kind: &Type) {
        self.apart.remove(kind);
        if self.taken.insert(kind.clone()) {
            self.unshared.push(kind.clone());
        }
    }

    /// Returns what the server was found to take since the last call.
    pub(crate) fn take_unshared(&mut self) -> Vec<Type> {
        std::mem::take(&mut self.unshared)
    }

    /// Other views have found that the server takes these. Which type it has refused in this view is seen here.
    pub(crate) fn on_taken_in_others(&mut self, types: &Arc<BTreeSet<Type>>) {
        if !Arc::ptr_eq(types, &self.taken_in_others) {
            self.taken_in_others = types.clone();
            self.apart.retain(|kind, of| of.suspected.is_some() || of.refusal.is_some() || !types.contains(kind));
        }
    }

    /// Handles due timers.
    pub(crate) fn on_time(&mut self, is_wanted: impl Fn(&Type) -> bool, now: Moment) {
        self.first_requests.retain(&is_wanted);
        self.taken.retain(&is_wanted);
        let mut left = REMEMBERED;
        self.apart.retain(|kind, of| is_wanted(kind) || of.is_remembered(now, &mut left));
        for kind in self.first_requests.lasting(now, |kind| self.taken.contains(kind)) {
            self.on_taken_here(&kind);
        }
        if self.first_requests.is_live() && self.has_one_stream(now) {
            self.try_on_stream(now);
        }
    }

    /// The view's stream works without these. Each is put back on it by itself, but a refused one only when it is opened anyway.
    fn try_on_stream(&mut self, now: Moment) {
        for of in self.apart.values_mut().filter(|of| of.is_alone && !of.is_back) {
            if let Some(status) = of.suspected.take() {
                of.refuse(status, now);
            }
        }
        if self.may_put_back(now)
            && let Some(of) = self.apart.values_mut().find(|of| of.refusal.is_none() && of.is_due(now))
        {
            of.is_back = true;
        }
    }

    fn may_put_back(&self, now: Moment) -> bool {
        !self.apart.values().any(|of| of.is_back) && self.pace.may_put_back(now)
    }

    fn has_one_stream(&self, now: Moment) -> bool {
        self.one_stream_until.is_some_and(|until| now < until)
    }

    /// Takes the trial that is due.
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<DueTrial> {
        if self.trial_deadline(now).is_none_or(|at| at > now) || self.has_one_stream(now) {
            return None;
        }
        if self.unproven.is_some() {
            let Some(known) = self.first_requests.find(|kind| self.is_taken(kind)).cloned() else {
                let (kind, ..) = self.unproven.take()?; // what it was compared with is not wanted any more
                self.each(&[kind], |of| of.next = Some(now + SHORT_PAUSE));
                return None;
            };
            let kinds = vec![known];
            self.trial = Some(TrialOf::SecondStream(now));
            return Some(DueTrial { kinds, is_of_second_stream: true });
        }
        let kinds = self.candidates(now);
        self.pace.note(now);
        self.trial = Some(TrialOf::Types(kinds.clone(), now));
        Some(DueTrial { kinds, is_of_second_stream: false })
    }

    fn candidates(&self, now: Moment) -> Vec<Type> {
        let due = || self.apart.iter().filter(|(_, of)| of.is_due(now) && !of.is_back);
        let together = due().filter(|(_, of)| !of.is_alone && of.refusal.is_none()).map(|(kind, _)| kind.clone());
        let together: Vec<_> = together.take(TOGETHER).collect();
        let first = || due().min_by_key(|(_, of)| of.next).map(|(kind, _)| kind.clone());
        if together.is_empty() { first().into_iter().collect() } else { together }
    }

    /// What is due to be tried is not wanted any more.
    pub(crate) fn drop_trial(&mut self) {
        self.trial = None;
    }

    /// A trial has ended.
    pub(crate) fn on_trial_end(&mut self, end: TrialEnd, now: Moment) {
        let end = match end {
            TrialEnd::Ended(status) if !status.may_concern_request() => TrialEnd::Lost,
            end => end,
        };
        match (self.trial.take(), end) {
            (None, _) => {}
            (Some(TrialOf::Types(kinds, _)), TrialEnd::Taken) => {
                self.failures = 0;
                kinds.iter().for_each(|kind| self.on_taken(kind));
            }
            (Some(TrialOf::Types(kinds, _)), TrialEnd::Ended(status)) => match &kinds[..] {
                [kind] => self.unproven = Some((kind.clone(), status, now)),
                _ => self.each(&kinds, |of| of.is_alone = true),
            },
            (Some(TrialOf::Types(kinds, _)), TrialEnd::Lost) => {
                self.each(&kinds, |of| of.next = Some(now + SHORT_PAUSE));
                self.on_failure(now);
            }
            (Some(TrialOf::SecondStream(_)), TrialEnd::Taken) => {
                self.failures = 0;
                if let Some((kind, status, _)) = self.unproven.take() {
                    self.taken.remove(&kind);
                    self.each(&[kind], |of| of.refuse(status.clone(), now));
                }
            }
            (Some(TrialOf::SecondStream(_)), TrialEnd::Ended(_)) => self.use_one_stream(now),
            (Some(TrialOf::SecondStream(_)), TrialEnd::Lost) => {
                self.unproven = self.unproven.take().map(|(kind, status, _)| (kind, status, now + SHORT_PAUSE));
                self.on_failure(now);
            }
        }
    }

    fn each(&mut self, kinds: &[Type], mut change: impl FnMut(&mut Apart)) {
        kinds.iter().for_each(|kind| self.apart.get_mut(kind).into_iter().for_each(&mut change));
    }

    fn on_failure(&mut self, now: Moment) {
        self.failures += 1;
        if self.failures >= FAILURES {
            self.use_one_stream(now);
        }
    }

    /// Second streams show nothing, for a while.
    fn use_one_stream(&mut self, now: Moment) {
        (self.failures, self.unproven) = (0, None);
        self.one_stream_until = Some(now + LONGEST_PAUSE);
    }

    /// The stream has ended, by this status if it was the server.
    pub(crate) fn on_ended(&mut self, status: Option<&ServerStatus>, now: Moment) {
        let trial = self.trial.take();
        self.unproven = None;
        match (trial, status.filter(|status| status.may_concern_request())) {
            (_, None) => {}
            // It may have ended this stream for the other.
            (Some(TrialOf::Types(_, begun) | TrialOf::SecondStream(begun)), _) if now < begun + PROOF => {
                self.use_one_stream(now);
            }
            (_, Some(status)) => self.on_ended_by_server(status, now),
        }
        self.first_requests.clear();
        self.apart.values_mut().for_each(|of| of.is_back = false);
        if self.has_one_stream(now)
            && let Some(of) = self.apart.values_mut().find(|of| of.refusal.is_some() && of.is_due(now))
        {
            of.is_back = true; // the stream is opened anyway
        }
    }

    fn on_ended_by_server(&mut self, status: &ServerStatus, now: Moment) {
        let is_off = |of: &Apart| of.suspected.is_some() && !of.is_back;
        let off = self.apart.iter().filter(|(_, of)| is_off(of)).map(|(kind, _)| kind.clone()).collect();
        let Self { taken, taken_in_others, .. } = self;
        let is_taken = |kind: &Type| taken.contains(kind) || taken_in_others.contains(kind);
        match self.first_requests.on_ended(is_taken, off, now) {
            Suspicion::None => {}
            Suspicion::Of(kinds) => {
                if self.apart.values().any(|of| of.is_back) {
                    self.pace.on_lost(now);
                }
                self.suspect(&kinds, kinds.len() == 1, status);
            }
            Suspicion::Turn { on, off } => {
                self.suspect(&off, false, status);
                self.apart.retain(|kind, of| of.refusal.is_some() || !on.contains(kind));
            }
        }
    }

    fn suspect(&mut self, kinds: &[Type], is_alone: bool, status: &ServerStatus) {
        for kind in kinds {
            self.taken.remove(kind);
            let of = self.apart.entry(kind.clone()).or_default();
            (of.suspected, of.is_alone) = (Some(status.clone()), is_alone);
        }
    }

    /// When something is next due.
    pub(crate) fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let lasting = self.first_requests.next_lasting(|kind| self.taken.contains(kind));
        earliest(lasting, self.trial_deadline(now))
    }

    fn trial_deadline(&self, now: Moment) -> Option<Moment> {
        let has_one_stream = self.has_one_stream(now);
        if !self.first_requests.is_live() || self.trial.is_some() {
            return None;
        }
        if let Some((_, _, at)) = &self.unproven {
            return Some(*at);
        }
        let may = |of: &&Apart| !(of.is_back || has_one_stream && of.refusal.is_some());
        let next = self.apart.values().filter(may).map(|of| of.next.unwrap_or(Moment::START)).min()?;
        let paced = if has_one_stream { self.pace.put_back_at() } else { self.pace.next() };
        Some(paced.map_or(next, |paced| next.max(paced)))
    }
}

impl Apart {
    fn is_due(&self, now: Moment) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Whether it is kept although nobody wants it: who asks next hears of it at once.
    fn is_remembered(&self, now: Moment, left: &mut usize) -> bool {
        let is = self.refusal.is_some() && !self.is_due(now) && *left > 0;
        *left -= usize::from(is);
        is
    }

    fn refuse(&mut self, status: ServerStatus, now: Moment) {
        self.refusal = Some(status);
        self.next = Some(now + pause_after(self.refusals));
        (self.refusals, self.suspected) = (self.refusals + 1, None);
    }
}

#[cfg(test)]
mod tests;

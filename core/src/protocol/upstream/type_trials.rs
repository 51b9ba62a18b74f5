//! Types for which a server may end the stream: they are kept off the view's stream and tried on streams of their own.
//!
//! A trial is a stream of its own that shows one thing: whether the server takes a type. Nothing that the server sends on it counts otherwise. A
//! server that takes no second stream of a node has no trials: there, types are put back on the view's stream one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::apart::{ApartType, Why};
use super::first_requests::{FirstRequests, PROOF, Suspicion};
use super::running_trial::{RunningTrial, TrialEnd};
use super::taken_types::{Taken, TakenTypes};
use super::trial_pace::{LONGEST_PAUSE, TrialPaces};
use super::turns::{Turn, Turns};
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::xds::Type;

/// Which types of one stream are kept off it, and their trials.
#[derive(Debug, Default)]
pub(super) struct TypeTrials {
    apart: BTreeMap<Type, ApartType>,
    /// Those of the stream's types that are outside of the table.
    outside: BTreeSet<Type>,
    turns: Turns,
    /// The type outside of the table that the next opening is for, and the status with which the last opening was ended.
    turn: Option<(Type, ServerStatus)>,
    /// This opening is for such a type.
    is_turn: bool,
    pub(super) taken: TakenTypes,
    pub(super) first_requests: FirstRequests,
    trial: Option<RunningTrial>,
    /// How many trials were made.
    count: u64,
    /// Until when the server counts as one that does not take a second stream of a node.
    pub(super) one_stream_until: Option<Moment>,
    /// How many trials in a row have shown nothing.
    failures: u32,
    paces: TrialPaces,
}

/// How many types are tried together at most.
const TOGETHER: usize = 8;
/// The pause after a trial that has shown nothing, and after how many of them the view's stream is used instead.
const SHORT_PAUSE: Duration = Duration::from_secs(2);
const FAILURES: u32 = 3;
/// How many refused types are remembered that no client wants.
const REMEMBERED: usize = 64;

impl TypeTrials {
    /// Whether a type must not be requested on the view's stream.
    pub(crate) fn is_apart(&self, kind: &Type) -> bool {
        self.apart.get(kind).is_some_and(|of| !of.is_back)
    }

    /// Returns the status with which the server refuses a type.
    pub(crate) fn refusal(&self, kind: &Type) -> Option<&ServerStatus> {
        self.apart.get(kind)?.refusal.as_ref()
    }

    /// Returns the types that are kept off, each with the status if the server refuses it.
    pub(crate) fn all_apart(&self) -> impl Iterator<Item = (&Type, Option<&ServerStatus>)> {
        let apart = self.apart.iter().filter(|(_, of)| of.is_wanted && !of.is_back);
        apart.map(|(kind, of)| (kind, of.refusal.as_ref()))
    }

    /// Returns the types that the server refuses, wanted or not.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &Type> {
        self.apart.iter().filter(|(_, of)| of.refusal.is_some()).map(|(kind, _)| kind)
    }

    /// Decides which of the wanted types may be requested. Each is given with whether it is `opened`: requested on this opening already. An
    /// unknown type is kept off and tried, unless the stream would have nothing else.
    pub(crate) fn sort<'a>(
        &mut self,
        wanted: impl Iterator<Item = (&'a Type, bool)> + Clone,
        is_in_table: impl Fn(&Type) -> bool,
        now: Moment,
    ) {
        for (kind, _) in wanted.clone().filter(|(kind, opened)| !opened && !is_in_table(kind)) {
            if !self.outside.contains(kind) {
                self.outside.insert(kind.clone());
            }
        }
        if self.first_requests.is_none() {
            self.begin_turn(wanted.clone().map(|(kind, _)| kind), now);
            if self.one_stream_until.is_some_and(|until| now < until) {
                self.put_back(|of| of.refusal.is_some(), now); // so that they are tried too, since the stream is opened anyway
            }
        }
        let is_unknown = |kind: &Type| !is_in_table(kind) && !self.taken.has(kind) && !self.apart.contains_key(kind);
        let is_other = |(kind, opened): (&Type, bool)| opened || !self.is_apart(kind) && !is_unknown(kind);
        if wanted.clone().any(is_other) {
            let unknown = wanted.filter(|(kind, opened)| !opened && is_unknown(kind));
            let unknown: Vec<_> = unknown.map(|(kind, _)| kind.clone()).collect();
            self.apart.extend(unknown.into_iter().map(|kind| (kind, ApartType::new(true, now))));
        } else if wanted.clone().all(|(kind, _)| self.apart.contains_key(kind)) {
            let wanted: BTreeSet<_> = wanted.map(|(kind, _)| kind).collect();
            let here = self.apart.iter_mut().filter(|(kind, _)| wanted.contains(kind));
            // If all types are refused, it is the type whose pause ends first.
            let place = |of: &ApartType| (of.refusal.is_some(), of.refusal.is_none() && of.is_outside, of.next);
            let first = here.min_by_key(|(_, of)| place(of));
            first.into_iter().for_each(|(_, of)| of.is_back = true);
        }
    }

    /// Begins an opening for one type outside of the table, if one has its turn. Types of the table follow as soon as the server takes it.
    fn begin_turn<'a>(&mut self, wanted: impl Iterator<Item = &'a Type> + Clone, now: Moment) {
        let Some((kind, status)) = self.turn.take().filter(|(kind, _)| wanted.clone().any(|other| other == kind))
        else {
            return;
        };
        let Some(of) = self.apart.get_mut(&kind).filter(|of| of.refusal.is_none()) else { return };
        (of.is_back, of.since, self.is_turn) = (true, now, true);
        let is_beside = |kind: &&Type| !self.outside.contains(*kind) && !self.apart.contains_key(*kind);
        let table: Vec<Type> = wanted.filter(is_beside).cloned().collect();
        self.suspect(&table, Why::Turn, false, &status, now);
    }

    /// Ends such an opening: types of the table have the next one, unless more is known by then.
    fn end_turn(&mut self) {
        if std::mem::take(&mut self.is_turn) {
            self.apart.retain(|_, of| of.is_outside || of.why() != Some(Why::Turn));
        }
    }

    /// Records that a type was requested for the first time on this opening.
    pub(crate) fn on_requested(&mut self, kind: &Type, now: Moment) {
        self.first_requests.note(kind, now);
    }

    /// Records that the server has sent a response of the type.
    pub(crate) fn on_response(&mut self, kind: &Type) {
        if self.first_requests.on_answer(kind) {
            self.on_taken_here(kind, Taken::Answered);
        }
    }

    fn on_taken_here(&mut self, kind: &Type, how: Taken) {
        if !self.first_requests.is_live() {
            self.first_requests.on_lived();
            (self.turns, self.turn) = Default::default();
            // Earlier openings were ended because of the server's state, or because of one type.
            let Self { apart, taken, .. } = self;
            apart.retain(|kind, of| of.why() != Some(Why::Turn) || !taken.has(kind));
        }
        if self.apart.get(kind).is_some_and(|of| of.is_back && of.is_outside) {
            self.paces.outside.on_taken();
        }
        self.on_taken(kind, how);
    }

    fn on_taken(&mut self, kind: &Type, how: Taken) {
        self.apart.remove(kind);
        self.taken.note(kind, how);
    }

    /// Returns the types that the server was found to answer since the last call.
    pub(crate) fn take_unshared(&mut self) -> Vec<Type> {
        self.taken.take_unshared()
    }

    /// Applies what other views have found: the server answers these types. Those refused here stay apart, and so do `Why::Doubted` ones.
    pub(crate) fn on_answered_in_others(&mut self, types: &Arc<BTreeSet<Type>>) {
        if !self.taken.on_answered_in_others(types) {
            return;
        }
        self.apart.retain(|kind, of| of.refusal.is_some() || of.why() == Some(Why::Doubted) || !types.contains(kind));
        let apart = &self.apart;
        self.trial.take_if(|trial| !trial.kinds.iter().any(|kind| apart.contains_key(kind)));
    }

    /// Handles due timers. Types that are not `kept` have no subscription any more. Of types that are `wanted`, something can be requested.
    pub(crate) fn on_time(&mut self, is_kept: impl Fn(&Type) -> bool, is_wanted: impl Fn(&Type) -> bool, now: Moment) {
        self.first_requests.on_time(&is_kept, now);
        self.one_stream_until.take_if(|until| *until <= now);
        self.taken.retain(&is_kept);
        let mut left = REMEMBERED;
        self.apart.retain(|kind, of| {
            of.is_wanted = is_wanted(kind);
            of.is_wanted || of.is_remembered(&mut left)
        });
        self.outside.retain(|kind| is_kept(kind) || self.apart.contains_key(kind));
        for kind in self.first_requests.lasting(now, |kind| self.taken.has_here(kind)) {
            self.on_taken_here(&kind, Taken::Lasted);
        }
        if self.first_requests.is_live() && self.one_stream_until.is_some() {
            self.try_on_stream(now);
        }
    }

    /// Puts types back one by one, because the view's stream works without them. A refused one waits until the stream is opened anyway.
    fn try_on_stream(&mut self, now: Moment) {
        self.apart.values_mut().filter(|of| !of.is_back).for_each(|of| of.on_works_without(now));
        self.put_back(|of| of.refusal.is_none(), now);
    }

    /// Puts back on the view's stream the type that has waited longest, if no type is put back now. Types outside of the table have a common
    /// pace, because each may end the stream.
    fn put_back(&mut self, may: impl Fn(&ApartType) -> bool, now: Moment) {
        if self.apart.values().any(ApartType::has_place) {
            return;
        }
        let may_outside = self.paces.outside.may_put_back(now);
        let is_due = |of: &&mut ApartType| of.is_wanted && of.next <= now && (may_outside || !of.is_outside) && may(of);
        let Some(of) = self.apart.values_mut().filter(is_due).min_by_key(|of| of.place()) else { return };
        of.is_back = true;
        if of.is_outside {
            self.paces.outside.on_put_back(now);
        }
    }

    /// Returns the types of the trial that is due: the one that has waited longest, and others that may be tried with it. Types of the table are
    /// tried first, and only with each other.
    pub(crate) fn due(&self, now: Moment) -> Option<Vec<Type>> {
        self.trial_deadline().filter(|at| *at <= now && self.one_stream_until.is_none())?;
        let is_due = |of: &ApartType| of.is_wanted && !of.is_back && self.paced(of) <= now;
        let due = || self.apart.iter().filter(|(_, of)| is_due(of));
        let (first, of) = due().min_by_key(|(_, of)| of.place())?;
        let may_join = |other: &ApartType| other.is_outside == of.is_outside && of.is_sociable() && other.is_sociable();
        let others = due().filter(|(kind, other)| may_join(other) && *kind != first);
        Some([first].into_iter().chain(others.map(|(kind, _)| kind)).take(TOGETHER).cloned().collect())
    }

    /// Returns a type that the server takes on the view's stream, to compare with.
    pub(crate) fn compared(&self) -> Option<&Type> {
        self.first_requests.find(|kind| self.taken.has(kind))
    }

    /// Begins a trial of these types on a stream of their own. Returns its number: reports of an earlier trial do not count any more.
    pub(crate) fn begin(&mut self, kinds: Vec<Type>, now: Moment) -> u64 {
        let is_outside = kinds.iter().any(|kind| self.apart.get(kind).is_some_and(|of| of.is_outside));
        self.paces.note(is_outside, now);
        self.count += 1;
        self.trial = Some(RunningTrial { serial: self.count, kinds, begun: None });
        self.count
    }

    /// Postpones types of which nothing can be requested for now.
    pub(crate) fn skip(&mut self, kinds: &[Type], now: Moment) {
        self.each(kinds, |of| of.next = now + SHORT_PAUSE);
    }

    pub(crate) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Records that the trial's stream is open.
    pub(crate) fn on_begun(&mut self, serial: u64, now: Moment) {
        self.trial.iter_mut().filter(|trial| trial.serial == serial).for_each(|trial| trial.begun = Some(now));
    }

    /// Applies what the end of a trial has shown.
    pub(crate) fn on_trial_end(&mut self, serial: u64, end: TrialEnd, now: Moment) {
        let Some(RunningTrial { kinds, .. }) = self.trial.take_if(|trial| trial.serial == serial) else { return };
        match end {
            TrialEnd::Taken(answered) => {
                self.failures = 0;
                for (at, kind) in kinds.iter().enumerate() {
                    self.on_taken(kind, if answered.contains(&at) { Taken::Answered } else { Taken::Lasted });
                }
            }
            TrialEnd::Refused(status) => {
                self.failures = 0;
                self.taken.doubt(&kinds);
                self.each(&kinds, |of| of.refuse(status.clone(), now));
            }
            TrialEnd::EndedForAny => self.each(&kinds, |of| of.is_alone = true),
            TrialEnd::Lost => self.on_failure(&kinds, now),
        }
    }

    fn each(&mut self, kinds: &[Type], mut change: impl FnMut(&mut ApartType)) {
        kinds.iter().for_each(|kind| self.apart.get_mut(kind).into_iter().for_each(&mut change));
    }

    fn on_failure(&mut self, kinds: &[Type], now: Moment) {
        self.failures += 1;
        self.each(kinds, |of| of.retry(SHORT_PAUSE, now));
        if self.failures >= FAILURES {
            self.use_one_stream(now);
        }
    }

    /// Makes no trials for a while, because second streams show nothing.
    fn use_one_stream(&mut self, now: Moment) {
        (self.failures, self.one_stream_until) = (0, Some(now + LONGEST_PAUSE));
    }

    /// Handles the end of the view's stream. `status` is set if the server ended it. Returns whether a type, or a trial, may be the reason.
    pub(crate) fn on_ended(&mut self, status: Option<&ServerStatus>, now: Moment) -> bool {
        let status = status.filter(|status| status.may_concern_request());
        // Whatever the end shows, the server has not taken these types.
        let shows_nothing = self.first_requests.is_live() && status.is_none();
        let is_over = |of: &&mut ApartType| of.is_back && (of.refusal.is_some() || shows_nothing);
        self.apart.values_mut().filter(is_over).for_each(|of| of.postpone(now));
        self.turn = None; // unless it is set again below
        match (self.trial.take().filter(|trial| trial.begun.is_some_and(|begun| now < begun + PROOF)), status) {
            // The view's stream may have been ended because of the trial's stream.
            (Some(_), Some(_)) => self.use_one_stream(now),
            (Some(trial), None) => self.on_failure(&trial.kinds, now),
            (None, Some(status)) => return self.on_ended_by_server(status, now),
            (None, None) => {}
        }
        status.is_some()
    }

    /// Records that the stream is closed.
    pub(crate) fn on_closed(&mut self) {
        self.end_turn();
        self.trial = None;
        self.first_requests.clear();
        self.apart.values_mut().for_each(|of| of.is_back = false);
    }

    fn on_ended_by_server(&mut self, status: &ServerStatus, now: Moment) -> bool {
        let doubts = self.first_requests.has_doubts();
        match self.first_requests.on_ended(|kind| self.taken.is_answered(kind), now) {
            Suspicion::None => false,
            Suspicion::Of(kinds) => {
                self.taken.doubt(&kinds);
                self.suspect(&kinds, if doubts { Why::Doubted } else { Why::New }, kinds.len() == 1, status, now);
                true
            }
            Suspicion::Any(suspects) => self.take_turns(&suspects, status, now),
        }
    }

    /// Handles an end of which any type may be the reason, on the stream or off it, or the view itself. Decides what is on the next opening. Returns
    /// whether a type may be the reason. If there are types of the table, only these count: others are tried apart as soon as the server takes anything.
    fn take_turns(&mut self, suspects: &[Type], status: &ServerStatus, now: Moment) -> bool {
        self.is_turn = false; // the types that it has kept off are among those that take turns now
        let off = self.apart.iter().filter(|(_, of)| of.is_wanted && !of.is_back).map(|(kind, _)| kind);
        let all = suspects.iter().chain(off).filter(|kind| self.refusal(kind).is_none());
        let (outside, table): (Vec<Type>, Vec<Type>) = all.cloned().partition(|kind| self.outside.contains(kind));
        let judged = if table.is_empty() { &outside } else { &table };
        let is_suspected = |kind: &Type| self.apart.get(kind).is_some_and(|of| !of.is_back && of.suspicion.is_some());
        let may_be_type = judged.iter().any(is_suspected); // and was off the stream
        let since = |kind: &Type| self.apart.get(kind).map_or(now, |of| of.since);
        let oldest = |kinds: &[Type]| kinds.iter().min_by_key(|kind| (since(kind), *kind)).cloned();
        let turn = self.turns.next(table.len(), outside.len());
        let alone = (turn == Turn::One).then(|| oldest(&table)).flatten();
        let is_of_outside = turn == Turn::Outside || table.is_empty();
        let next_outside = is_of_outside.then(|| oldest(&outside)).flatten();
        self.turn = next_outside.map(|kind| (kind, status.clone()));
        self.suspect(&outside, Why::Turn, false, status, now);
        if turn == Turn::All && table.is_empty() {
            self.each(&outside, |of| of.suspicion = None); // the view itself may be the reason
        }
        let (on, off): (Vec<Type>, Vec<Type>) =
            table.into_iter().partition(|kind| alone.as_ref().is_none_or(|alone| alone == kind));
        self.suspect(&off, Why::Turn, false, status, now);
        self.apart.retain(|kind, of| of.refusal.is_some() || !on.contains(kind));
        may_be_type
    }

    fn suspect(&mut self, kinds: &[Type], why: Why, is_only: bool, status: &ServerStatus, now: Moment) {
        for kind in kinds {
            let is_outside = self.outside.contains(kind);
            let of = self.apart.entry(kind.clone()).or_insert_with(|| ApartType::new(is_outside, now));
            of.suspect(why, is_only, status);
        }
    }

    /// Returns when something is next due after `now`.
    pub(crate) fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let lasting = self.first_requests.next_lasting(|kind| self.taken.has_here(kind));
        let deadlines = lasting.into_iter().chain(self.trial_deadline()).chain(self.one_stream_until);
        deadlines.filter(|at| *at > now).min()
    }

    /// Returns when the next trial may begin, or the next type may be put back.
    fn trial_deadline(&self) -> Option<Moment> {
        let has_one_stream = self.one_stream_until.is_some();
        let is_busy = self.trial.is_some() || has_one_stream && self.apart.values().any(ApartType::has_place);
        if !self.first_requests.is_live() || is_busy {
            return None;
        }
        let may = |of: &&ApartType| of.is_wanted && !(of.is_back || has_one_stream && of.refusal.is_some());
        self.apart.values().filter(may).map(|of| self.paced(of)).min()
    }

    /// Returns when a type may be tried or put back.
    fn paced(&self, of: &ApartType) -> Moment {
        let paced = match self.one_stream_until {
            Some(_) => self.paces.outside.put_back_at().filter(|_| of.is_outside),
            None => self.paces.next(of.is_outside),
        };
        paced.map_or(of.next, |paced| of.next.max(paced))
    }
}

#[cfg(test)]
mod tests;
